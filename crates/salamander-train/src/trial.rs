//! The blanks that a model fills in. Data, distribution, fault tolerance and checkpoints are the
//! framework's.

use burn::module::Module;
use burn::tensor::Tensor;
use salamander_core::experiment::Clip;
use salamander_core::hparams::Hparams;
use salamander_core::metrics::Metrics;
use salamander_core::optimizer::Optimizer;
use salamander_core::schedule::Schedule;

use crate::callback::Callback;
use crate::context::{BatchContext, Context};
use crate::example::Example;

/// The batch of a trial's examples.
pub type BatchOf<T> = <<T as Trial>::Example as Example>::Batch;

/// A model and how it is trained.
///
/// `forward` gives one row per record and `loss` one value per record: sums over records are then
/// exact however the data is split over batches and workers.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a trial, so it cannot be trained",
    label = "write `impl Trial for {Self}`",
    note = "fill in NAME, Hparams, Example, build, forward, loss and optimizer"
)]
pub trait Trial: Module + 'static {
    /// The name that experiment files use.
    const NAME: &'static str;
    /// Its hyperparameters: a struct with `#[derive(Hparams)]`, or `()`.
    type Hparams: Hparams;
    /// Its records: a struct with `#[derive(Example)]`.
    type Example: Example;

    /// Makes the module with fresh parameters.
    fn build(cx: &Context<Self::Hparams>) -> Self;

    /// One row per record: scores, probabilities or values.
    fn forward(&self, batch: &BatchOf<Self>) -> Tensor<2>;

    /// One value per record, not averaged.
    fn loss(&self, output: &Tensor<2>, batch: &BatchOf<Self>) -> Tensor<1>;

    /// How parameters follow their gradients.
    fn optimizer(hp: &Self::Hparams) -> Optimizer;

    /// What is reported besides the loss.
    fn metrics(&self, _output: &Tensor<2>, _batch: &BatchOf<Self>) -> Metrics {
        Metrics::new()
    }

    /// How the learning rate changes; the experiment file may replace it.
    fn schedule(_hp: &Self::Hparams) -> Schedule {
        Schedule::default()
    }

    /// How gradients are bounded; the experiment file may replace it.
    fn clip(_hp: &Self::Hparams) -> Option<Clip> {
        None
    }

    /// Who else is told about the course of training.
    fn callbacks(_hp: &Self::Hparams) -> Vec<Box<dyn Callback>> {
        Vec::new()
    }

    /// What `predict` writes, from `forward`'s output: for example probabilities.
    fn predict(&self, output: Tensor<2>) -> Tensor<2> {
        output
    }

    /// Names of the classes, for reports; numbers when there are none.
    fn class_names() -> Vec<String> {
        Vec::new()
    }

    /// The passes of a step, for models with several optimizers. A pass goes over all the records
    /// of the step, then its optimizer moves its parameters, then the next pass begins.
    fn passes(hp: &Self::Hparams) -> Vec<Pass> {
        vec![Pass::new("train", Self::optimizer(hp))]
    }

    /// The loss of one micro-batch in one pass. Only models with their own passes write this.
    fn train_batch(&self, _pass: &Pass, batch: &BatchOf<Self>, _cx: &BatchContext) -> BatchLoss {
        let output = self.forward(batch);
        let loss = self.loss(&output, batch);
        let metrics = self.metrics(&output.inner(), batch);
        BatchLoss { loss, metrics }
    }
}

/// The loss of a micro-batch, one value per record, and what else was measured on it.
#[derive(Debug)]
pub struct BatchLoss {
    /// One value per record.
    pub loss: Tensor<1>,
    /// Other values.
    pub metrics: Metrics,
}

/// One optimizer and the parameters that it moves.
#[derive(Clone, Debug, PartialEq)]
pub struct Pass {
    /// Its name, in metrics and checkpoints.
    pub name: &'static str,
    /// Its optimizer.
    pub optimizer: Optimizer,
    /// The field of the model whose parameters it moves; all of them when absent.
    pub part: Option<&'static str>,
}

impl Pass {
    /// A pass over all parameters.
    pub fn new(name: &'static str, optimizer: impl Into<Optimizer>) -> Self {
        Self { name, optimizer: optimizer.into(), part: None }
    }

    /// The same for the parameters of one field.
    #[must_use]
    pub fn only(mut self, part: &'static str) -> Self {
        self.part = Some(part);
        self
    }

    /// Whether a parameter belongs to this pass.
    pub fn moves(&self, path: &str) -> bool {
        self.part.is_none_or(|part| {
            path.strip_prefix(part).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        })
    }
}
