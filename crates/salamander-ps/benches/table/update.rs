//! Fused optimizers over random rows.

use std::hint::black_box;

use salamander_core::optimizer::Optimizer;
use salamander_ps::{Apply, PARTITIONS, Shard, TableSpec};

use crate::flat::Flat;
use crate::lookup::{batches, id_of};
use crate::race;

const DIM: usize = 64;
const ROWS: usize = 1_000_000;
const BATCHES: usize = 48;
const ROUNDS: usize = 21;
const APPLY: Apply = Apply { factor: 1.0, scale: 0.001, counter: 1 };

/// Prints the updates' figures.
pub(crate) fn measure() {
    measure_one::<{ 2 * DIM }>("Adagrad", Optimizer::adagrad(0.05).into());
    measure_one::<{ 3 * DIM }>("Adam", Optimizer::adam(0.001).into());
}

/// `WIDTH` floats are a row with its state.
fn measure_one<const WIDTH: usize>(name: &str, optimizer: Optimizer) {
    println!("{name}: dimension {DIM}, f32, {ROWS} rows, random ids, gradients of a batch");
    let mut flat = Flat::<WIDTH>::new(ROWS, true);
    let mut stream = Flat::<WIDTH>::new(ROWS, true);
    let mut shard = Shard::new(1, 1, (0..PARTITIONS as u16).collect(), 0);
    let table = shard.declare(TableSpec { optimizer, ..TableSpec::new("rows", DIM) });
    let rows = batches(BATCHES, ROWS);
    let ids: Vec<Vec<u64>> =
        rows.iter().map(|batch| batch.iter().copied().map(id_of).collect()).collect();
    let batch = rows[0].len();
    let gradients: Vec<f32> = (0..batch * DIM).map(|at| (at as f32).sin()).collect();
    for start in (0..ROWS as u32).step_by(batch) {
        let ids: Vec<u64> = (start..(start + batch as u32).min(ROWS as u32)).map(id_of).collect();
        shard.update(table, &ids, &gradients[..ids.len() * DIM], APPLY).expect("updated");
    }
    let in_order: Vec<Vec<u32>> = (0..BATCHES)
        .map(|at| (0..batch).map(|row| ((at * batch + row) % ROWS) as u32).collect())
        .collect();
    race(
        ROUNDS,
        batch * BATCHES,
        vec![
            (
                "table, one owner, called directly",
                Box::new(|| {
                    for ids in &ids {
                        shard.update(table, ids, &gradients, APPLY).expect("updated");
                    }
                }),
            ),
            (
                "add to the same rows in a flat array",
                Box::new(|| rows.iter().for_each(|batch| flat.add(black_box(batch), &gradients))),
            ),
            (
                "add to as many rows in their order",
                Box::new(|| {
                    in_order.iter().for_each(|batch| stream.add(black_box(batch), &gradients));
                }),
            ),
        ],
    );
    println!("  (the last column: speed of the table, in times of the line's)\n");
}
