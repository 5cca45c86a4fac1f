//! Two ways to one bucket.
use salamander::prelude::*;

#[derive(Example)]
struct Person {
    #[input(hash = 10, round = 5)]
    age: i64,
}

fn main() {}
