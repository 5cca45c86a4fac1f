//! Texts of several columns without a way to numbers.
use salamander::prelude::*;

#[derive(Example)]
struct Journey {
    #[input(columns = ["from", "to"])]
    cities: [String; 2],
}

fn main() {}
