//! MobileNetV2 on CIFAR-10's small pictures: torchvision's network with two steps less, so that something is left of
//! them.

use std::path::Path;

use salamander::models::mobilenet::MobileNetV2;
use salamander::prelude::*;

use super::{Picture, PictureBatch, SgdHp};

/// The network.
#[derive(Module, Debug)]
pub struct CifarMobileNet {
    net: MobileNetV2,
}

impl Trial for CifarMobileNet {
    const NAME: &str = "cifar_mobilenet_v2";
    type Hparams = SgdHp;
    type Example = Picture;
    type Output = Tensor<2>;

    fn build(cx: &Context<SgdHp>) -> Result<Self, BuildError> {
        Ok(Self { net: MobileNetV2::for_small_pictures(10, &cx.device) })
    }

    fn forward(&self, batch: &PictureBatch) -> Tensor<2> {
        // Around zero.
        self.net.forward(batch.image.clone() * 4.0 - 2.0)
    }

    fn loss(&self, output: &Tensor<2>, batch: &PictureBatch) -> Tensor<1> {
        cross_entropy(output, &batch.label)
    }

    fn optimizer(hp: &SgdHp) -> impl Into<Optimizer> {
        hp.optimizer()
    }

    fn metrics(&self, output: &Tensor<2>, batch: &PictureBatch) -> Metrics {
        accuracy(output, &batch.label)
    }

    fn predict(&self, output: Tensor<2>) -> Tensor<2> {
        softmax(output, 1)
    }

    const EXPORTS: &'static [&'static str] = &["onnx"];

    fn export(&self, _format: &str, _cx: &Context<SgdHp>, folder: &Path) -> Result<(), BuildError> {
        super::IMAGE.export_onnx(Self::NAME, folder, |graph, image| {
            let x = graph.normalised("image", image, &[0.5], &[0.25]);
            self.net.lay_out(graph, &x)
        })
    }
}
