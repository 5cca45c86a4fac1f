//! Steps on data that is written meanwhile: they come before the last record is there, and their bits are those of the
//! finished files.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use salamander_core::ledger::LedgerLine;
use salamander_core::order::Shuffle;
use salamander_data::{PartFile, PartsWriter};

use super::{Callbacks, Outcome, Setup, Trainer};
use crate::Error;
use crate::callback::{Callback, Control, StepReport};
use crate::exchange::Alone;
use crate::testing::{LinearNet, setup, train_together};

/// Records of the partitions; one of them has none.
const PARTS: [u64; 4] = [5, 0, 9, 4];

/// Five steps of four records in each epoch, the last one short.
const REST: &str = "entrypoint: net\nhyperparameters: {global_batch_size: 4}\nmicro_batches: 4\nworkers: 4\n\
                    strategy: allreduce\nreproducibility: {experiment_seed: 1}\nmax_length: {epochs: 2}\n";

struct StreamPlace {
    folder: tempfile::TempDir,
}

impl StreamPlace {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().expect("a folder") }
    }

    fn parts(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn writer(&self, name: &str) -> PartsWriter {
        PartsWriter::open(&self.parts(name), &"a test".into()).expect("a folder")
    }

    /// Adds the next partition.
    fn add(&self, writer: &mut PartsWriter) {
        let number = writer.parts().len();
        let before: u64 = PARTS[..number].iter().sum();
        let row = |record: u64| {
            let (x, y) = ((record * 37 % 11) as f64 - 5.5, (record * 61 % 13) as f64 - 6.5);
            format!("{{\"x\": {x}, \"y\": {y}, \"side\": {}}}\n", u8::from(x > y))
        };
        let rows: String = (before..before + PARTS[number]).map(row).collect();
        let staged = tempfile::NamedTempFile::new_in(self.folder.path()).expect("a file");
        std::fs::write(staged.path(), rows).expect("written");
        let (_, path) = staged.keep().expect("kept");
        let file = format!("part-{number}.jsonl");
        let part = PartFile { file, records: PARTS[number], blake3: None, task: None };
        writer.add(&path, part).expect("added");
    }

    /// A training on the partitions of a folder, in a folder of its own.
    fn setup(&self, parts: &str, own: &str, stream: bool) -> Setup {
        let folder = self.folder.path().join(own);
        std::fs::create_dir_all(&folder).expect("made");
        let mut setup = setup(&folder, "x,y,side\n", REST);
        let data = &mut setup.experiment.settings_mut().data;
        data.training.0 = vec![self.parts(parts).display().to_string()];
        (data.stream, data.shuffle) = (stream, Shuffle::Partition);
        setup
    }
}

/// Says how many steps are done.
struct SaySteps(Sender<u64>);

impl Callback for SaySteps {
    fn step_end(&mut self, step: &StepReport, _control: &mut Control) {
        // Nobody listens once all is written.
        let _ = self.0.send(step.steps.0);
    }
}

fn alone(setup: Setup, callbacks: Vec<Box<dyn Callback>>) -> Result<Outcome, Error> {
    let member = Alone::new(Arc::clone(&setup.stop));
    Trainer::<LinearNet<2>>::new(setup, Box::new(member), callbacks)?.run()
}

/// Whether so many steps are done before training ends, or waits for what is not written yet.
fn has_done(said: &Receiver<u64>, wanted: u64) -> bool {
    std::iter::from_fn(|| said.recv_timeout(Duration::from_secs(120)).ok())
        .any(|steps| steps >= wanted)
}

/// What a run has left: its weights, and the counts of its epochs.
fn left(outcome: &Outcome) -> (String, Vec<LedgerLine>) {
    let path: &Path = outcome.checkpoint.as_ref().expect("a checkpoint");
    let manifest = crate::checkpoint::read(path).expect("intact").manifest;
    (manifest.weights_hash.expect("a hash"), outcome.progress.ledger.lines())
}

#[test]
fn streamed_records_give_the_bits_of_finished_files_and_steps_do_not_wait_for_the_last() {
    let place = StreamPlace::new();
    let mut writer = place.writer("finished");
    PARTS.iter().for_each(|_| place.add(&mut writer));
    writer.end().expect("ended");
    drop(writer);
    let expected = left(&alone(place.setup("finished", "whole", false), vec![]).expect("trained"));
    let counts: Vec<(u64, u64)> =
        expected.1.iter().map(|line| (line.applied, line.missing)).collect();
    assert_eq!(counts, [(18, 0), (18, 0)]);

    for size in [1, 2, 3] {
        let parts = format!("parts-{size}");
        let mut writer = place.writer(&parts);
        place.add(&mut writer);
        let (say, said) = channel();
        let ends = std::thread::scope(|scope| {
            let place = &place;
            // If a step does not come, nothing more is written, and training says where it stands.
            scope.spawn(move || {
                if !has_done(&said, 1) {
                    return;
                }
                place.add(&mut writer);
                place.add(&mut writer);
                if has_done(&said, 3) {
                    place.add(&mut writer);
                    writer.end().expect("ended");
                }
            });
            if size == 1 {
                let setup = place.setup(&parts, "alone", true);
                return vec![alone(setup, vec![Box::new(SaySteps(say))])];
            }
            let setup = |rank: usize| place.setup(&parts, &format!("member-{size}-{rank}"), true);
            let listen = |rank: usize, trainer: &mut Trainer<LinearNet<2>>| {
                if rank == 0 {
                    trainer.callbacks = Callbacks::new(vec![Box::new(SaySteps(say.clone()))]);
                }
            };
            train_together::<LinearNet<2>>(size, setup, listen, None)
        });
        let outcomes: Vec<Outcome> = ends.into_iter().map(|end| end.expect("trained")).collect();
        assert_eq!(left(&outcomes[0]), expected, "{size} members");
    }
    // Who comes when all is written has the same.
    let late = alone(place.setup("parts-1", "late", true), vec![]).expect("trained");
    assert_eq!(left(&late), expected);
}

#[test]
fn who_has_written_and_died_is_named_and_the_next_one_goes_on() {
    let place = StreamPlace::new();
    place.add(&mut place.writer("parts"));
    let (say, said) = channel();
    let setup = place.setup("parts", "first", true);
    let error = alone(setup, vec![Box::new(SaySteps(say))]).expect_err("it is not all there");
    let expected =
        "who wrote it has ended after 1 partition with 5 records, and the end is not marked";
    assert!(error.to_string().contains(expected) && error.is_of_the_run(), "{error}");
    assert_eq!(said.try_iter().collect::<Vec<_>>(), [1], "what is there is trained on");
    let mut writer = place.writer("parts");
    (1..PARTS.len()).for_each(|_| place.add(&mut writer));
    writer.end().expect("ended");
    let outcome = alone(place.setup("parts", "second", true), vec![]).expect("trained");
    assert_eq!(outcome.progress.steps.0, 10);
}

/// Where there is no lock, or one that is not seen from here, only silence tells.
#[test]
fn who_writes_without_a_lock_and_falls_silent_is_named_after_a_while() {
    let place = StreamPlace::new();
    place.add(&mut place.writer("parts"));
    std::fs::remove_file(place.parts("parts").join("salamander-parts.lock")).expect("a lock");
    let mut setup = place.setup("parts", "first", true);
    setup.experiment.settings_mut().data.stream_timeout = Some(0.3);
    let error = alone(setup, vec![]).expect_err("it is not all there");
    let expected = "for 300ms there was no partition, no lock and no heartbeat of who writes it, \
                    after 1 partition with 5 records";
    assert!(error.to_string().contains(expected) && error.is_of_the_run(), "{error}");
    assert!(error.to_string().contains("data.stream_timeout"), "{error}");
}
