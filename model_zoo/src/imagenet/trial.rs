//! Determined's tutorial for porting PyTorch's ImageNet script: the same hyperparameters, the same experiment file.

use std::path::{Path, PathBuf};

use salamander::models::mobilenet::MobileNetV2;
use salamander::models::onnx::{self, Axis, Element, Graph};
use salamander::models::resnet::{Arch, ResNet, imagenet_normalised};
use salamander::models::{Head, WeightsPath};
use salamander::prelude::*;

use super::{Photo, PhotoBatch};

/// The classes of ImageNet.
const IMAGENET: usize = 1000;

/// Hyperparameters, as the tutorial's file has them.
#[derive(Hparams)]
pub struct Hp {
    /// `resnet18`, `resnet34`, `resnet50` or `mobilenet_v2`.
    #[hparam(default = "resnet18")]
    arch: String,
    /// `true` for torchvision's weights, which are fetched if they are not there; or a file.
    #[hparam(default = WeightsPath::No)]
    pretrained: WeightsPath,
    /// The folder with `train` and `val`, for experiments that say nothing under `data`.
    #[hparam(default = None)]
    data: Option<PathBuf>,
    #[hparam(default = 0.1, min = 0.0)]
    lr: f64,
    #[hparam(default = 0.9, min = 0.0, max = 1.0)]
    momentum: f64,
    #[hparam(default = 1e-4, min = 0.0)]
    weight_decay: f64,
    /// Classes; with others than ImageNet's 1000 the last layer begins fresh.
    #[hparam(default = IMAGENET)]
    classes: usize,
    /// Epochs between two drops of the rate to a tenth.
    #[hparam(default = 2, min = 1)]
    lr_step: u64,
    /// Parts that stay as they are: the first convolution, then stages. ResNets only.
    #[hparam(default = 0)]
    frozen_stages: usize,
    /// In the tutorial's file, whose model does not use it either.
    #[hparam(default = 128)]
    dense1: usize,
    /// Of the tutorial's script; `data.threads` is what counts here.
    #[hparam(default = 4)]
    workers: usize,
    /// Of the tutorial's script; runs resume by themselves here.
    #[hparam(default = 0, name = "start-epoch")]
    start_epoch: usize,
}

/// One of the networks.
#[derive(Module, Debug)]
pub struct ImageNetTrial {
    resnet: Option<ResNet>,
    mobilenet: Option<MobileNetV2>,
}

impl Trial for ImageNetTrial {
    const NAME: &str = "imagenet";
    type Hparams = Hp;
    type Example = Photo;
    type Output = Tensor<2>;

    fn data(hp: &Hp) -> Option<DataPaths> {
        let folder = hp.data.as_ref()?;
        let validation = folder.join("val");
        let validation = if validation.is_dir() { vec![validation] } else { Vec::new() };
        Some(DataPaths { training: vec![folder.join("train")], validation })
    }

    fn build(cx: &Context<Hp>) -> Result<Self, BuildError> {
        let Hp { arch, classes, frozen_stages, .. } = &cx.hp;
        if arch == "mobilenet_v2" {
            if *frozen_stages > 0 {
                return Err("frozen_stages: only ResNets have them".into());
            }
            let mobilenet = Some(MobileNetV2::new(*classes, &cx.device));
            return Ok(Self { resnet: None, mobilenet });
        }
        let arch = arch.parse::<Arch>().map_err(|error| format!("{error}, and mobilenet_v2"))?;
        let resnet = ResNet::new(arch, *classes, &cx.device).freeze(*frozen_stages);
        Ok(Self { resnet: Some(resnet), mobilenet: None })
    }

    fn pretrained(self, cx: &Context<Hp>) -> Result<Self, BuildError> {
        let Some(file) = cx.hp.pretrained.find(&cx.hp.arch)? else { return Ok(self) };
        let head = if cx.hp.classes == IMAGENET { Head::IfThere } else { Head::Fresh };
        let resnet = self.resnet.map(|net| net.load(&file, head)).transpose()?;
        let mobilenet = self.mobilenet.map(|net| net.load(&file, head)).transpose()?;
        Ok(Self { resnet: resnet.map(|(net, _)| net), mobilenet: mobilenet.map(|(net, _)| net) })
    }

    fn forward(&self, batch: &PhotoBatch) -> Tensor<2> {
        let pictures = imagenet_normalised(batch.image.clone());
        match (&self.resnet, &self.mobilenet) {
            (Some(net), _) => net.forward(pictures),
            (None, Some(net)) => net.forward(pictures),
            (None, None) => unreachable!("one of them is built"),
        }
    }

    fn loss(&self, output: &Tensor<2>, batch: &PhotoBatch) -> Tensor<1> {
        cross_entropy(output, &batch.label)
    }

    fn optimizer(hp: &Hp) -> impl Into<Optimizer> {
        Optimizer::sgd(hp.lr).momentum(hp.momentum).weight_decay(hp.weight_decay)
    }

    fn schedule(hp: &Hp) -> Schedule {
        let curve = Curve::Step { every: hp.lr_step, gamma: 0.1 };
        Schedule { by: Unit::Epoch, curve, ..Schedule::default() }
    }

    fn metrics(&self, output: &Tensor<2>, batch: &PhotoBatch) -> Metrics {
        top_k(1, output, &batch.label).and(top_k(5, output, &batch.label))
    }

    fn predict(&self, output: Tensor<2>) -> Tensor<2> {
        softmax(output, 1)
    }

    const EXPORTS: &'static [&'static str] = &["torchvision", "onnx"];

    fn export(&self, format: &str, cx: &Context<Hp>, folder: &Path) -> Result<(), BuildError> {
        if format == "onnx" {
            return self.export_onnx(cx, folder);
        }
        let file = folder.join(format!("{}.safetensors", cx.hp.arch));
        match (&self.resnet, &self.mobilenet) {
            (Some(net), _) => Ok(net.save(&file)?),
            (None, Some(net)) => Ok(net.save(&file)?),
            (None, None) => unreachable!("one of them is built"),
        }
    }
}

impl ImageNetTrial {
    fn export_onnx(&self, cx: &Context<Hp>, folder: &Path) -> Result<(), BuildError> {
        let mut graph = Graph::new(&cx.hp.arch);
        let axes = [Axis::Any("batch"), Axis::Size(3), Axis::Any("height"), Axis::Any("width")];
        let image = graph.input("image", Element::F32, &axes);
        let pictures = graph.imagenet_normalised(&image);
        let logits = match (&self.resnet, &self.mobilenet) {
            (Some(net), _) => net.lay_out(&mut graph, &pictures)?,
            (None, Some(net)) => net.lay_out(&mut graph, &pictures)?,
            (None, None) => unreachable!("one of them is built"),
        };
        graph.classes(&logits, cx.hp.classes, &[]);
        let said = "image: resized so that the shorter side has 256 pixels, the middle 224 x 224 of it, three planes \
                    of red, green and blue, bytes divided by 255; means and deviations are in the graph";
        graph.say("preprocessing", said);
        Ok(graph.write(&folder.join(onnx::FILE))?)
    }
}
