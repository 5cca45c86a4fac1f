//! What would it show?
use salamander::prelude::*;

#[derive(Example)]
struct Person {
    #[input(shape = [3, 8, 8], missing = 0.0)]
    image: Image,
}

fn main() {}
