//! Pictures of any size in a folder per class, as ImageNet is unpacked, and the networks that people have for them.

pub mod trial;

use salamander::prelude::*;

/// A picture and the number of its class. In training a random part of it is resized and flipped every second time;
/// else it is resized and its middle is taken.
#[derive(Example)]
pub struct Photo {
    #[input(shape = [3, 224, 224], scale = 1.0 / 255.0, augment = [resized_crop, flip])]
    image: Image,
    #[label]
    label: u16,
}
