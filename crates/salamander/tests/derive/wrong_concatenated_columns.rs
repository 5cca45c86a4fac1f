//! Every column has its own number of ids.
use salamander::prelude::*;

#[derive(Example)]
struct Person {
    #[input(columns = ["day", "hour"], concatenate = [7])]
    ids: [i64; 2],
}

fn main() {}
