//! The same class twice.
use salamander::prelude::*;

#[derive(Example)]
struct Person {
    age: f32,
    #[label(classes = ["no", "yes", "no"])]
    bought: String,
}

fn main() {}
