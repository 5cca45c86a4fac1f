//! Training must not change what is to be learnt.
use salamander::prelude::*;

#[derive(Example)]
struct Person {
    #[label(shape = [1, 8, 8], augment = [flip])]
    mask: Vec<u8>,
}

fn main() {}
