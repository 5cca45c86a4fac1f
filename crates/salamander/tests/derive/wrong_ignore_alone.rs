//! Ignored among which others?
use salamander::prelude::*;

#[derive(Example)]
struct Person {
    #[input(ignore = -1)]
    tag: i64,
}

fn main() {}
