//! Small colour pictures of ten classes (Krizhevsky's CIFAR-10), and a residual network on them.

pub mod resnet20;

use salamander::prelude::*;

/// A picture of 32 x 32 pixels in three planes, its values between 0 and 1.
///
/// In training it is moved by up to four pixels, as He et al. do (section 4.2). They flip every second one too: add
/// `flip` for CIFAR-10 itself, but not for generated pictures, whose classes are directions.
#[derive(Example)]
pub struct Picture {
    #[input(shape = [3, 32, 32], scale = 1.0 / 255.0, augment = [crop(4)])]
    image: Vec<u8>,
    #[label]
    label: u8,
}
