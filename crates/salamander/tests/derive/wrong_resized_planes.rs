//! Only a whole picture can be resized.
use salamander::prelude::*;

#[derive(Example)]
struct Person {
    #[input(shape = [3, 8, 8], augment = [resized_crop])]
    image: Vec<u8>,
}

fn main() {}
