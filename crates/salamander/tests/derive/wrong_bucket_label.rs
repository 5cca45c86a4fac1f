//! Labels keep their values.
use salamander::prelude::*;

#[derive(Example)]
struct House {
    rooms: f32,
    #[label(round = 10)]
    price: f32,
}

fn main() {}
