//! Models to run, to read and to start from: one file each, with an experiment file beside its data.
//!
//! # Layout
//! - [`mnist`]: handwritten digits, four networks (`mnist/*.yaml`)
//! - [`ring_gan`]: two networks against each other, with an optimizer each (`gan/ring_gan.yaml`)
//! - [`resilient`]: dropout, BatchNorm and momentum in one small model, for tests of resume

pub mod mnist;
pub mod resilient;
pub mod ring_gan;

use salamander::Models;

/// All models of the zoo.
pub fn models() -> Models {
    salamander::models![
        mnist::conv16::Conv16,
        mnist::conv32::Conv32,
        mnist::filters::Filters,
        mnist::mlp::Mlp,
        ring_gan::RingGan,
        resilient::Resilient,
    ]
}
