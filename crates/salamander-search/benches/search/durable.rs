//! Trials per second with every report on the disk before anything follows from it.

use std::cell::Cell;
use std::convert::Infallible;
use std::fs::{self, File};
use std::io::Write;
use std::rc::Rc;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use salamander_search::{EventLog, JournaledSearch, SearchEvent, TrialId};

use crate::decisions::{halving, measured, started};
use crate::median;
use crate::record::Record;

/// Trials in flight.
const IN_FLIGHT: u64 = 64;

/// As the program's journal does it: one write and one sync for all that has arrived.
struct Synced {
    file: File,
    /// What the disk took: it has its own pace, which is none of the search's.
    took: Rc<Cell<Duration>>,
}

impl EventLog for Synced {
    type Error = Infallible;

    fn append(&mut self, lines: &str) -> Result<(), Infallible> {
        let begun = Instant::now();
        let written = self.file.write_all(lines.as_bytes()).and_then(|()| self.file.sync_data());
        written.expect("the journal is written");
        self.took.set(self.took.get() + begun.elapsed());
        Ok(())
    }
}

/// So often each is measured, of which the middle counts: twenty syncs are over in no time.
const ROUNDS: usize = 5;

/// A search that was measured.
struct DurableRun {
    seconds: f64,
    syncs: u64,
    /// Seconds in them.
    disk: f64,
}

pub(crate) fn measure(record: &Record) {
    for trials in [1_000, 10_000] {
        let mut runs: Vec<DurableRun> = (0..ROUNDS).map(|_| search(trials)).collect();
        runs.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
        let DurableRun { seconds, syncs, disk } = runs[ROUNDS / 2];
        let mut own: Vec<f64> = runs.iter().map(|run| run.seconds - run.disk).collect();
        let (rate, own) = (trials as f64 / seconds, trials as f64 / median(&mut own));
        let name = format!("durable trials, {trials} in all, {IN_FLIGHT} in flight");
        let each = 1e3 * disk / syncs as f64;
        println!("{name:<52} {rate:>12.0} /s ({syncs} syncs of {each:.2} ms; {own:.0} without)");
        record.figure(&name, ("per second", "more"), rate, None);
        let name = format!("{name}, without what the disk took");
        record.figure(&name, ("per second", "more"), own, None);
    }
}

/// Searches with so many trials that take no time: what is measured is the search.
fn search(trials: u64) -> DurableRun {
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("search.jsonl");
    let took = Rc::new(Cell::new(Duration::ZERO));
    let log = Synced { file: File::create(&path).expect("a journal"), took: Rc::clone(&took) };
    let (mut search, first) =
        JournaledSearch::open(halving(trials, IN_FLIGHT, "arrival"), &[], log);
    let (to_train, training) = channel::<(TrialId, u64)>();
    let (report, reports) = channel::<SearchEvent>();
    let trained = std::thread::spawn(move || {
        for (trial, length) in training {
            let metric = measured(trial, length);
            if report.send(SearchEvent::Report { trial, length, metric }).is_err() {
                break;
            }
        }
    });
    let begun = Instant::now();
    let start = |actions: &[_]| {
        let each =
            started(actions).inspect(|trial| to_train.send(*trial).expect("somebody trains"));
        each.count() as u64
    };
    let (mut in_flight, mut syncs) = (start(&first), 0u64);
    while in_flight > 0 {
        let one = reports.recv().expect("somebody trains");
        let events: Vec<SearchEvent> = std::iter::once(one).chain(reports.try_iter()).collect();
        syncs += 1;
        in_flight -= events.len() as u64;
        let heard = search.hear(&events, begun.elapsed().as_secs_f64(), |_, _, actions| {
            in_flight += start(&actions);
            Ok(())
        });
        heard.expect("kept");
    }
    let seconds = begun.elapsed().as_secs_f64();
    drop(to_train);
    trained.join().expect("it ends");
    assert!(search.search().is_over());
    let _ = fs::remove_file(path);
    DurableRun { seconds, syncs, disk: took.get().as_secs_f64() }
}
