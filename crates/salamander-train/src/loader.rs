//! Batches ahead of time: reading, decoding and collating run on a thread of their own, with a bound
//! on how far it runs ahead.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use burn::tensor::Device;
use salamander_core::experiment::OnBadRecord;
use salamander_core::ledger::Tally;
use salamander_core::order::Order;
use salamander_core::plan::{MicroBatch, Slice};
use salamander_core::seed::{self, Rng};
use salamander_data::{Dataset, Row};

use crate::Error;
use crate::context::{AUGMENT_DRAWS, stream};
use crate::example::Example;

/// Micro-batches decoded ahead.
const AHEAD: usize = 4;

/// What to load: a slice of an epoch's order.
#[derive(Clone, Debug)]
pub struct Job {
    /// The micro-batch and its positions.
    pub slice: Slice,
    /// The epoch's order.
    pub order: Order,
}

/// How to load.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where the tensors are made.
    pub device: Device,
    /// What a record that cannot be decoded does.
    pub on_bad_record: OnBadRecord,
    /// Whether labels must be there.
    pub labels: bool,
    /// Augment with this seed; not at all in evaluation.
    pub augment: Option<u64>,
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

/// A running loader; dropping it ends its thread.
pub struct Loader<B> {
    receiver: Option<Receiver<Result<Loaded<B>, Error>>>,
    thread: Option<JoinHandle<()>>,
}

impl<B: Send + 'static> Loader<B> {
    /// Starts to load the jobs in their order.
    pub fn start<E: Example<Batch = B>>(
        dataset: Arc<Dataset>,
        jobs: impl Iterator<Item = Job> + Send + 'static,
        options: Options,
    ) -> Result<Self, Error> {
        let (sender, receiver) = sync_channel(AHEAD);
        let thread = std::thread::Builder::new()
            .name("loader".to_string())
            .spawn(move || run::<E>(&dataset, jobs, &options, &sender))
            .map_err(|error| Error::Invalid(format!("cannot start the loader: {error}")))?;
        Ok(Self { receiver: Some(receiver), thread: Some(thread) })
    }
}

impl<B> Iterator for Loader<B> {
    type Item = Result<Loaded<B>, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        self.receiver.as_ref()?.recv().ok()
    }
}

impl<B> Drop for Loader<B> {
    fn drop(&mut self) {
        // The thread ends when nobody receives any more.
        drop(self.receiver.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn run<E: Example>(
    dataset: &Dataset,
    jobs: impl Iterator<Item = Job>,
    options: &Options,
    sender: &SyncSender<Result<Loaded<E::Batch>, Error>>,
) {
    for job in jobs {
        let loaded = load::<E>(dataset, &job, options);
        let failed = loaded.is_err();
        if sender.send(loaded).is_err() || failed {
            return;
        }
    }
}

/// Loads one micro-batch on the calling thread.
pub fn load<E: Example>(
    dataset: &Dataset,
    job: &Job,
    options: &Options,
) -> Result<Loaded<E::Batch>, Error> {
    let Slice { name, positions } = job.slice.clone();
    let mut records: Vec<u64> = positions.clone().map(|at| job.order.record(at)).collect();
    let mut tally = Tally { positions: vec![positions], ..Tally::default() };
    let mut examples = match decode::<E>(dataset, &records, options) {
        Ok(examples) => examples,
        Err(error) if options.on_bad_record == OnBadRecord::Fail => return Err(error),
        // One by one, to keep the good ones.
        Err(_) => {
            let mut good = Vec::new();
            records.retain(|record| match decode::<E>(dataset, &[*record], options) {
                Ok(example) => {
                    good.extend(example);
                    true
                }
                Err(_) => {
                    tally.record(*record, false);
                    false
                }
            });
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
        false => Some(E::collate(&examples, &options.device).map_err(|error| {
            let first = dataset.describe(records[0]);
            Error::Invalid(format!("in the batch of {first}: {error}"))
        })?),
    };
    Ok(Loaded { name, batch, tally, records })
}

fn decode<E: Example>(
    dataset: &Dataset,
    records: &[u64],
    options: &Options,
) -> Result<Vec<E>, Error> {
    let mut examples: Vec<Option<E>> = records.iter().map(|_| None).collect();
    let mut each = |at: usize, row: Row<'_>| {
        let example = E::decode(&row, options.labels).map_err(|error| {
            let record = dataset.describe(records[at]);
            salamander_data::Error::Rejected(format!("{record}: {error}"))
        })?;
        examples[at] = Some(example);
        Ok(())
    };
    dataset.read(records, &mut each)?;
    Ok(examples.into_iter().flatten().collect())
}
