//! What a table does that only shows with many ids in one partition.

use super::{Gradients, Table, WAITING};
use crate::index::id_of;
use crate::{Apply, PARTITIONS, TableSpec};

fn update(table: &mut Table, ids: &[u64], age: u64) {
    let (values, ages) = (vec![1.0; ids.len()], vec![age; PARTITIONS]);
    let apply = Apply { factor: 1.0, scale: 1.0, counter: age };
    table.update(&Gradients { ids, values: &values, apply }, &ages);
}

#[test]
fn ids_that_wait_are_bounded_and_those_that_come_again_get_rows() {
    let spec = TableSpec { admit_after: 2, ..TableSpec::new("rare", 1) };
    let mut table = Table::new(spec, 0);
    let id = |number: u64| id_of(3, number << 20);
    let in_use = [id(0), id(1)];
    update(&mut table, &in_use, 0);
    for age in 1..40 {
        // Each of them comes once.
        let ids: Vec<u64> = (0..500).map(|number| id(age * 1_000 + number)).collect();
        update(&mut table, &ids, age);
        assert!(table.stats().waiting <= WAITING as u64, "{:?}", table.stats());
    }
    assert_eq!(table.stats().rows, 0);
    update(&mut table, &in_use, 40);
    update(&mut table, &in_use, 41);
    update(&mut table, &in_use, 42);
    assert_eq!(table.stats().rows, 2);
}
