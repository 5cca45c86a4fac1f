//! A store on a disk that is full for a while.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::process::Command;

use salamander_hub::ingest::Ingester;
use salamander_hub::operation::Operation;
use salamander_hub::store::logs::LogQuery;
use salamander_hub::store::page::ListQuery;
use salamander_hub::{ExperimentId, Hub, RunId, Speaker, StoreUrl};

use crate::folders::write_run;

/// A file system of a few megabytes, gone at the end.
struct SmallDisk<'a>(&'a Path);

impl SmallDisk<'_> {
    /// `None`: this machine may not be changed, or nothing can be mounted; in CI that is a failure.
    fn mount(at: &Path) -> Option<SmallDisk<'_>> {
        let may = std::env::var_os("SALAMANDER_CHANGE_HOST").is_some();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=6m", "tmpfs"]).arg(at);
        if may && mount.output().is_ok_and(|output| output.status.success()) {
            return Some(SmallDisk(at));
        }
        let reason = "tmpfs cannot be mounted here (needs root, and SALAMANDER_CHANGE_HOST=1)";
        assert!(std::env::var_os("SALAMANDER_NO_SKIPS").is_none(), "{reason}");
        println!("SKIPPED: {reason}");
        None
    }

    /// Takes all the space that is left.
    fn fill(&self) {
        let mut file = fs::File::create(self.0.join("filler")).expect("made");
        for size in [64 << 10, 1 << 10, 1] {
            while file.write_all(&vec![0; size]).is_ok() {}
        }
    }

    fn free(&self) {
        fs::remove_file(self.0.join("filler")).expect("removed");
    }
}

impl Drop for SmallDisk<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(self.0).status();
    }
}

fn append(folder: &Path, steps: std::ops::Range<i64>) {
    let open = |name: &str| {
        OpenOptions::new().create(true).append(true).open(folder.join(name)).expect("opened")
    };
    let line = |n| format!("{{\"kind\":\"step\",\"steps\":{n},\"epoch\":0,\"loss\":{n}.5}}\n");
    let points: String = steps.clone().map(line).collect();
    open("metrics.jsonl").write_all(points.as_bytes()).expect("written");
    let lines: String = steps.map(|n| format!("line {n} with words that fill a block\n")).collect();
    open("logs/master.log").write_all(lines.as_bytes()).expect("written");
}

#[test]
fn a_full_disk_loses_and_doubles_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let small = folder.path().join("small");
    fs::create_dir(&small).expect("made");
    let Some(disk) = SmallDisk::mount(&small) else { return };
    let runs = folder.path().join("runs");
    let run = write_run(&runs, "a", 0);
    fs::remove_file(run.join("metrics.jsonl")).expect("removed");
    append(&run, 1..100);
    let url = StoreUrl::Sqlite(small.join("hub.sqlite"));
    let hub = Hub::open(&runs, Some(&url)).expect("opened");
    let mut ingester = Ingester::new(hub.clone());
    ingester.look_at_all().expect("read");
    disk.fill();
    let label = |text: &str| {
        let add = vec![text.to_string()];
        let operation = Operation::Label { experiment: ExperimentId(1), add, remove: vec![] };
        hub.say(&Speaker("ada".to_string()), operation)
    };
    let error = label("while it was full").expect_err("the disk is full").to_string();
    assert!(error.contains("it was heard"), "{error}");
    write_run(&runs, "b", 50);
    for part in 1..20 {
        append(&run, part * 100..(part + 1) * 100);
        ingester.look_at_all().expect_err("the disk is full");
    }
    // Not even heard: the store does not have what was said before.
    label("refused").expect_err("the disk is full");
    // What is there can be read.
    assert_eq!(hub.store().run("1.1".parse().expect("a run")).expect("read").steps, 99);
    disk.free();
    label("afterwards").expect("said");
    ingester.look_at_all().expect("read");
    check(&hub);
    drop((ingester, hub));
    let hub = Hub::open(&runs, Some(&url)).expect("opened again");
    Ingester::new(hub.clone()).look_at_all().expect("read");
    check(&hub);
    drop(hub);
}

fn check(hub: &Hub) {
    let run: RunId = "1.1".parse().expect("a run");
    let loss = hub.store().metrics(run).expect("read");
    let loss = loss.iter().find(|metric| metric.name == "loss").expect("there");
    assert_eq!((loss.points, loss.last_step), (1999, 1999));
    let all = LogQuery { process: Some("master".into()), limit: Some(9999), ..LogQuery::default() };
    let lines = hub.store().run_logs(run, &all).expect("read").lines;
    assert_eq!(lines.len(), 1999);
    assert!((1..).zip(&lines).all(|(n, line)| line.text.starts_with(&format!("line {n} "))));
    let experiments = hub.store().experiments(&ListQuery::default()).expect("read");
    assert_eq!(experiments.total, 2);
    let first = hub.store().experiment(ExperimentId(1)).expect("read");
    assert_eq!(first.labels, ["afterwards", "while it was full"]);
}
