//! Text of several columns.
use salamander::prelude::*;

#[derive(Example)]
struct Person {
    #[input(hash = 10, columns = ["city", "street"])]
    address: String,
}

fn main() {}
