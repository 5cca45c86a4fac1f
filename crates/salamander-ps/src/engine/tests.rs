//! The engine against the tables in maps, under random requests.

mod files;
mod moves;
mod naive;

use proptest::prelude::*;
use salamander_core::asynchronous::OutOfStep;
use salamander_core::optimizer::Optimizer;
use salamander_core::plan::MicroBatch;
use salamander_core::progress::StepCount;

use self::naive::Naive;
use crate::{
    Engine, EngineOptions, Error, Initializer, LedgerPage, Mode, Push, Read, Storage, TableId,
    TableRows, TableSpec, partition_of,
};

/// Partitions that test ids are in: few, so that they meet.
const CROWDED: u16 = 5;
const SLICES: u32 = 3;

/// Ids of the crowded partitions.
fn pool() -> Vec<u64> {
    (0..).filter(|id| partition_of(*id) < CROWDED).take(60).collect()
}

/// One table for each way to keep and lose rows.
fn specs() -> Vec<TableSpec> {
    let normal = Initializer::Normal { mean: 0.0, deviation: 0.1 };
    vec![
        TableSpec::new("plain", 3),
        TableSpec {
            optimizer: Optimizer::adam(0.1).into(),
            admit_after: 1,
            expire_after: Some(3),
            init: normal,
            ..TableSpec::new("picky", 2)
        },
        TableSpec {
            optimizer: Optimizer::sgd(0.1).into(),
            max_rows: Some(4 * 1024),
            ..TableSpec::new("bounded", 16)
        },
        TableSpec {
            optimizer: Optimizer::ftrl(0.1).into(),
            storage: Storage::Bf16,
            expire_after: Some(17),
            max_rows: Some(6 * 1024),
            ..TableSpec::new("half", 5)
        },
        TableSpec { storage: Storage::F16, init: Initializer::Zeros, ..TableSpec::new("zero", 1) },
    ]
}

fn options(mode: Mode, threads: usize) -> EngineOptions {
    EngineOptions { mode, threads, seed: 11, slices: SLICES, ..EngineOptions::default() }
}

fn engine(options: EngineOptions) -> Engine {
    let engine = Engine::new(options).expect("the options are sound");
    specs().into_iter().for_each(|spec| {
        engine.declare(spec).expect("the table is sound");
    });
    engine
}

/// One request; numbers stand for ids of the pool.
#[derive(Clone, Debug)]
enum EngineRequest {
    Stage { k: u32, table: u32, ids: Vec<usize> },
    Advance,
    Push { number: u64, table: u32, ids: Vec<usize> },
    Set { table: u32, ids: Vec<usize> },
    Prune { below: u64 },
}

fn ids() -> impl Strategy<Value = Vec<usize>> {
    prop::collection::btree_set(0usize..60, 0..60).prop_map(|ids| {
        // Not in the order of their numbers.
        ids.into_iter().map(|id| (id * 37) % 60).collect()
    })
}

fn steps() -> impl Strategy<Value = Vec<EngineRequest>> {
    let step = prop_oneof![
        4 => (0..4u32, 0..5u32, ids()).prop_map(|(k, table, ids)| EngineRequest::Stage { k, table, ids }),
        3 => Just(EngineRequest::Advance),
        5 => (0..30u64, 0..5u32, ids())
            .prop_map(|(number, table, ids)| EngineRequest::Push { number, table, ids }),
        1 => (0..5u32, ids()).prop_map(|(table, ids)| EngineRequest::Set { table, ids }),
        1 => (0..3u64).prop_map(|below| EngineRequest::Prune { below }),
    ];
    prop::collection::vec(step, 1..60)
}

/// What a request carries: values that depend on its place in the sequence and on the id.
struct Load {
    table: TableId,
    ids: Vec<u64>,
    values: Vec<f32>,
}

fn load(at: usize, table: u32, ids: &[usize]) -> Load {
    let (pool, dim) = (pool(), specs()[table as usize].dim);
    let ids: Vec<u64> = ids.iter().map(|id| pool[*id]).collect();
    let value = |id: u64, element: usize| ((id as usize + 3 * element + 7 * at) as f32).sin();
    let values = ids.iter().flat_map(|id| (0..dim).map(move |e| value(*id, e))).collect();
    Load { table: TableId(table), ids, values }
}

impl Load {
    fn rows(&self) -> TableRows<'_> {
        TableRows { table: self.table, ids: &self.ids, values: &self.values }
    }

    /// The part that belongs to some partitions.
    fn only(&self, here: impl Fn(u16) -> bool) -> Load {
        let dim = self.values.len() / self.ids.len().max(1);
        let rows = self.ids.iter().zip(self.values.chunks(dim.max(1)));
        let (ids, values): (Vec<u64>, Vec<&[f32]>) =
            rows.filter(|(id, _)| here(partition_of(**id))).unzip();
        Load { table: self.table, ids, values: values.concat() }
    }
}

fn name(number: u64) -> MicroBatch {
    let slices = u64::from(SLICES);
    let within = number % 12;
    MicroBatch { epoch: number / 12, step: within / slices, k: (within % slices) as u32 }
}

fn push<'a>(number: u64, rows: &'a [TableRows<'a>]) -> Push<'a> {
    let tally = LedgerPage { applied: 2, skipped: 1, digest: number };
    Push { name: name(number), tally, factor: 0.9, scale: 0.5, seen: None, rows }
}

/// Does one request on an engine; those of the other mode are left out.
fn apply(engine: &Engine, mode: Mode, at: usize, step: &EngineRequest, here: &dyn Fn(u16) -> bool) {
    let done = match (mode, step) {
        (Mode::Staged, EngineRequest::Stage { k, table, ids }) => {
            let load = load(at, *table, ids).only(here);
            engine.stage(engine.version(), *k, &[load.rows()])
        }
        (Mode::Staged, EngineRequest::Advance) => {
            engine.advance(engine.version().next(), 0.8, 0.25)
        }
        (Mode::Immediate, EngineRequest::Push { number, table, ids }) => {
            let load = load(at, *table, ids).only(here);
            engine.push(push(*number, &[load.rows()]))
        }
        (Mode::Immediate, EngineRequest::Prune { below }) => engine.prune(*below),
        (_, EngineRequest::Set { table, ids }) => {
            let load = load(at, *table, ids).only(here);
            engine.set(load.rows())
        }
        _ => Ok(()),
    };
    done.expect("the request is sound");
}

fn apply_naive(naive: &mut Naive, mode: Mode, at: usize, step: &EngineRequest) {
    let version = naive.version;
    let done = match (mode, step) {
        (Mode::Staged, EngineRequest::Stage { k, table, ids }) => {
            naive.stage(version, *k, &[load(at, *table, ids).rows()])
        }
        (Mode::Staged, EngineRequest::Advance) => naive.advance(version.next(), 0.8, 0.25),
        (Mode::Immediate, EngineRequest::Push { number, table, ids }) => {
            naive.push(&push(*number, &[load(at, *table, ids).rows()]))
        }
        (Mode::Immediate, EngineRequest::Prune { below }) => {
            naive.prune(*below);
            Ok(())
        }
        (_, EngineRequest::Set { table, ids }) => naive.set(load(at, *table, ids).rows()),
        _ => Ok(()),
    };
    done.expect("the request is sound");
}

/// All rows of the pool in a table, there or not.
fn rows(engine: &Engine, table: u32) -> Vec<f32> {
    let mut out = vec![0.0; 60 * specs()[table as usize].dim];
    engine.pull(TableId(table), &pool(), Read::Evaluate, &mut out).expect("the ids are here");
    out
}

/// The rows that are there, by id.
fn there(mut changed: crate::Changed, dim: usize) -> Vec<(u64, Vec<u32>)> {
    let ids = std::mem::take(&mut changed.ids).into_iter();
    let bits = |row: &[f32]| row.iter().map(|value| value.to_bits()).collect();
    let mut rows: Vec<_> = ids.zip(changed.values.chunks(dim).map(bits)).collect();
    rows.sort_unstable();
    rows
}

fn check_same(engine: &Engine, naive: &mut Naive) -> Result<(), TestCaseError> {
    for (at, spec) in specs().iter().enumerate() {
        let table = TableId(at as u32);
        let mut expected = vec![0.0; 60 * spec.dim];
        naive.pull(table, &pool(), Read::Evaluate, &mut expected).expect("the ids are here");
        prop_assert_eq!(rows(engine, at as u32), expected, "{}", &spec.name);
        let expected = there(naive.changed(table, 0).expect("the table is here"), spec.dim);
        let got = there(engine.changed(table, 0).expect("the table is here"), spec.dim);
        prop_assert_eq!(got, expected, "{}", &spec.name);
    }
    let mut stats = engine.stats().expect("the threads live");
    let expected = naive.stats();
    for (got, expected) in stats.iter_mut().zip(&expected) {
        got.bytes = expected.bytes;
    }
    prop_assert_eq!(stats, expected);
    prop_assert_eq!(engine.applied().expect("the threads live"), naive.applied());
    prop_assert_eq!(engine.version(), naive.version);
    Ok(())
}

fn modes() -> impl Strategy<Value = Mode> {
    prop_oneof![Just(Mode::Staged), Just(Mode::Immediate)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn tables_are_maps(steps in steps(), mode in modes(), threads in 1usize..4) {
        let engine = engine(options(mode, threads));
        let mut naive = Naive::new(options(mode, 1)).expect("the options are sound");
        for spec in specs() {
            naive.declare(spec).expect("the table is sound");
        }
        for (at, step) in steps.iter().enumerate() {
            apply(&engine, mode, at, step, &|_| true);
            apply_naive(&mut naive, mode, at, step);
        }
        check_same(&engine, &mut naive)?;
    }

    /// Who asks again gets what changed since, and nothing else.
    #[test]
    fn changes_are_told_once(steps in steps(), mode in modes(), threads in 1usize..4) {
        let engine = engine(options(mode, threads));
        let mut naive = Naive::new(options(mode, 1)).expect("the options are sound");
        for spec in specs() {
            naive.declare(spec).expect("the table is sound");
        }
        let table = TableId(0);
        let mut since = engine.changed(table, 0).expect("the table is here").counter;
        for (at, step) in steps.iter().enumerate() {
            let before = naive.counter();
            apply(&engine, mode, at, step, &|_| true);
            apply_naive(&mut naive, mode, at, step);
            let changed = engine.changed(table, since).expect("the table is here");
            since = changed.counter;
            let expected = naive.changed(table, before).expect("the table is here");
            if before > 0 {
                prop_assert_eq!(there(changed, 3), there(expected, 3));
            }
        }
    }
}

#[test]
fn a_table_is_declared_once() {
    let engine = engine(options(Mode::Staged, 2));
    let again = engine.declare(specs().remove(1)).expect("the same table");
    assert_eq!(again, TableId(1));
    let other = TableSpec { dim: 4, ..specs().remove(0) };
    let refused = engine.declare(other).expect_err("another dimension").to_string();
    assert!(refused.contains("\"plain\"") && refused.contains("another dim: 3"), "{refused}");
    let senseless = engine.declare(TableSpec::new("", 4)).expect_err("no name").to_string();
    assert!(senseless.contains("needs a name"), "{senseless}");
}

#[test]
fn steps_come_in_order() {
    let engine = engine(options(Mode::Staged, 1));
    let load = load(0, 0, &[1, 2]);
    let refused = engine.stage(StepCount(1), 0, &[load.rows()]).expect_err("a step too early");
    assert!(
        matches!(
            refused,
            Error::OutOfStep(OutOfStep { current: StepCount(0), asked: StepCount(1) })
        ),
        "{refused}"
    );
    engine.stage(StepCount(0), 0, &[load.rows()]).expect("the current step");
    assert!(matches!(engine.advance(StepCount(2), 1.0, 1.0), Err(Error::OutOfStep(_))));
    engine.advance(StepCount(1), 1.0, 1.0).expect("the next step");
    let after = rows(&engine, 0);
    engine.advance(StepCount(1), 1.0, 1.0).expect("it was done");
    engine.stage(StepCount(0), 0, &[load.rows()]).expect("acknowledged and ignored");
    engine.advance(StepCount(2), 1.0, 1.0).expect("an empty step");
    assert_eq!(rows(&engine, 0), after);
    assert_eq!(engine.version(), StepCount(2));
}

#[test]
fn a_slice_that_comes_again_replaces_itself() {
    let (once, twice) = (engine(options(Mode::Staged, 1)), engine(options(Mode::Staged, 1)));
    once.stage(StepCount(0), 1, &[load(1, 0, &[1, 2]).rows()]).expect("staged");
    twice.stage(StepCount(0), 1, &[load(0, 0, &[2, 3]).rows()]).expect("staged");
    twice.stage(StepCount(0), 1, &[load(1, 0, &[1, 2]).rows()]).expect("staged");
    for engine in [&once, &twice] {
        engine.advance(StepCount(1), 1.0, 1.0).expect("the next step");
    }
    assert_eq!(rows(&once, 0), rows(&twice, 0));
}

#[test]
fn wrong_requests_are_refused_and_change_nothing() {
    let here = 0..3;
    let engine = engine(EngineOptions { partitions: vec![here], ..options(Mode::Immediate, 2) });
    let load = load(0, 0, &(0..60).collect::<Vec<_>>());
    let elsewhere = engine.push(push(0, &[load.rows()])).expect_err("some ids are elsewhere");
    assert!(matches!(elsewhere, Error::NotHere(3 | 4)), "{elsewhere}");
    let here = load.only(|partition| partition < 3);
    let short = TableRows { values: &here.values[1..], ..here.rows() };
    assert!(matches!(engine.push(push(0, &[short])), Err(Error::Request(_))));
    let unknown = TableRows { table: TableId(9), ..here.rows() };
    assert!(matches!(engine.push(push(0, &[unknown])), Err(Error::UnknownTable(9))));
    assert!(matches!(engine.stage(StepCount(0), 0, &[here.rows()]), Err(Error::Request(_))));
    let wide = Push { name: MicroBatch { epoch: 0, step: 0, k: SLICES }, ..push(0, &[]) };
    assert!(matches!(engine.push(wide), Err(Error::Request(_))));
    let mut out = vec![0.0; 180];
    let pulled = engine.pull(TableId(0), &pool(), Read::Train, &mut out);
    assert!(matches!(pulled, Err(Error::NotHere(3 | 4))));
    assert!(engine.applied().expect("the threads live").iter().all(|held| held.applied.is_empty()));
    assert_eq!(engine.stats().expect("the threads live")[0].rows, 0);
}

#[test]
fn reads_create_nothing_and_only_training_counts() {
    let engine = engine(options(Mode::Staged, 2));
    let ids = [5, 5, 9];
    let mut out = [0.0; 9];
    engine.pull(TableId(0), &ids, Read::Train, &mut out).expect("pulled");
    engine.pull(TableId(0), &ids, Read::Evaluate, &mut out).expect("pulled");
    assert_eq!(out[..3], out[3..6]);
    let stats = engine.stats().expect("the threads live");
    assert_eq!((stats[0].rows, stats[0].lookups), (0, 3));
}

#[test]
fn a_cleared_engine_is_a_new_one() {
    let engine = engine(options(Mode::Staged, 2));
    let fresh = rows(&engine, 2);
    engine.stage(StepCount(0), 0, &[load(0, 2, &[1, 2, 3]).rows()]).expect("staged");
    engine.advance(StepCount(1), 1.0, 1.0).expect("the next step");
    assert_ne!(rows(&engine, 2), fresh);
    engine.stage(StepCount(1), 0, &[load(0, 2, &[1]).rows()]).expect("staged");
    engine.clear(StepCount(7)).expect("the threads live");
    assert_eq!(engine.version(), StepCount(7));
    engine.advance(StepCount(8), 1.0, 1.0).expect("nothing is staged");
    assert_eq!(rows(&engine, 2), fresh);
}

#[test]
fn old_gradients_move_rows_less_where_their_age_counts() {
    let options =
        EngineOptions { mode: Mode::Immediate, slices: SLICES, ..EngineOptions::default() };
    let engine = Engine::new(options).expect("an engine");
    let optimizer = Optimizer::sgd(1.0).into();
    let spec = TableSpec { optimizer, init: Initializer::Zeros, ..TableSpec::new("a", 1) };
    let table = engine.declare(spec).expect("declared");
    let seen = engine.changed(table, 0).expect("counted").counter;
    let ids = [7];
    // The first has seen everything, the second all but the first, the third does not say.
    let mut expected = 0.0;
    for (number, seen, moved) in [(0, Some(seen), 1.0), (1, Some(seen), 0.5), (2, None, 1.0)] {
        let rows = [TableRows { table, ids: &ids, values: &[1.0] }];
        let push = Push { factor: 1.0, scale: 1.0, seen, ..push(number, &rows) };
        engine.push(push).expect("pushed");
        expected -= moved;
        let mut row = [0.0];
        engine.pull(table, &ids, Read::Evaluate, &mut row).expect("pulled");
        assert_eq!(row, [expected]);
    }
}

#[test]
fn a_step_multiplied_by_nothing_moves_no_row() {
    let engine = engine(options(Mode::Staged, 2));
    let (table, ids) = (TableId(0), pool());
    let read = || {
        let mut rows = vec![0.0; ids.len() * 3];
        engine.pull(table, &ids, Read::Train, &mut rows).expect("pulled");
        rows
    };
    let before = read();
    // Gradients that overflowed: times zero they would not be zero.
    let values = vec![f32::INFINITY; before.len()];
    engine
        .stage(StepCount(0), 0, &[TableRows { table, ids: &ids, values: &values }])
        .expect("staged");
    engine.advance(StepCount(1), 1.0, 0.0).expect("dropped");
    assert_eq!((read(), engine.version()), (before.clone(), StepCount(1)));
    let values = vec![1.0; before.len()];
    engine
        .stage(StepCount(1), 0, &[TableRows { table, ids: &ids, values: &values }])
        .expect("staged");
    engine.advance(StepCount(2), 1.0, 1.0).expect("applied");
    assert!(read().iter().zip(&before).all(|(new, old)| new.is_finite() && new != old));
}
