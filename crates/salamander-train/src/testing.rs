//! What tests of this crate train: points on two sides, read from a file, and members as threads of the test.

mod members;

use std::path::Path;

use burn::module::{Initializer, Module};
use burn::nn::{Linear, LinearConfig};
use burn::tensor::{Device, FloatDType, Int, Tensor, TensorData};
use salamander_core::experiment::Experiment;
use salamander_core::optimizer::Optimizer;
use salamander_data::Row;

use crate::context::Context;
use crate::example::{self, Batch, DecodeError, Example, ExampleContext};
use crate::trainer::Setup;
use crate::trial::{BuildError, Trial};

pub(crate) use members::{Flip, train_together};

/// Points of both sides, for steps of a few records.
pub(crate) const EIGHT_POINTS: &str =
    "x,y,side\n1,2,0\n2,1,1\n3,1,0\n1,4,1\n2,2,0\n1,1,1\n3,2,0\n2,5,1\n";

/// A point and its side.
pub(crate) struct TestPoint {
    at: [f32; 2],
    side: u8,
}

/// Some of them.
#[derive(Clone)]
pub(crate) struct Points {
    pub(crate) at: Tensor<2>,
    pub(crate) side: Tensor<1, Int>,
}

impl Batch for Points {
    fn records(&self) -> usize {
        self.side.dims()[0]
    }

    fn cast(self, dtype: FloatDType) -> Self {
        Self { at: self.at.cast(dtype), ..self }
    }
}

impl Example for TestPoint {
    type Batch = Points;

    fn decode(row: &Row<'_>, cx: &ExampleContext) -> Result<Self, DecodeError> {
        let at = example::Column::read(row, &["x", "y"])?;
        Ok(Self { at, side: example::label(row, &["side"], cx.labels, 1)? })
    }

    fn collate(
        examples: &[Self],
        _cx: &ExampleContext,
        device: &Device,
    ) -> Result<Points, DecodeError> {
        let at: Vec<f32> = examples.iter().flat_map(|point| point.at).collect();
        let side: Vec<i64> = examples.iter().map(|point| i64::from(point.side)).collect();
        let at = Tensor::from_data(TensorData::new(at, [examples.len(), 2]), device);
        Ok(Points { at, side: Tensor::from_data(side.as_slice(), device) })
    }
}

/// Tells two sides apart; its layer does not fit points when it has other than two inputs.
#[derive(Module, Debug)]
pub(crate) struct LinearNet<const INPUTS: usize> {
    pub(crate) out: Linear,
}

impl<const INPUTS: usize> Trial for LinearNet<INPUTS> {
    const NAME: &'static str = "net";
    type Hparams = ();
    type Example = TestPoint;
    type Output = Tensor<2>;

    fn build(cx: &Context<()>) -> Result<Self, BuildError> {
        // Threads of one process share one generator, so that nothing may be drawn.
        let layer = LinearConfig::new(INPUTS, 2).with_initializer(Initializer::Zeros);
        Ok(Self { out: layer.init(&cx.device) })
    }

    fn forward(&self, batch: &Points) -> Tensor<2> {
        self.out.forward(batch.at.clone())
    }

    fn loss(&self, output: &Tensor<2>, batch: &Points) -> Tensor<1> {
        crate::loss::cross_entropy(output, &batch.side)
    }

    fn optimizer(_: &()) -> impl Into<Optimizer> {
        Optimizer::sgd(0.1)
    }
}

/// A training in this folder, on these points, with more of an experiment.
pub(crate) fn setup(folder: &Path, csv: &str, rest: &str) -> Setup {
    let file = folder.join("points.csv");
    std::fs::write(&file, csv).expect("written");
    let text = format!("data: {{training: {}}}\n{rest}", file.display());
    let experiment = Experiment::parse(&text, &[]).expect("valid");
    let (stop, kept_data) = Default::default();
    Setup { experiment, folder: folder.to_path_buf(), device: Device::flex(), stop, kept_data }
}
