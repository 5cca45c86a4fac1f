//! Batches of random rows.

use std::hint::black_box;

use salamander_core::seed::Rng;
use salamander_ps::{
    Apply, Engine, EngineOptions, PARTITIONS, Read, Rows, Shard, TableId, TableSpec,
};

use crate::baseline::Locked;
use crate::flat::Flat;
use crate::race;

const DIM: usize = 64;
const ROWS: usize = 2_000_000;
const BATCH: usize = 4096;
const BATCHES: usize = 48;
const ROUNDS: usize = 21;

/// The id of a row: far apart, as hashes of features are.
pub(crate) fn id_of(row: u32) -> u64 {
    u64::from(row).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Batches of random rows, each row once in a batch or nearly so.
pub(crate) fn batches(count: usize, rows: usize) -> Vec<Vec<u32>> {
    let mut rng = Rng::new(5);
    let mut batch = || (0..BATCH).map(|_| rng.below(rows as u64) as u32).collect();
    (0..count).map(|_| batch()).collect()
}

/// Prints the look-up's figures.
pub(crate) fn measure() {
    println!("look-up: dimension {DIM}, f32, {ROWS} rows, random ids, batches of {BATCH}");
    let flat = Flat::<DIM>::new(ROWS, true);
    let small_pages = Flat::<DIM>::new(ROWS, false);
    let mut shard = Shard::new(1, 1, (0..PARTITIONS as u16).collect(), 0);
    let table = shard.declare(TableSpec::new("rows", DIM));
    let engine = Engine::new(EngineOptions::default()).expect("it starts");
    let same = engine.declare(TableSpec::new("rows", DIM)).expect("the table is sound");
    let mut locked = Locked::default();
    fill(&mut shard, table, &engine, same);
    (0..ROWS as u32).for_each(|row| locked.insert(id_of(row), vec![row as f32; DIM]));
    let rows = batches(BATCHES, ROWS);
    let ids: Vec<Vec<u64>> =
        rows.iter().map(|batch| batch.iter().copied().map(id_of).collect()).collect();
    let [mut a, mut b, mut c, mut d, mut e, mut f] = [(); 6].map(|()| vec![0.0f32; BATCH * DIM]);
    let each = |batches: &[Vec<u32>], gather: &mut dyn FnMut(&[u32])| {
        batches.iter().for_each(|batch| gather(batch));
    };
    race(
        ROUNDS,
        BATCH * BATCHES,
        vec![
            (
                "table, one owner, called directly",
                Box::new(|| {
                    for ids in &ids {
                        shard.pull(table, ids, Read::Train, &mut a).expect("pulled");
                        black_box(&a);
                    }
                }),
            ),
            (
                "raw gather, fetched ahead, large pages",
                Box::new(|| each(&rows, &mut |batch| flat.gather(black_box(batch), &mut b))),
            ),
            (
                "raw gather, plain loop, large pages",
                Box::new(|| each(&rows, &mut |batch| flat.gather_plain(black_box(batch), &mut c))),
            ),
            (
                "raw gather, plain loop, small pages",
                Box::new(|| {
                    each(&rows, &mut |batch| small_pages.gather_plain(black_box(batch), &mut d));
                }),
            ),
            (
                "a lock for each key, a vector for each row",
                Box::new(|| {
                    for ids in &ids {
                        locked.gather(black_box(ids), &mut e);
                    }
                }),
            ),
            (
                "engine, with the hop to its thread",
                Box::new(|| {
                    for ids in &ids {
                        engine.pull(same, ids, Read::Train, &mut f).expect("pulled");
                        black_box(&f);
                    }
                }),
            ),
        ],
    );
    println!("  (the last column: speed of the table, in times of the line's)\n");
}

fn fill(shard: &mut Shard, table: TableId, engine: &Engine, same: TableId) {
    let apply = Apply { factor: 1.0, scale: 1.0, counter: 1 };
    let zeros = vec![0.0; BATCH * DIM];
    for start in (0..ROWS as u32).step_by(BATCH) {
        let ids: Vec<u64> = (start..(start + BATCH as u32).min(ROWS as u32)).map(id_of).collect();
        let values = &zeros[..ids.len() * DIM];
        shard.update(table, &ids, values, apply).expect("updated");
        engine.set(Rows { table: same, ids: &ids, values }).expect("set");
    }
}
