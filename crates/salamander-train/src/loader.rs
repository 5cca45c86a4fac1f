//! Batches ahead of time: reading, decoding and collating run on threads of their own, with a bound on
//! how far they run ahead; batches come out in their order.
//!
//! ```
//! use salamander::prelude::*;
//! use salamander::train::{Data, Epoch, Loader, open_data};
//!
//! #[derive(Example)]
//! struct Point {
//!     #[input(columns = ["x", "y"])]
//!     at: [f32; 2],
//!     #[label]
//!     side: u8,
//! }
//!
//! # let folder = tempfile::tempdir()?;
//! let file = folder.path().join("points.csv");
//! std::fs::write(&file, "x,y,side\n1,2,0\n3,4,1\n5,6,0\n")?;
//! let points = open_data("points", &[file.display().to_string()], &Data::default())?;
//! let epoch = Epoch { number: 0, batch: 2, seed: 1 };
//! let mut sizes = Vec::new();
//! for loaded in Loader::epoch::<Point>(&points, epoch, &Device::flex())? {
//!     sizes.push(loaded?.batch.expect("no record was skipped").at.dims());
//! }
//! assert_eq!(sizes, [[2, 2], [1, 2]]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::any::Any;
use std::collections::BTreeMap;
use std::ops::Range;
use std::panic::AssertUnwindSafe;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::UNIX_EPOCH;

use burn::tensor::Device;
use salamander_core::experiment::OnBadRecord;
use salamander_core::ledger::Tally;
use salamander_core::order::{Order, Shuffle};
use salamander_core::plan::{MicroBatch, Plan, Slice};
use salamander_core::seed::{self, Rng};
use salamander_data::preprocess::hash;
use salamander_data::{Dataset, Row};

use crate::Error;
use crate::context::{AUGMENT_DRAWS, stream};
use crate::example::{Assets, Example, ExampleContext};
use crate::threads::{OwnedThread, panic_text};

/// Micro-batches decoded ahead.
const AHEAD: usize = 4;

/// What to load: a slice of an epoch's order.
#[derive(Clone, Debug)]
pub struct LoadJob {
    /// The micro-batch and its positions.
    pub slice: Slice,
    /// The epoch's order.
    pub order: Order,
}

/// Every record once, in an order of the epoch's own: what a loop of one's own goes over.
#[derive(Clone, Copy, Debug)]
pub struct Epoch {
    /// From 0.
    pub number: u64,
    /// Records of a batch; the last one may have fewer.
    pub batch: u64,
    /// What the order and the draws of augmentation follow from.
    pub seed: u64,
}

/// The whole steps of a plan without slices, in an order.
pub(crate) fn steps(
    plan: Plan,
    order: Order,
    epoch: u64,
    steps: Range<u64>,
) -> impl Iterator<Item = LoadJob> {
    let slices = steps.flat_map(move |step| plan.micro_batches(epoch, step, 1));
    slices.map(move |slice| LoadJob { slice, order })
}

/// How to load.
#[derive(Clone, Debug)]
pub struct LoaderOptions {
    /// Where the tensors are made.
    pub device: Device,
    /// What a record that cannot be decoded does.
    pub on_bad_record: OnBadRecord,
    /// What records are read with.
    pub reading: ExampleContext,
    /// Augment with this seed; not at all in evaluation.
    pub augment: Option<u64>,
    /// Threads that read and decode.
    pub threads: usize,
}

/// A micro-batch, ready for the model.
#[derive(Debug)]
pub struct Loaded<B> {
    /// Its name.
    pub name: MicroBatch,
    /// Its tensors; absent when every record of it was skipped.
    pub batch: Option<B>,
    /// What it contains, for the ledger.
    pub tally: Tally,
    /// The numbers of the records in the batch.
    pub records: Vec<u64>,
}

/// A running loader: an iterator over micro-batches in the order of its jobs, whichever thread is done first. It ends
/// after the last job or the first error; dropping it ends its threads.
pub struct Loader<B> {
    /// Dropped before the threads, which end when nobody receives any more.
    receiver: Receiver<Done<B>>,
    _threads: Vec<OwnedThread>,
    /// Results that came before their turn.
    early: BTreeMap<u64, Result<Loaded<B>, Error>>,
    next: u64,
}

/// A result and its place in the order of the jobs.
type Done<B> = (u64, Result<Loaded<B>, Error>);

impl<B: Send + 'static> Loader<B> {
    /// Starts to load an epoch, one batch per step, its records augmented. One that cannot be decoded is an error.
    /// Statistics and vocabularies of the example are looked for in the current folder.
    pub fn epoch<E: Example<Batch = B>>(
        dataset: &Arc<Dataset>,
        epoch: Epoch,
        device: &Device,
    ) -> Result<Self, Error> {
        let Epoch { number, batch, seed } = epoch;
        let plan = Plan { records: dataset.len(), batch, aggregation: 1, slices: 1 };
        let order = Order::new(plan.records, Shuffle::Full, seed, number);
        let options = LoaderOptions {
            device: device.clone(),
            on_bad_record: OnBadRecord::Fail,
            reading: ExampleContext { labels: true, assets: Assets::in_current_folder(E::ASSETS)? },
            augment: Some(seed),
            threads: 1,
        };
        let jobs = steps(plan, order, number, 0..plan.steps());
        Self::start::<E>(Arc::clone(dataset), jobs, options)
    }

    /// Starts to load the jobs; they come out in their order, whichever thread is done first.
    pub fn start<E: Example<Batch = B>>(
        dataset: Arc<Dataset>,
        jobs: impl Iterator<Item = LoadJob> + Send + 'static,
        options: LoaderOptions,
    ) -> Result<Self, Error> {
        let (sender, receiver) = sync_channel(AHEAD);
        let queue = Arc::new(Mutex::new(jobs.zip(0u64..)));
        let worker = |index: usize| {
            let (dataset, queue) = (Arc::clone(&dataset), Arc::clone(&queue));
            let (options, sender) = (options.clone(), sender.clone());
            let work = move || run::<E>(&dataset, &queue, &options, &sender);
            OwnedThread::spawn(format!("loader-{index}"), "a loader", work)
        };
        let threads = (0..options.threads.max(1)).map(worker).collect::<Result<_, _>>()?;
        Ok(Self { receiver, _threads: threads, early: BTreeMap::new(), next: 0 })
    }
}

impl<B> Iterator for Loader<B> {
    type Item = Result<Loaded<B>, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(loaded) = self.early.remove(&self.next) {
                self.next += 1;
                return Some(loaded);
            }
            let (at, loaded) = self.receiver.recv().ok()?;
            self.early.insert(at, loaded);
        }
    }
}

fn run<E: Example>(
    dataset: &Dataset,
    queue: &Mutex<impl Iterator<Item = (LoadJob, u64)>>,
    options: &LoaderOptions,
    sender: &SyncSender<Done<E::Batch>>,
) {
    loop {
        let next = queue.lock().unwrap_or_else(PoisonError::into_inner).next();
        let Some((job, at)) = next else { return };
        // A panic of the model's own code would otherwise look like the end of the data.
        let loaded =
            std::panic::catch_unwind(AssertUnwindSafe(|| load::<E>(dataset, &job, options)));
        let loaded = loaded.unwrap_or_else(|panic| Err(panicked(&job, &*panic)));
        let failed = loaded.is_err();
        if sender.send((at, loaded)).is_err() || failed {
            return;
        }
    }
}

fn panicked(job: &LoadJob, panic: &(dyn Any + Send)) -> Error {
    let text = panic_text(panic).unwrap_or("no message");
    let MicroBatch { epoch, step, k } = job.slice.name;
    Error::Invalid(format!(
        "loading micro-batch {k} of step {step} in epoch {epoch} panicked: {text}"
    ))
}

/// Loads one micro-batch on the calling thread.
pub fn load<E: Example>(
    dataset: &Dataset,
    job: &LoadJob,
    options: &LoaderOptions,
) -> Result<Loaded<E::Batch>, Error> {
    let Slice { name, positions } = job.slice.clone();
    let record = |at| job.order.record_of(at, |record| dataset.part_of(record));
    let mut records: Vec<u64> = positions.clone().map(record).collect();
    let mut tally = Tally { positions: vec![positions], ..Tally::default() };
    let mut examples = match decode::<E>(dataset, &records, options) {
        Ok(examples) => examples,
        Err(error) if !may_skip(&error, options) => return Err(error),
        // One by one, to keep the good ones.
        Err(_) => {
            let (mut good, mut kept) = (Vec::new(), Vec::new());
            for record in records {
                match decode::<E>(dataset, &[record], options) {
                    Ok(example) => {
                        good.extend(example);
                        kept.push(record);
                    }
                    Err(error) if !may_skip(&error, options) => return Err(error),
                    Err(_) => tally.record(record, false),
                }
            }
            records = kept;
            good
        }
    };
    if let Some(seed) = options.augment {
        let base = stream(seed, name, AUGMENT_DRAWS);
        for (example, record) in examples.iter_mut().zip(&records) {
            example.augment(&mut Rng::new(seed::derive(base, &[*record])));
        }
    }
    records.iter().for_each(|record| tally.record(*record, true));
    let batch = match examples.is_empty() {
        true => None,
        false => {
            Some(E::collate(&examples, &options.reading, &options.device).map_err(|error| {
                let first = dataset.describe(records[0]);
                Error::Invalid(format!("in the batch of {first}: {error}"))
            })?)
        }
    };
    Ok(Loaded { name, batch, tally, records })
}

/// A bad record may be left out if the user says so; a store that does not answer is no bad record.
fn may_skip(error: &Error, options: &LoaderOptions) -> bool {
    let bad_data = matches!(error, Error::Data(error) if error.is_bad_data());
    bad_data && options.on_bad_record == OnBadRecord::Skip
}

fn decode<E: Example>(
    dataset: &Dataset,
    records: &[u64],
    options: &LoaderOptions,
) -> Result<Vec<E>, Error> {
    let mut examples: Vec<Option<E>> = records.iter().map(|_| None).collect();
    let cache = dataset.cache().filter(|_| E::PACKED);
    let cache = cache.filter(|cache| cache.claim(owner::<E>(&options.reading)));
    if let Some(cache) = cache {
        cache.read(records, &mut |at, mut bytes| {
            examples[at] = E::unpack(&mut bytes).filter(|_| bytes.is_empty());
        });
    }
    let places: Vec<usize> = (0..records.len()).filter(|at| examples[*at].is_none()).collect();
    let wanted: Vec<u64> = places.iter().map(|at| records[*at]).collect();
    let mut new = Vec::new();
    let mut each = |at: usize, row: Row<'_>| {
        // The reader adds the file and the record.
        let example = E::decode(&row, &options.reading).map_err(|error| {
            salamander_data::Error::Column { column: error.column, reason: error.reason }
        })?;
        if cache.is_some() {
            let mut bytes = Vec::new();
            example.pack(&mut bytes);
            new.push((wanted[at], bytes));
        }
        examples[places[at]] = Some(example);
        Ok(())
    };
    let read = dataset.read(&wanted, &mut each);
    if let Some(cache) = cache {
        cache.add(new);
    }
    read?;
    Ok(examples.into_iter().flatten().collect())
}

/// What tells decoded examples from those of other types, files they are read with, and programs: a changed attribute
/// or constant is another program.
fn owner<E: Example>(reading: &ExampleContext) -> u64 {
    static PROGRAM: OnceLock<u64> = OnceLock::new();
    let program = PROGRAM.get_or_init(|| {
        let file = std::env::current_exe().and_then(std::fs::metadata);
        let changed = file.as_ref().ok().and_then(|file| file.modified().ok());
        let since = changed.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        let size = file.map_or(0, |file| file.len());
        seed::derive(size, &[since.map_or(0, |since| since.as_nanos() as u64)])
    });
    let name = hash(std::any::type_name::<E>(), u64::MAX) as u64;
    seed::derive(*program, &[name, u64::from(reading.labels), reading.assets.hash()])
}

#[cfg(test)]
mod tests {
    use burn::tensor::FloatDType;
    use salamander_data::{Reader, Shard};

    use super::*;
    use crate::example::{Batch, DecodeError};

    struct Nothing;

    impl Reader for Nothing {
        fn shards(&self) -> Result<Vec<Shard>, salamander_data::Error> {
            Ok(vec![Shard { name: "nothing".into(), records: 8 }])
        }

        fn read(
            &self,
            _shard: usize,
            records: Range<u64>,
            each: &mut dyn FnMut(u64, Row<'_>) -> Result<(), salamander_data::Error>,
        ) -> Result<(), salamander_data::Error> {
            records.into_iter().try_for_each(|record| each(record, Row::new(Vec::new())))
        }
    }

    struct Clumsy;

    #[derive(Clone)]
    struct Clumsies;

    impl Batch for Clumsies {
        fn records(&self) -> usize {
            1
        }

        fn cast(self, _dtype: FloatDType) -> Self {
            self
        }
    }

    impl Example for Clumsy {
        type Batch = Clumsies;

        fn decode(_row: &Row<'_>, _cx: &ExampleContext) -> Result<Self, DecodeError> {
            Ok(Clumsy)
        }

        fn collate(
            _examples: &[Self],
            _cx: &ExampleContext,
            _device: &Device,
        ) -> Result<Clumsies, DecodeError> {
            panic!("slipped")
        }
    }

    #[test]
    fn a_panic_is_an_error_and_not_the_end_of_the_data() {
        let dataset = Dataset::new(Arc::new(Nothing)).expect("records");
        let order = Order::new(8, Shuffle::Full, 1, 0);
        let plan = Plan { records: 8, batch: 4, aggregation: 1, slices: 1 };
        let jobs = (0..plan.steps()).flat_map(move |step| plan.micro_batches(0, step, 1));
        let options = LoaderOptions {
            device: Device::flex(),
            on_bad_record: OnBadRecord::Skip,
            reading: ExampleContext::labelled(),
            augment: None,
            threads: 1,
        };
        let jobs = jobs.map(move |slice| LoadJob { slice, order });
        let mut loader = Loader::start::<Clumsy>(Arc::new(dataset), jobs, options).expect("starts");
        let error = loader.next().expect("an answer").err().expect("an error").to_string();
        assert_eq!(error, "loading micro-batch 0 of step 0 in epoch 0 panicked: slipped");
    }
}
