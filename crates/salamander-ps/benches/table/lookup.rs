//! Batches of random rows.

use std::hint::black_box;

use salamander_core::seed::Rng;
use salamander_ps::{
    Apply, Engine, EngineOptions, PARTITIONS, Read, Shard, TableId, TableRows, TableSpec,
};

use crate::baseline::{Evicting, Locked};
use crate::flat::FlatRows;
use crate::race;
use crate::record::Record;

const DIM: usize = 64;
const ROWS: usize = 2_000_000;
pub(crate) const BATCH: usize = 4096;
/// Batches of a round, and of all rounds before the first comes again: more rows than any cache holds.
pub(crate) const BATCHES: usize = 480;
const ALL_BATCHES: usize = 3 * BATCHES;
const ROUNDS: usize = 11;

/// The id of a row: far apart, as hashes of features are.
pub(crate) fn id_of(row: u32) -> u64 {
    u64::from(row).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Random rows, and their ids, in batches that are handed out in turn.
pub(crate) struct Batches {
    rows: Vec<Vec<u32>>,
    ids: Vec<Vec<u64>>,
}

impl Batches {
    pub(crate) fn new(count: usize, rows: usize) -> Self {
        let mut rng = Rng::new(5);
        let mut batch = || (0..BATCH).map(|_| rng.below(rows as u64) as u32).collect();
        let rows: Vec<Vec<u32>> = (0..count).map(|_| batch()).collect();
        let ids = rows.iter().map(|batch| batch.iter().copied().map(id_of).collect()).collect();
        Self { rows, ids }
    }

    /// Does something with the next batches of a round; each user begins somewhere else, so that
    /// none finds what another left in a cache.
    pub(crate) fn each(&self, next: &mut usize, mut user: impl FnMut(&[u32], &[u64])) {
        for _ in 0..BATCHES {
            *next = (*next + 1) % self.rows.len();
            user(black_box(&self.rows[*next]), black_box(&self.ids[*next]));
        }
    }
}

/// Prints the look-up's figures.
pub(crate) fn measure(record: &Record) {
    println!("look-up: dimension {DIM}, f32, {ROWS} rows, random ids, batches of {BATCH}");
    let flat = FlatRows::<DIM>::new(ROWS, true);
    let small_pages = FlatRows::<DIM>::new(ROWS, false);
    let mut shard = Shard::new(1, 1, (0..PARTITIONS as u16).collect(), 0);
    let table = shard.declare(TableSpec::new("rows", DIM));
    let engine = Engine::new(EngineOptions::default()).expect("it starts");
    let same = engine.declare(TableSpec::new("rows", DIM)).expect("the table is sound");
    let mut locked = Locked::default();
    fill(&mut shard, table, &engine, same);
    let mut evicting = Evicting::new();
    for row in 0..ROWS as u32 {
        locked.insert(id_of(row), vec![row as f32; DIM]);
        evicting.insert(id_of(row), vec![row as f32; DIM]);
    }
    let batches = Batches::new(ALL_BATCHES, ROWS);
    let [mut a, mut b, mut c, mut d, mut e, mut f, mut g, mut h] =
        [(); 8].map(|()| vec![0.0f32; BATCH * DIM]);
    let [mut i, mut j, mut k, mut l, mut m, mut n, mut o, mut p] =
        [0, 1, 2, 3, 4, 5, 6, 7].map(|user| user * ALL_BATCHES / 8);
    race(
        (record, "look-up"),
        ROUNDS,
        BATCH * BATCHES,
        vec![
            (
                "table, one owner, called directly",
                Box::new(|| {
                    batches.each(&mut i, |_, ids| {
                        shard.pull(table, ids, Read::Train, &mut a).expect("pulled");
                        black_box(&a);
                    });
                }),
            ),
            (
                "raw gather, fetched ahead, large pages",
                Box::new(|| batches.each(&mut j, |rows, _| flat.gather(rows, &mut b))),
            ),
            (
                "raw gather, far ahead, large pages",
                Box::new(|| batches.each(&mut o, |rows, _| flat.gather_far(rows, &mut g))),
            ),
            (
                "raw gather, plain loop, large pages",
                Box::new(|| batches.each(&mut k, |rows, _| flat.gather_plain(rows, &mut c))),
            ),
            (
                "raw gather, plain loop, small pages",
                Box::new(|| batches.each(&mut l, |rows, _| small_pages.gather_plain(rows, &mut d))),
            ),
            (
                "a lock for each key, a vector for each row",
                Box::new(|| batches.each(&mut m, |_, ids| locked.gather(ids, &mut e))),
            ),
            (
                "the same, with links of least recent use",
                Box::new(|| batches.each(&mut p, |_, ids| evicting.gather(ids, &mut h))),
            ),
            (
                "engine, with the hop to its thread",
                Box::new(|| {
                    batches.each(&mut n, |_, ids| {
                        engine.pull(same, ids, Read::Train, &mut f).expect("pulled");
                        black_box(&f);
                    });
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
        engine.set(TableRows { table: same, ids: &ids, values }).expect("set");
    }
}
