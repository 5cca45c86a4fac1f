//! A change that does not exist.
use salamander::prelude::*;

#[derive(Example)]
struct Person {
    #[input(shape = [3, 8, 8], augment = [flip, rotate(9)])]
    image: Vec<u8>,
}

fn main() {}
