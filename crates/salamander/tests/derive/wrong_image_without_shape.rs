//! Pictures of any size become one size.
use salamander::prelude::*;

#[derive(Example)]
struct Person {
    #[input(scale = 0.1)]
    image: Image,
}

fn main() {}
