//! Trials per second with every report on the disk before anything follows from it.

use std::convert::Infallible;
use std::fs::{self, File};
use std::io::Write;
use std::sync::mpsc::channel;
use std::time::Instant;

use salamander_search::{EventLog, JournaledSearch, SearchEvent, TrialId};

use crate::decisions::{halving, measured, started};
use crate::record::Record;

/// Trials in flight.
const IN_FLIGHT: u64 = 64;

/// As the program's journal does it: one write and one sync for all that has arrived.
struct Synced(File);

impl EventLog for Synced {
    type Error = Infallible;

    fn append(&mut self, lines: &str) -> Result<(), Infallible> {
        let written = self.0.write_all(lines.as_bytes()).and_then(|()| self.0.sync_data());
        written.expect("the journal is written");
        Ok(())
    }
}

pub(crate) fn measure(record: &Record) {
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("search.jsonl");
    for trials in [1_000, 10_000] {
        let log = Synced(File::create(&path).expect("a journal"));
        let (mut search, first) =
            JournaledSearch::open(halving(trials, IN_FLIGHT, "arrival"), &[], log);
        let (to_train, training) = channel::<(TrialId, u64)>();
        let (report, reports) = channel::<SearchEvent>();
        // Trials that take no time: what is measured is the search.
        let trained = std::thread::spawn(move || {
            for (trial, length) in training {
                let metric = measured(trial, length);
                if report.send(SearchEvent::Report { trial, length, metric }).is_err() {
                    break;
                }
            }
        });
        let begun = Instant::now();
        let mut in_flight = 0u64;
        let start = |actions: &[_]| {
            let mut count = 0;
            for trial in started(actions) {
                to_train.send(trial).expect("somebody trains");
                count += 1;
            }
            count
        };
        in_flight += start(&first);
        let mut syncs = 0u64;
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
        let (rate, syncs) = (trials as f64 / seconds, syncs as f64 / seconds);
        let name = format!("durable trials, {trials} in all, {IN_FLIGHT} in flight");
        println!("{name:<52} {rate:>12.0} /s ({syncs:.0} syncs/s)");
        record.figure(&name, ("per second", "more"), rate, None);
    }
    let _ = fs::remove_file(path);
}
