//! Labels keep their values.
use salamander::prelude::*;

#[derive(Example)]
struct House {
    rooms: f32,
    #[label(scale = 0.001)]
    price: f32,
}

fn main() {}
