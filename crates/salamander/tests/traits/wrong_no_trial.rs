//! A module that is not a trial yet.
use salamander::prelude::*;

#[derive(Module, Debug)]
struct Net {
    layer: Linear,
}

fn main() {
    let _ = models![Net];
}
