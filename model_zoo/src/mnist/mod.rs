//! Handwritten digits (LeCun, Cortes and Burges): the example that all networks of this folder read.

pub mod conv16;
pub mod conv32;
pub mod filters;
pub mod mlp;

use salamander::prelude::*;

use crate::classified_image::SmallImage;

/// A digit of 28 x 28 pixels, its values between 0 and 1.
#[derive(Example)]
pub struct Digit {
    #[input(shape = [1, 28, 28], scale = 1.0 / 255.0)]
    image: Vec<u8>,
    #[label]
    label: u8,
}

/// What networks of digits are given.
const IMAGE: SmallImage =
    SmallImage { shape: [1, 28, 28], preprocessing: "image: bytes divided by 255, light on dark" };
