//! Flows that are trained on while they run: partitions come in order, one after the other, and whoever goes on adds
//! what the first one would have added.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use salamander_data::{GrowingFolder, OpenOptions};
use salamander_flow::flow::{Error, FlowContext, FlowJob, FlowSummary, Flows, TSet, TaskThreads};
use salamander_flow::flows;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Reading {
    id: i64,
    value: f64,
}

/// Each row alone; every tenth is refused, and the first ones are left out.
fn halved(cx: &FlowContext) -> Result<TSet, Error> {
    let first: i64 = cx.parameter("first", 100)?;
    cx.input()?.filter_rows("late", move |reading: &Reading| reading.id >= first)?.map(
        "halve",
        |reading: Reading| match reading.id % 10 {
            0 => Err(format!("{} ends in 0", reading.id)),
            _ => Ok(Reading { value: reading.value / 2.0, ..reading }),
        },
    )
}

/// Rows change places.
fn spread(cx: &FlowContext) -> Result<TSet, Error> {
    cx.input()?.partition(2)
}

const ROWS: i64 = 400;
const TASKS: u64 = 8;

struct StreamPlace {
    folder: tempfile::TempDir,
    flows: Flows,
}

impl StreamPlace {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let rows: String = (0..ROWS).map(|id| format!("{id},{}\n", id as f64 / 8.0)).collect();
        fs::write(folder.path().join("in.csv"), format!("id,value\n{rows}")).expect("written");
        Self { folder, flows: flows![halved, spread] }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn job(&self, flow: &str) -> FlowJob {
        let mut job = FlowJob::named(flow, &[&self.at("in.csv").display().to_string()]);
        job.sink.shards = Some(TASKS);
        job
    }

    /// Streams it, and stops when so many tasks are done.
    fn stream(
        &self,
        job: &FlowJob,
        out: &str,
        threads: usize,
        most: u64,
    ) -> Result<FlowSummary, Error> {
        let stop = AtomicBool::new(false);
        let progress = |done: u64, _: u64| stop.store(done >= most, Ordering::Relaxed);
        let flows = &self.flows;
        let mut runner = TaskThreads { flows, threads, stop: &stop, progress: &progress };
        job.stream(flows, &self.at(out), &mut runner)
    }
}

/// What somebody sees who trains on it: ids, and whether these are all.
fn seen(folder: &Path) -> (Vec<i64>, bool) {
    let mut seen = GrowingFolder::new(folder, None);
    seen.look(&OpenOptions::default()).expect("read");
    let (mut ids, dataset) = (Vec::new(), seen.dataset().expect("counted"));
    let all: Vec<u64> = (0..dataset.len()).collect();
    let read = dataset.read(&all, &mut |_, row| {
        ids.push(row.ints("id")?[0]);
        Ok(())
    });
    read.expect("rows");
    (ids, seen.total().is_some())
}

fn good_ids() -> Vec<i64> {
    (100..ROWS).filter(|id| id % 10 != 0).collect()
}

#[test]
fn partitions_come_in_order_whoever_has_made_them() {
    let place = StreamPlace::new();
    for format in ["parquet", "jsonl"] {
        let mut job = place.job("halved");
        job.sink.format = format.to_string();
        let mut digests = Vec::new();
        for threads in [1, 2, 4] {
            let out = format!("{format}-{threads}");
            let summary = place.stream(&job, &out, threads, u64::MAX).expect("it runs");
            // Two tasks have no rows: nothing is named for them.
            assert_eq!((summary.rows, summary.bad_rows, summary.shards), (270, 30, TASKS - 2));
            assert_eq!(seen(&place.at(&out)), (good_ids(), true));
            digests.push(summary.digest);
        }
        assert!(digests.iter().all(|digest| *digest == digests[0]), "{digests:?}");
        let again = place.stream(&job, &format!("{format}-1"), 1, 0).expect("it is done");
        assert_eq!(again.digest, digests[0]);
    }
}

#[test]
fn what_was_begun_is_gone_on_with() {
    let place = StreamPlace::new();
    let job = place.job("halved");
    let whole = place.stream(&job, "whole", 2, u64::MAX).expect("it runs");
    for most in [1, 3, 5, 7] {
        let out = format!("cut-{most}");
        let error = place.stream(&job, &out, 1, most).expect_err("it was stopped");
        assert!(matches!(error, Error::Interrupted), "{error}");
        let (before, all) = seen(&place.at(&out));
        assert!(!all && good_ids().starts_with(&before) && before.len() < 270, "{before:?}");
        let list = place.at(&out).join("salamander-parts.jsonl");
        let text = fs::read_to_string(&list).expect("a list");
        // A kill in the middle of a line.
        fs::write(&list, format!("{text}{{\"part\": {{\"fi")).expect("written");
        let summary = place.stream(&job, &out, 2, u64::MAX).expect("it goes on");
        assert_eq!((summary.rows, summary.bad_rows), (whole.rows, whole.bad_rows), "{most}");
        assert_eq!(summary.digest, whole.digest, "{most}");
        assert_eq!(seen(&place.at(&out)), (good_ids(), true));
    }
}

#[test]
fn another_flow_or_input_does_not_go_on() {
    let place = StreamPlace::new();
    let mut job = place.job("halved");
    place.stream(&job, "out", 1, 5).expect_err("it was stopped");
    job.parameters.insert("first".to_string(), "7".to_string());
    let error = place.stream(&job, "out", 1, u64::MAX).expect_err("other rows").to_string();
    assert!(error.contains("made by something else"), "{error}");
    fs::write(place.at("in.csv"), "id,value\n201,1\n202,2\n").expect("written");
    let error = place.stream(&place.job("halved"), "out", 1, u64::MAX);
    let error = error.expect_err("another input").to_string();
    assert!(error.contains("made by something else"), "{error}");
}

#[test]
fn what_needs_all_rows_is_refused() {
    let place = StreamPlace::new();
    let check = |change: &dyn Fn(&mut FlowJob), flow: &str, expected: &str| {
        let mut job = place.job(flow);
        change(&mut job);
        let error = place.stream(&job, "out", 1, u64::MAX).expect_err(expected).to_string();
        assert!(error.starts_with(expected), "{error}");
        assert!(!place.at("out").exists(), "{expected}");
    };
    check(&|job| job.sink.shuffle = Some(1), "halved", "--stream: --shuffle needs all rows");
    check(&|job| job.sink.split = vec![0.5, 0.5], "halved", "--stream: --split needs all rows");
    check(&|job| job.sink.statistics = true, "halved", "--stream: --statistics needs all rows");
    check(&|_| {}, "spread", "--stream: it has a partition");
}
