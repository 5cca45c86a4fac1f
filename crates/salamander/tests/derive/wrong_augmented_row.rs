//! Which way is up?
use salamander::prelude::*;

#[derive(Example)]
struct Person {
    #[input(shape = [192], augment = [flip])]
    image: Vec<u8>,
}

fn main() {}
