//! A vector whose length nobody knows.
use salamander::prelude::*;

#[derive(Example)]
struct Digit {
    image: Vec<u8>,
    #[label]
    digit: u8,
}

fn main() {}
