//! Checkpoints on any number of servers, and damaged ones refused by name.

use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

use super::*;
use crate::checkpoint;

fn part(mode: Mode, range: Range<u16>) -> Engine {
    engine(EngineOptions { partitions: vec![range], ..options(mode, 2) })
}

fn save(engine: &Engine, path: PathBuf) -> PathBuf {
    engine.snapshot().expect("copied").write(&path).expect("written");
    path
}

/// Trains a little on all tables.
fn train(engine: &Engine, here: &dyn Fn(u16) -> bool) {
    for at in 0..20 {
        let all: Vec<usize> = (0..60).filter(|id| id % 7 != at % 7).collect();
        let step = EngineRequest::Stage { k: 0, table: at as u32 % 5, ids: all.clone() };
        apply(engine, Mode::Staged, at, &step, here);
        let step = EngineRequest::Stage { k: 1, table: at as u32 % 3, ids: all[..30].to_vec() };
        apply(engine, Mode::Staged, at, &step, here);
        apply(engine, Mode::Staged, at, &EngineRequest::Advance, here);
    }
}

/// Everything that an engine holds, partition by partition.
fn contents(engine: &Engine) -> BTreeMap<u16, Vec<u8>> {
    let snapshot = engine.snapshot().expect("copied");
    let sections = snapshot.sections().map(|section| section.expect("it is there"));
    sections.map(|section| (section.partition, section.bytes)).collect()
}

#[test]
fn two_then_three_then_one_server_hold_the_same() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = |name: &str| folder.path().join(name);
    let whole = engine(options(Mode::Staged, 1));
    let two = [part(Mode::Staged, 0..3), part(Mode::Staged, 3..1024)];
    train(&whole, &|_| true);
    train(&two[0], &|partition| partition < 3);
    train(&two[1], &|partition| partition >= 3);
    let files = [save(&two[0], file("two-0")), save(&two[1], file("two-1"))];
    let three = [0..1, 1..4, 4..1024].map(|range| {
        let server =
            Engine::new(EngineOptions { partitions: vec![range], ..options(Mode::Staged, 1) });
        let server = server.expect("the options are sound");
        server.restore(&files).expect("restored");
        server
    });
    let files = [0, 1, 2].map(|at| save(&three[at], file(&format!("three-{at}"))));
    let one = engine(options(Mode::Staged, 3));
    train(&one, &|_| true);
    one.restore(&files).expect("restored");
    assert_eq!(one.version(), StepCount(20));
    assert_eq!(contents(&one), contents(&whole));
    train(&one, &|_| true);
    train(&whole, &|_| true);
    assert_eq!(contents(&one), contents(&whole));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever comes between, a copy is what was there when it was asked for.
    #[test]
    fn a_copy_is_of_one_moment(
        before in steps(), after in steps(), mode in modes(), threads in 1usize..4,
        written in 0usize..10,
    ) {
        let engine = engine(options(mode, threads));
        for (at, step) in before.iter().enumerate() {
            apply(&engine, mode, at, step, &|_| true);
        }
        let expected = contents(&engine);
        let (copy, other) = (engine.snapshot().expect("copied"), engine.snapshot().expect("copied"));
        let mut sections = copy.sections();
        let mut found: Vec<_> = sections.by_ref().take(written).collect();
        for (at, step) in after.iter().enumerate() {
            apply(&engine, mode, before.len() + at, step, &|_| true);
        }
        // A partition that goes away is copied before.
        engine.unstage().expect("alive");
        engine.take(&[3]).expect("taken");
        let later = contents(&engine);
        found.extend(sections);
        let bytes = |section: Result<crate::shard::Encoded, Error>| {
            let section = section.expect("it is there");
            (section.partition, section.bytes)
        };
        let found: BTreeMap<u16, Vec<u8>> = found.into_iter().map(bytes).collect();
        prop_assert!(found == expected);
        prop_assert!(other.sections().map(bytes).collect::<BTreeMap<_, _>>() == expected);
        drop((copy, other));
        prop_assert!(contents(&engine) == later);
    }
}

#[test]
fn a_copy_of_what_was_replaced_is_not_written() {
    let folder = tempfile::tempdir().expect("a folder");
    let engine = engine(options(Mode::Staged, 2));
    let copy = engine.snapshot().expect("copied");
    engine.clear(StepCount(0)).expect("cleared");
    let path = folder.path().join("rows");
    let error = copy.write(&path).expect_err("it is gone");
    assert!(matches!(error, Error::Replaced) && !path.exists(), "{error}");
}

/// The rows that a copy takes memory for are those that change while it is written.
#[test]
fn a_copy_takes_no_memory_for_rows_that_stay() {
    let engine = engine(options(Mode::Staged, 1));
    train(&engine, &|_| true);
    let copy = engine.snapshot().expect("copied");
    assert_eq!(engine.kept_apart(), 0);
    let step = EngineRequest::Set { table: 0, ids: vec![1, 2, 3] };
    apply(&engine, Mode::Staged, 1, &step, &|_| true);
    assert_eq!(engine.kept_apart(), 3);
    assert_eq!(copy.sections().filter(Result::is_err).count(), 0);
    assert_eq!(engine.kept_apart(), 0);
}

#[test]
fn names_and_pages_come_back() {
    let folder = tempfile::tempdir().expect("a folder");
    let before = engine(options(Mode::Immediate, 2));
    for number in [0, 1, 5, 14] {
        before.push(push(number, &[load(1, 0, &[1, 2, 3]).rows()])).expect("pushed");
    }
    let file = save(&before, folder.path().join("all"));
    let after = engine(options(Mode::Immediate, 3));
    after.push(push(2, &[])).expect("pushed");
    after.restore(&[file]).expect("restored");
    assert_eq!(after.applied().expect("alive"), before.applied().expect("alive"));
    for engine in [&before, &after] {
        for number in [0, 5, 6] {
            engine.push(push(number, &[load(4, 0, &[2, 9]).rows()])).expect("pushed");
        }
    }
    assert_eq!(contents(&after), contents(&before));
    let held = after.applied().expect("alive").remove(0);
    assert_eq!(held.applied.len(), 5);
    assert_eq!(held.pages[&0], LedgerPage { applied: 8, skipped: 4, digest: 12 });
}

#[test]
fn files_are_read_without_an_engine() {
    let folder = tempfile::tempdir().expect("a folder");
    let two = [part(Mode::Staged, 0..3), part(Mode::Staged, 3..900)];
    train(&two[0], &|partition| partition < 3);
    train(&two[1], &|partition| partition >= 3);
    let written = two[0].snapshot().expect("copied").write(&folder.path().join("0"));
    let written = written.expect("written");
    let files = [folder.path().join("0"), save(&two[1], folder.path().join("1"))];
    assert_eq!(written.bytes, fs::metadata(&files[0]).expect("it is there").len());
    let description = checkpoint::describe(&files).expect("described");
    assert_eq!(description.blake3[0], written.blake3);
    assert_eq!(description.tables, specs());
    assert_eq!((description.version, description.missing.len()), (StepCount(20), 124));
    for (at, spec) in specs().iter().enumerate() {
        let mut expected = Vec::new();
        for engine in &two {
            let changed = engine.changed(TableId(at as u32), 0).expect("known");
            expected.extend(there(changed, spec.dim));
        }
        expected.sort_unstable();
        let mut got = Vec::new();
        checkpoint::for_each_row(&files, &spec.name, |id, row| {
            got.push((id, row.iter().map(|value| value.to_bits()).collect::<Vec<_>>()));
        })
        .expect("read");
        got.sort_unstable();
        assert_eq!(got, expected, "{}", spec.name);
        assert_eq!(description.rows[at], expected.len() as u64);
    }
}

/// Changes a file and expects a restore that fails, says so, and leaves the engine as it was.
fn check_refused(file: &Path, bytes: &[u8], expected: &[&str]) {
    fs::write(file, bytes).expect("written");
    let engine = engine(options(Mode::Staged, 2));
    engine.set(load(3, 0, &[1]).rows()).expect("set");
    let before = contents(&engine);
    let error = engine.restore(&[file.to_path_buf()]).expect_err("it is damaged").to_string();
    assert!(error.contains(&file.display().to_string()), "{error}");
    assert!(expected.iter().all(|part| error.contains(part)), "{error}");
    assert_eq!(contents(&engine), before);
}

#[test]
fn damaged_files_are_refused_by_name() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = engine(options(Mode::Staged, 1));
    train(&server, &|_| true);
    let file = save(&server, folder.path().join("rows"));
    let good = fs::read(&file).expect("it is there");
    let section = &contents(&server)[&2];
    let start = good.windows(section.len()).position(|at| at == section).expect("it is inside");
    for at in [0, 30, section.len() / 2, section.len() - 1] {
        let mut bad = good.clone();
        bad[start + at] ^= 4;
        check_refused(&file, &bad, &["partition 2", "checksum", "use another checkpoint"]);
    }
    for at in [0, 9, 40, good.len() - 1, good.len() - 20, good.len() - 50, good.len() - 500] {
        let mut bad = good.clone();
        bad[at] ^= 1;
        check_refused(&file, &bad, &["damaged"]);
    }
    for length in [0, 7, 60, good.len() / 2, good.len() - 1] {
        check_refused(&file, &good[..length], &["cut short"]);
    }
    fs::write(&file, &good).expect("written");
    server.restore(&[file]).expect("it is whole again");
}

#[test]
fn files_that_do_not_fit_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = |name: &str| folder.path().join(name);
    let half = save(&part(Mode::Staged, 0..512), file("half"));
    let whole = engine(options(Mode::Staged, 2));
    let refuse = |files: &[PathBuf], expected: &str| {
        let error = whole.restore(files).expect_err("it does not fit").to_string();
        assert!(error.contains(expected), "{error}");
    };
    refuse(std::slice::from_ref(&half), "no file holds partition");
    refuse(&[half.clone(), half.clone()], "partition 0 is in both");
    let later = part(Mode::Staged, 512..1024);
    later.advance(StepCount(1), 1.0, 1.0).expect("the next step");
    refuse(&[half, save(&later, file("later"))], "files of one checkpoint");
    let other = Engine::new(EngineOptions { seed: 12, ..options(Mode::Staged, 1) });
    let other = other.expect("the options are sound");
    refuse(&[save(&other, file("seed"))], "seed 12");
    let other = Engine::new(options(Mode::Staged, 1)).expect("the options are sound");
    other.declare(TableSpec { dim: 9, ..TableSpec::new("plain", 3) }).expect("declared");
    refuse(&[save(&other, file("table"))], "another dim");
    refuse(&[file("nowhere")], "nowhere");
}
