//! One optimizer step before the exchange: forward, loss and backward over its micro-batches.

use burn::module::{ModuleMapper, Param};
use burn::optim::GradientsParams;
use burn::tensor::{DType, FloatDType, Tensor, TensorData};
use salamander_core::ledger::Tally;
use salamander_core::metrics::{Metric, Metrics};

use crate::Error;
use crate::context::{BatchContext, TENSOR_DRAWS, stream};
use crate::example::Batch;
use crate::gradients::GradientSum;
use crate::loader::Loaded;
use crate::params;
use crate::trial::{BatchLoss, BatchOf, Pass, Trial};

/// What one pass over a step's micro-batches gives; sums of these over workers are exact.
#[derive(Debug, Default)]
pub struct StepSum {
    /// Sum of the gradients of all records.
    pub gradient: GradientSum,
    /// Which records they were.
    pub tally: Tally,
    /// The loss and the model's metrics over them.
    pub metrics: Metrics,
    /// Sum of the losses.
    pub loss: f64,
    /// Running values of normalisation layers after it: tentative until the step is committed.
    pub running: Vec<(String, TensorData)>,
}

/// The arithmetic of a step.
#[derive(Clone, Copy, Debug)]
pub struct Arithmetic {
    /// The run's seed.
    pub seed: u64,
    /// Compute in this type, keeping the parameters in f32.
    pub precision: Option<FloatDType>,
}

/// Computes one pass. The model, which must be in training, does not change: what its layers keep
/// moves in a copy and comes back in the sum.
pub fn compute<T: Trial>(
    model: &T,
    pass: &Pass,
    batches: &[Loaded<BatchOf<T>>],
    arithmetic: Arithmetic,
) -> Result<StepSum, Error> {
    let mut sum = StepSum::default();
    let mut model = params::private_copy(model);
    if let Some(dtype) = arithmetic.precision {
        model = model.map(&mut Cast(dtype));
    }
    let device = model.devices().into_iter().next().unwrap_or_default();
    for loaded in batches {
        sum.tally.merge(&loaded.tally);
        let Some(batch) = &loaded.batch else { continue };
        let cx = BatchContext { name: loaded.name, device: device.clone(), seed: arithmetic.seed };
        device.seed(stream(arithmetic.seed, loaded.name, TENSOR_DRAWS));
        let BatchLoss { loss, metrics } = match arithmetic.precision {
            Some(dtype) => model.train_batch(pass, &batch.clone().cast(dtype), &cx),
            None => model.train_batch(pass, batch, &cx),
        };
        let value = add(&mut sum.gradient, &model, pass, loss, batch.records())?;
        if value.is_nan() {
            return Err(Error::NotANumber { epoch: loaded.name.epoch, step: loaded.name.step });
        }
        sum.loss += value;
        sum.metrics.merge(&metrics);
    }
    let name = if pass.part.is_some() { format!("{}_loss", pass.name) } else { "loss".to_string() };
    let loss = Metric::mean(sum.loss, sum.tally.applied as f64);
    sum.metrics.merge(&Metrics::new().with(name, loss));
    sum.running = params::running(&model);
    if arithmetic.precision.is_some() {
        sum.running.iter_mut().for_each(|(_, data)| *data = data.clone().convert::<f32>());
    }
    Ok(sum)
}

fn add<T: Trial>(
    gradient: &mut GradientSum,
    model: &T,
    pass: &Pass,
    loss: Tensor<1>,
    records: usize,
) -> Result<f64, Error> {
    let wrong = |reason: String| Error::Model { model: T::NAME, reason };
    if loss.dims() != [records] {
        return Err(wrong(format!(
            "the loss has {} values for {records} records: return one value per record, not a mean",
            loss.dims()[0]
        )));
    }
    let loss = if loss.dtype() == DType::F32 { loss } else { loss.cast(FloatDType::F32) };
    let total = loss.sum();
    if !total.is_tracked() {
        return Err(wrong("the loss does not depend on any parameter".to_string()));
    }
    let gradients = GradientsParams::from_grads(total.backward(), model);
    gradient.add(model, gradients, pass);
    Ok(f64::from(total.inner().into_scalar::<f32>()))
}

/// A copy of the model in another type, with the same parameter ids.
struct Cast(FloatDType);

impl ModuleMapper for Cast {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let dtype = self.0;
        param.map(|old| {
            let trainable = old.is_require_grad();
            Tensor::from_inner(old.inner().cast(dtype)).set_require_grad(trainable)
        })
    }
}
