//! ResNet-18 and MobileNetV2 on pictures of 64 x 64 pixels, whose steps are those of the bench `train_step`.

use salamander::models::mobilenet::MobileNetV2;
use salamander::models::resnet::{Arch, ResNet};
use salamander::prelude::*;

const CLASSES: usize = 10;

/// A picture as it is in the file.
#[derive(Example)]
pub(crate) struct SmallPhoto {
    #[input(shape = [3, 64, 64], scale = 1.0 / 255.0)]
    image: Vec<u8>,
    #[label]
    label: u8,
}

/// Hyperparameters.
#[derive(Hparams)]
pub(crate) struct Hp {
    arch: String,
}

/// One of the two.
#[derive(Module, Debug)]
pub(crate) struct Photos {
    resnet: Option<ResNet>,
    mobilenet: Option<MobileNetV2>,
}

impl Trial for Photos {
    const NAME: &str = "photos";
    type Hparams = Hp;
    type Example = SmallPhoto;
    type Output = Tensor<2>;

    fn build(cx: &Context<Hp>) -> Result<Self, BuildError> {
        if cx.hp.arch == "mobilenet_v2" {
            let mobilenet = Some(MobileNetV2::new(CLASSES, &cx.device));
            return Ok(Self { resnet: None, mobilenet });
        }
        let resnet = ResNet::new(cx.hp.arch.parse::<Arch>()?, CLASSES, &cx.device);
        Ok(Self { resnet: Some(resnet), mobilenet: None })
    }

    fn forward(&self, batch: &SmallPhotoBatch) -> Tensor<2> {
        let image = batch.image.clone();
        match (&self.resnet, &self.mobilenet) {
            (Some(net), _) => net.forward(image),
            (None, Some(net)) => net.forward(image),
            (None, None) => unreachable!("one of them is built"),
        }
    }

    fn loss(&self, output: &Tensor<2>, batch: &SmallPhotoBatch) -> Tensor<1> {
        cross_entropy(output, &batch.label)
    }

    fn optimizer(_: &Hp) -> impl Into<Optimizer> {
        Optimizer::sgd(0.01).momentum(0.9).weight_decay(1e-4)
    }
}
