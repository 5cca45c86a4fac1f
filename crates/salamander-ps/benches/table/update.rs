//! Fused optimizers over random rows.

use std::hint::black_box;

use salamander_core::optimizer::Optimizer;
use salamander_ps::{Apply, PARTITIONS, Shard, TableSpec};

use crate::flat::FlatRows;
use crate::lookup::{BATCH, BATCHES, Batches, id_of};
use crate::race;
use crate::record::Record;

const DIM: usize = 64;
const ROWS: usize = 1_000_000;
const ROUNDS: usize = 21;
const APPLY: Apply = Apply { factor: 1.0, scale: 0.001, counter: 1 };

/// Prints the updates' figures.
pub(crate) fn measure(record: &Record) {
    measure_one::<{ 2 * DIM }>("Adagrad", Optimizer::adagrad(0.05).into(), record);
    measure_one::<{ 3 * DIM }>("Adam", Optimizer::adam(0.001).into(), record);
}

/// `WIDTH` floats are a row with its state.
fn measure_one<const WIDTH: usize>(name: &str, optimizer: Optimizer, record: &Record) {
    println!("{name}: dimension {DIM}, f32, {ROWS} rows, random ids, gradients of a batch");
    let mut flat = FlatRows::<WIDTH>::new(ROWS, true);
    let mut stream = FlatRows::<WIDTH>::new(ROWS, true);
    let mut shard = Shard::new(1, 1, (0..PARTITIONS as u16).collect(), 0);
    let table = shard.declare(TableSpec { optimizer, ..TableSpec::new("rows", DIM) });
    let batches = Batches::new(10 * BATCHES, ROWS);
    let gradients: Vec<f32> = (0..BATCH * DIM).map(|at| (at as f32).sin()).collect();
    for start in (0..ROWS as u32).step_by(BATCH) {
        let ids: Vec<u64> = (start..(start + BATCH as u32).min(ROWS as u32)).map(id_of).collect();
        shard.update(table, &ids, &gradients[..ids.len() * DIM], APPLY).expect("updated");
    }
    let mut in_order = (0..ROWS as u32).cycle();
    let [mut i, mut j] = [0, 5 * BATCHES];
    race(
        (record, name),
        ROUNDS,
        BATCH * BATCHES,
        vec![
            (
                "table, one owner, called directly",
                Box::new(|| {
                    batches.each(&mut i, |_, ids| {
                        shard.update(table, ids, &gradients, APPLY).expect("updated");
                    });
                }),
            ),
            (
                "add to the same rows in a flat array",
                Box::new(|| batches.each(&mut j, |rows, _| flat.add(rows, &gradients))),
            ),
            (
                "add to as many rows in their order",
                Box::new(|| {
                    for _ in 0..BATCHES {
                        let rows: Vec<u32> = in_order.by_ref().take(BATCH).collect();
                        stream.add(black_box(&rows), &gradients);
                    }
                }),
            ),
        ],
    );
    println!("  (the last column: speed of the table, in times of the line's)\n");
}
