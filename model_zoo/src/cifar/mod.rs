//! Small colour pictures of ten classes (Krizhevsky's CIFAR-10), and three networks on them.

pub mod cnn;
pub mod mobilenet;
pub mod resnet20;

use salamander::prelude::*;

use crate::classified_image::SmallImage;

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

/// Hyperparameters of the residual networks, with the values of ResNet-20's paper.
#[derive(Hparams)]
pub struct SgdHp {
    #[hparam(default = 0.1, min = 0.0, range = 0.01..=1.0, log)]
    learning_rate: f64,
    #[hparam(default = 0.9, min = 0.0, max = 1.0, range = 0.0..=0.99)]
    momentum: f64,
    #[hparam(default = 0.0001, min = 0.0)]
    weight_decay: f64,
}

impl SgdHp {
    fn optimizer(&self) -> impl Into<Optimizer> + use<> {
        let sgd = Optimizer::sgd(self.learning_rate).momentum(self.momentum);
        sgd.weight_decay(self.weight_decay)
    }
}

/// What networks of these pictures are given.
const IMAGE: SmallImage = SmallImage {
    shape: [3, 32, 32],
    preprocessing: "image: planes of red, green and blue, bytes divided by 255",
};
