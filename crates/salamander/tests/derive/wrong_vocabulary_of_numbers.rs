//! A vocabulary has words.
use salamander::prelude::*;

#[derive(Example)]
struct Person {
    #[input(vocabulary = "ages.txt")]
    age: i64,
}

fn main() {}
