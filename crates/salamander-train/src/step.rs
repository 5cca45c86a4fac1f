//! One optimizer step before the exchange: forward, loss and backward over its micro-batches.
//!
//! ```
//! use salamander::prelude::*;
//! use salamander::train::*;
//! # #[derive(Example)]
//! # struct Point { #[input(columns = ["x", "y"])] at: [f32; 2], #[label] side: u8 }
//! # #[derive(Module, Debug)]
//! # struct Net { out: Linear }
//! # impl Trial for Net {
//! #     const NAME: &str = "net";
//! #     type Hparams = ();
//! #     type Example = Point;
//! #     type Output = Tensor<2>;
//! #     fn build(cx: &Context<()>) -> Result<Self, BuildError> {
//! #         Ok(Self { out: LinearConfig::new(2, 2).init(&cx.device) })
//! #     }
//! #     fn forward(&self, batch: &PointBatch) -> Tensor<2> { self.out.forward(batch.at.clone()) }
//! #     fn loss(&self, output: &Tensor<2>, batch: &PointBatch) -> Tensor<1> {
//! #         cross_entropy(output, &batch.side)
//! #     }
//! #     fn optimizer(_: &()) -> impl Into<Optimizer> { Optimizer::sgd(1.0) }
//! # }
//! # let folder = tempfile::tempdir()?;
//! # let file = folder.path().join("points.csv");
//! # std::fs::write(&file, "x,y,side\n0.9,0.1,0\n0.1,0.8,1\n0.8,0.3,0\n0.2,0.7,1\n")?;
//! # let device = device::select("cpu")?.autodiff();
//! # let points = open_data("points", &[file.display().to_string()], &Data::default())?;
//!
//! let net: Net = build(&Experiment::parse("hyperparameters: {}", &[])?, &device)?;
//! let epoch = Epoch { number: 0, batch: 4, seed: 1 };
//! let batches = Loader::epoch::<Point>(&points, epoch, &device)?.collect::<Result<Vec<_>, _>>()?;
//! let pass = Pass::new("train", Optimizer::sgd(0.1));
//! let sum = compute(&net, &pass, &batches, Arithmetic::plain(1), None)?;
//! assert_eq!(sum.tally.applied, 4);
//! assert!(sum.gradient.is_finite()?);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::cell::RefCell;

use burn::module::{ModuleMapper, Param};
use burn::optim::GradientsParams;
use burn::tensor::{DType, FloatDType, Tensor, TensorData};
use salamander_core::experiment::{Clip, OnNan};
use salamander_core::ledger::Tally;
use salamander_core::metrics::{Metric, Metrics};
use salamander_core::plan::MicroBatch;
use salamander_core::progress::StepCount;
use salamander_core::tree::{Share, TreeSum};

use crate::Error;
use crate::caught::attempt_in_run;
use crate::context::{BatchContext, TENSOR_DRAWS, stream};
use crate::example::Batch;
use crate::gradients::GradientSum;
use crate::loader::Loaded;
use crate::params;
use crate::tables::{RowGradient, Tables};
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
    pub running: Running,
    /// Whether some of it is not finite: the step is left out.
    pub overflow: bool,
}

impl StepSum {
    /// This one plus another one, in this order.
    #[must_use]
    pub fn join(mut self, right: Self) -> Self {
        self.tally.merge(&right.tally);
        self.metrics.merge(&right.metrics);
        Self {
            gradient: self.gradient.join(right.gradient),
            loss: self.loss + right.loss,
            running: self.running.join(right.running),
            overflow: self.overflow | right.overflow,
            ..self
        }
    }

    /// Whether gradients and running values are.
    pub(crate) fn is_finite(&self) -> Result<bool, Error> {
        Ok(self.gradient.is_finite()? && self.running.is_finite())
    }

    /// Multiplies the gradients and holds them to a bound, if there is one. Returns their norm, and what is left to be
    /// multiplied by: without a bound the optimizer does that on its way.
    pub(crate) fn bounded(
        &mut self,
        clip: Option<Clip>,
        divisor: f32,
    ) -> Result<(Option<f64>, f32), Error> {
        if clip.is_none() || self.overflow {
            return Ok((None, divisor));
        }
        self.gradient.scale(divisor);
        Ok((self.gradient.clip(clip)?, 1.0))
    }
}

/// Running values of normalisation layers, as a mean over the step's micro-batches. Each micro-batch starts from
/// the values before the step, so that the mean does not depend on who computes which.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Running {
    /// Records that the sums are over.
    pub records: f64,
    /// Sums of values times records, by path.
    pub sums: Vec<(String, Vec<usize>, Vec<f32>)>,
}

impl Running {
    /// The values after a micro-batch of so many records.
    fn of(values: Vec<(String, TensorData)>, records: f64) -> Self {
        let weighted = |(path, data): (String, TensorData)| {
            let sums = data.iter::<f32>().map(|value| value * records as f32).collect();
            (path, data.shape().to_vec(), sums)
        };
        Self { records, sums: values.into_iter().map(weighted).collect() }
    }

    fn join(mut self, right: Self) -> Self {
        if self.sums.is_empty() {
            return right;
        }
        self.records += right.records;
        for ((_, _, sums), (_, _, values)) in self.sums.iter_mut().zip(&right.sums) {
            sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
        }
        self
    }

    fn is_finite(&self) -> bool {
        self.sums.iter().all(|(_, _, values)| finite(values))
    }

    /// The means.
    pub fn means(self) -> impl Iterator<Item = (String, TensorData)> {
        // Not times one over it in f32: that is off by a share which would move values that a frozen layer keeps,
        // always in one direction.
        let records = self.records.max(1.0);
        self.sums.into_iter().map(move |(path, shape, mut sums)| {
            sums.iter_mut().for_each(|value| *value = (f64::from(*value) / records) as f32);
            (path, TensorData::new(sums, shape))
        })
    }
}

/// The arithmetic of a step.
#[derive(Clone, Copy, Debug)]
pub struct Arithmetic {
    /// The run's seed.
    pub seed: u64,
    /// Compute in this type, keeping the parameters in f32.
    pub precision: Option<FloatDType>,
    /// What the loss is multiplied by before the backward pass; the gradients of the sum are too.
    pub loss_scale: Option<f64>,
    /// What a loss that is not a number, or a gradient that is not finite, does.
    pub on_nan: OnNan,
}

impl Arithmetic {
    /// In f32, with losses that must be numbers.
    pub fn plain(seed: u64) -> Self {
        Self { seed, precision: None, loss_scale: None, on_nan: OnNan::Fail }
    }
}

/// What becomes of the gradients of tables' rows.
#[derive(Clone, Copy, Debug)]
pub struct Staging<'a> {
    /// The model's tables.
    pub tables: &'a Tables,
    /// Where their gradients go.
    pub to: Destination<'a>,
}

/// Where the gradients of rows go.
#[derive(Clone, Copy, Debug)]
pub enum Destination<'a> {
    /// They are staged for the step after so many, and change nothing until it is committed.
    Stage(StepCount),
    /// They are handed back, micro-batch by micro-batch.
    Collect(&'a RefCell<Vec<RowGradient>>),
}

/// Computes one pass over batches that are a whole step, and adds them up in a tree by their places. The model, which
/// must be in training, does not change: what its layers keep moves in a copy and comes back in the sum.
pub fn compute<T: Trial>(
    model: &T,
    pass: &Pass,
    batches: &[Loaded<BatchOf<T>>],
    arithmetic: Arithmetic,
    staging: Option<Staging<'_>>,
) -> Result<StepSum, Error> {
    let leaves: Vec<u32> = (0..batches.len() as u32).collect();
    let sums = compute_share(model, pass, batches, arithmetic, staging, Share::whole(&leaves))?;
    Ok(sums.into_iter().next().unwrap_or_default())
}

/// Computes one pass over a share of a step's micro-batches, the leaves of its tree: the sums of the nodes that the
/// share has as a whole.
#[expect(clippy::too_many_arguments, reason = "all differ in type, and one call uses them")]
pub(crate) fn compute_share<T: Trial>(
    model: &T,
    pass: &Pass,
    batches: &[Loaded<BatchOf<T>>],
    arithmetic: Arithmetic,
    staging: Option<Staging<'_>>,
    share: Share<'_>,
) -> Result<Vec<StepSum>, Error> {
    let leaves = share.leaves[share.own.clone()].to_vec();
    let largest = largest_row(share.leaves.len());
    let mut sums = TreeSum::new(share);
    let keeps = params::list(model).iter().any(|info| !info.trainable);
    let copy = || {
        let model = params::private_copy(model);
        match arithmetic.precision {
            Some(dtype) => model.map(&mut Cast(dtype)),
            None => model,
        }
    };
    let mut model = copy();
    let device = model.devices().into_iter().next().unwrap_or_default();
    let name = if pass.part.is_some() { format!("{}_loss", pass.name) } else { "loss".to_string() };
    for (at, (loaded, leaf)) in batches.iter().zip(leaves).enumerate() {
        if keeps && at > 0 {
            model = copy();
        }
        let without = |tally: Tally| {
            let metrics = Metrics::new().with(name.clone(), Metric::mean(0.0, 0.0));
            StepSum { tally, metrics, ..StepSum::default() }
        };
        let Some(batch) = &loaded.batch else {
            sums.push(leaf, without(loaded.tally.clone()), StepSum::join);
            continue;
        };
        let cx = BatchContext { name: loaded.name, device: device.clone(), seed: arithmetic.seed };
        device.seed(stream(arithmetic.seed, loaded.name, TENSOR_DRAWS));
        staging.inspect(|staging| staging.tables.begin_batch());
        let MicroBatch { epoch, step, .. } = loaded.name;
        let phase = || format!("epoch {epoch}, step {step}");
        let trained = attempt_in_run(&model, &device, phase, || match arithmetic.precision {
            Some(dtype) => model.train_batch(pass, &batch.clone().cast(dtype), &cx),
            None => model.train_batch(pass, batch, &cx),
        });
        // Rows that cannot be had are no fault of the model, whatever it makes of that.
        staging.map_or(Ok(()), |staging| staging.tables.check())?;
        let BatchLoss { loss, metrics } = trained?;
        let total = total::<T>(loss, batch.records())?;
        let value = f64::from(total.clone().inner().into_scalar::<f32>());
        if value.is_nan() {
            if arithmetic.on_nan == OnNan::Fail {
                let what = "the loss is not a number";
                return Err(Error::NotANumber { what, epoch, step });
            }
            sums.push(leaf, without(skipped(&loaded.tally)), StepSum::join);
            continue;
        }
        let mut gradients = match arithmetic.loss_scale {
            Some(scale) => total.mul_scalar(scale).backward(),
            None => total.backward(),
        };
        let rows = staging.map(|staging| staging.tables.gradients(&mut gradients));
        let rows = rows.unwrap_or_default();
        let gradients = GradientsParams::from_grads(gradients, &model);
        let gradient = GradientSum::of(&model, gradients, pass);
        let scaled = arithmetic.loss_scale.is_some();
        // NaN is below nothing.
        let is_addable = |row: &RowGradient| row.values.iter().all(|value| value.abs() <= largest);
        let rows_overflow = !rows.iter().all(is_addable);
        let running = match keeps {
            true => Running::of(params::running(&model), batch.records() as f64),
            false => Running::default(),
        };
        // A loss can be a number where its gradient is none. With a scaled loss that is expected, and the whole step is
        // left out further on.
        if !scaled && (rows_overflow || !gradient.is_finite()? || !running.is_finite()) {
            if arithmetic.on_nan == OnNan::Fail {
                let what = match rows_overflow {
                    true => {
                        "a row's gradient is no number or too large, though the loss is a number,"
                    }
                    false => "a gradient is infinite or not a number, though the loss is one,",
                };
                return Err(Error::NotANumber { what, epoch, step });
            }
            sums.push(leaf, without(skipped(&loaded.tally)), StepSum::join);
            continue;
        }
        let overflow = scaled && rows_overflow;
        match staging {
            Some(Staging { tables, to: Destination::Stage(after) }) => {
                tables.with_store(|store| store.stage(after, loaded.name.k, &rows))?;
            }
            Some(Staging { to: Destination::Collect(all), .. }) => all.borrow_mut().extend(rows),
            None => {}
        }
        let tally = loaded.tally.clone();
        let mut metrics = metrics;
        metrics
            .merge(&Metrics::new().with(name.clone(), Metric::mean(value, tally.applied as f64)));
        let sum = StepSum { gradient, tally, metrics, loss: value, running, overflow };
        sums.push(leaf, sum, StepSum::join);
    }
    let mut sums: Vec<StepSum> =
        sums.finish(StepSum::join).into_iter().map(|(_, sum)| sum).collect();
    if arithmetic.loss_scale.is_some() {
        for sum in &mut sums {
            sum.overflow |= !sum.is_finite()?;
        }
    }
    Ok(sums)
}

/// The largest value in the gradient of a row, of which so many are added up where nobody looks at the sum any more.
fn largest_row(slices: usize) -> f32 {
    if slices > 1 { f32::MAX / (2 * slices) as f32 } else { f32::MAX }
}

/// Whether all of them are.
pub(crate) fn finite(values: &[f32]) -> bool {
    values.iter().all(|value| value.is_finite())
}

/// The same records, left out.
fn skipped(tally: &Tally) -> Tally {
    let skipped = tally.skipped + tally.applied;
    Tally { applied: 0, skipped, ..tally.clone() }
}

/// The sum of the losses of so many records.
fn total<T: Trial>(loss: Tensor<1>, records: usize) -> Result<Tensor<1>, Error> {
    if loss.dims() != [records] {
        return Err(Error::model::<T>(format!(
            "the loss has {} values for {records} records: return one value per record, not a mean",
            loss.dims()[0]
        )));
    }
    let loss = if loss.dtype() == DType::F32 { loss } else { loss.cast(FloatDType::F32) };
    let total = loss.sum();
    match total.is_tracked() {
        true => Ok(total),
        false => Err(Error::model::<T>("the loss does not depend on any parameter")),
    }
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

#[cfg(test)]
mod tests {
    use salamander_core::experiment::Data;
    use salamander_core::order::Shuffle;

    use crate::evaluate::{Over, evaluate};
    use crate::model::{build, entry};
    use crate::testing::{LinearNet, setup};
    use crate::trainer::open_data;

    #[test]
    fn a_label_that_is_no_class_is_an_error_and_no_panic() {
        let folder = tempfile::tempdir().expect("a folder");
        let csv = "x,y,side\n1,2,0\n2,1,1\n3,1,2\n1,4,1\n";
        let rest = "entrypoint: net\nhyperparameters: {global_batch_size: 2}\n\
                    reproducibility: {experiment_seed: 1}\nmax_length: {epochs: 1}\n";
        let mut setup = setup(folder.path(), csv, rest);
        setup.experiment.settings_mut().data.shuffle = Shuffle::None;
        let (experiment, device) = (setup.experiment.clone(), setup.device.clone().autodiff());
        let trained = entry::<LinearNet<2>>().train(setup, None, Vec::new());
        let error = trained.expect_err("no such class").to_string();
        let expected = "model net: epoch 0, step 1: label 2 is not one of 2 classes";
        assert!(error.starts_with(expected), "{error}");

        let net: LinearNet<2> = build(&experiment, &device).expect("built");
        let file = folder.path().join("points.csv").display().to_string();
        let points = open_data("points", &[file], &Data::default()).expect("opened");
        let found = evaluate(&net, &points, Over::batches_of(2), &mut || {});
        let error = found.expect_err("no such class").to_string();
        let expected = "model net: evaluation, batch 1: label 2 is not one of 2 classes";
        assert!(error.starts_with(expected), "{error}");
    }
}
