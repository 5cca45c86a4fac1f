//! A stand-in of another type.
use salamander::prelude::*;

#[derive(Example)]
struct Person {
    #[input(hash = 10, missing = 0.0)]
    city: String,
}

fn main() {}
