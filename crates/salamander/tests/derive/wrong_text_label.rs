//! A label of text without classes.
use salamander::prelude::*;

#[derive(Example)]
struct Person {
    age: f32,
    #[label]
    bought: String,
}

fn main() {}
