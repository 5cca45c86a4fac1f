//! The blanks that a model fills in. Data, distribution, fault tolerance and checkpoints are the
//! framework's.
//!
//! A model that classifies gives a `Tensor<2>`, one row per record. [`Trial::Output`] may have any other rank: here a
//! model that names the class of every word gives `[records, words, classes]`.
//!
//! ```
//! use salamander::prelude::*;
//!
//! #[derive(Hparams)]
//! struct Hp {
//!     #[hparam(default = 0.01)]
//!     learning_rate: f64,
//!     #[hparam(default = 12)]
//!     width: usize,
//!     #[hparam(default = 3)]
//!     heads: usize,
//! }
//!
//! /// Six words by their numbers, each with a class.
//! #[derive(Example)]
//! struct Sentence {
//!     words: [i64; 6],
//!     #[label]
//!     classes: [i64; 6],
//! }
//!
//! #[derive(Module, Debug)]
//! struct Tagger {
//!     words: Table,
//!     attention: MultiHeadAttention,
//!     out: Linear,
//! }
//!
//! impl Trial for Tagger {
//!     const NAME: &str = "tagger";
//!     type Hparams = Hp;
//!     type Example = Sentence;
//!     type Output = Tensor<3>;
//!
//!     fn build(cx: &Context<Hp>) -> Result<Self, BuildError> {
//!         let Hp { width, heads, .. } = cx.hp;
//!         if width % heads != 0 {
//!             let reason = format!("heads: {heads} does not divide the width of {width}");
//!             return Err(InvalidHparams::new(reason).into());
//!         }
//!         Ok(Self {
//!             words: cx.table("words", width).build(),
//!             attention: MultiHeadAttentionConfig::new(width, heads).init(&cx.device),
//!             out: LinearConfig::new(width, 4).init(&cx.device),
//!         })
//!     }
//!
//!     fn forward(&self, batch: &SentenceBatch) -> Tensor<3> {
//!         let rows = MhaInput::self_attn(self.words.lookup(&batch.words));
//!         self.out.forward(self.attention.forward(rows).context)
//!     }
//!
//!     fn loss(&self, output: &Tensor<3>, batch: &SentenceBatch) -> Tensor<1> {
//!         token_cross_entropy(output, &batch.classes)
//!     }
//!
//!     fn optimizer(hp: &Hp) -> impl Into<Optimizer> {
//!         Optimizer::adam(hp.learning_rate)
//!     }
//!
//!     fn metrics(&self, output: &Tensor<3>, batch: &SentenceBatch) -> Metrics {
//!         token_accuracy(output, &batch.classes)
//!     }
//!
//!     /// Writes the class of each word, not the scores of all classes.
//!     fn predict(&self, output: Tensor<3>) -> Tensor<2> {
//!         output.argmax(2).float().flatten(1, 2)
//!     }
//! }
//!
//! assert!(models![Tagger].find(Some("tagger")).is_ok());
//! ```

use std::path::{Path, PathBuf};

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
use crate::groups::{self, ParamGroup};

pub use crate::output::Output;

/// Why a model cannot be built: any error, or a text made into one, `"heads must divide width".into()`.
pub type BuildError = Box<dyn std::error::Error + Send + Sync>;

/// The batch of a trial's examples.
pub type BatchOf<T> = <<T as Trial>::Example as Example>::Batch;

/// A model and how it is trained.
///
/// `loss` gives one value per record: sums over records are then exact however the data is split over batches and
/// workers. See the [module](self) for an example.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a trial, so it cannot be trained",
    label = "write `impl Trial for {Self}`",
    note = "fill in NAME, Hparams, Example, Output, build, forward, loss and optimizer"
)]
pub trait Trial: Module + 'static {
    /// The name that experiment files use.
    const NAME: &'static str;
    /// Its hyperparameters: a struct with `#[derive(Hparams)]`, or `()`.
    type Hparams: Hparams;
    /// Its records: a struct with `#[derive(Example)]`.
    type Example: Example;
    /// What `forward` gives: `Tensor<2>` with one row per record, a tensor of another rank whose first dimension is
    /// the record, or a type with an [`Output`] of its own.
    type Output: Output;

    /// Makes the module with fresh parameters. An error ends the run before it begins, with the model's name and the
    /// reason. [`InvalidHparams`](salamander_core::hparams::InvalidHparams) says that the hyperparameters do not fit
    /// together: a search replaces such a trial and does not count it.
    fn build(cx: &Context<Self::Hparams>) -> Result<Self, BuildError>;

    /// Scores, probabilities or values of each record.
    fn forward(&self, batch: &BatchOf<Self>) -> Self::Output;

    /// One value per record, not averaged over them.
    fn loss(&self, output: &Self::Output, batch: &BatchOf<Self>) -> Tensor<1>;

    /// How parameters follow their gradients: `Optimizer::adam(hp.learning_rate)`.
    fn optimizer(hp: &Self::Hparams) -> impl Into<Optimizer>;

    /// What is reported besides the loss.
    fn metrics(&self, _output: &Self::Output, _batch: &BatchOf<Self>) -> Metrics {
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

    /// What `salamander predict` writes, one row per record, from `forward`'s output: for example probabilities.
    fn predict(&self, output: Self::Output) -> Tensor<2> {
        output.rows()
    }

    /// Names of the classes, for reports; those of the example's label, or numbers, when there are none.
    fn class_names() -> Vec<String> {
        Vec::new()
    }

    /// Parameters that the optimizer treats in another way: without weight decay, or with a lower rate.
    fn groups(_hp: &Self::Hparams) -> Vec<ParamGroup> {
        Vec::new()
    }

    /// The folder in which the files of the run (its assets) are looked for first: one that a hyperparameter names,
    /// such as a model of Hugging Face. Paths among hyperparameters are relative to the experiment file.
    fn folder(_hp: &Self::Hparams) -> Option<PathBuf> {
        None
    }

    /// The most tokens of a text, in the place of what `max_length` says in the example, which must have
    /// [`MAX_TOKENS`](crate::example::MAX_TOKENS) among its optional files: the number is part of the run like those.
    fn max_tokens(_hp: &Self::Hparams) -> Option<usize> {
        None
    }

    /// Data that hyperparameters name, for experiments that say nothing under `data`.
    fn data(_hp: &Self::Hparams) -> Option<DataPaths> {
        None
    }

    /// Gives a model that was just built the weights that its training begins with. Called when a run begins, never for
    /// a model that is used.
    fn pretrained(self, _cx: &Context<Self::Hparams>) -> Result<Self, BuildError> {
        Ok(self)
    }

    /// The hyperparameters with which a folder of another program, such as a model of Hugging Face, can be used as it
    /// is: `salamander serve FOLDER`. Its weights come by [`pretrained`](Self::pretrained). Nothing where the folder is
    /// not one of this model's.
    fn adopts(_folder: &Path) -> Option<serde_json::Value> {
        None
    }

    /// Layouts of other programs that the model can be exported in: `salamander export --format NAME`.
    const EXPORTS: &'static [&'static str] = &[];

    /// Writes the trained model into a folder in one of these layouts.
    fn export(
        &self,
        format: &str,
        _cx: &Context<Self::Hparams>,
        _folder: &Path,
    ) -> Result<(), BuildError> {
        Err(format!("it has no export as {format}").into())
    }

    /// The passes of a step, for models with several optimizers. A pass goes over all the records
    /// of the step, then its optimizer moves its parameters, then the next pass begins.
    fn passes(hp: &Self::Hparams) -> Vec<Pass> {
        let pass = Pass::new("train", Self::optimizer(hp));
        vec![Self::groups(hp).into_iter().fold(pass, Pass::group)]
    }

    /// The loss of one micro-batch in one pass. Only models with their own passes write this.
    fn train_batch(&self, _pass: &Pass, batch: &BatchOf<Self>, _cx: &BatchContext) -> BatchLoss {
        let output = self.forward(batch);
        let loss = self.loss(&output, batch);
        let metrics = self.metrics(&output.without_autodiff(), batch);
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
    /// Parameters for which the optimizer has other numbers.
    pub groups: Vec<ParamGroup>,
}

/// Files to train and to validate on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataPaths {
    /// To train on.
    pub training: Vec<PathBuf>,
    /// To validate on.
    pub validation: Vec<PathBuf>,
}

impl Pass {
    /// A pass over all parameters.
    pub fn new(name: &'static str, optimizer: impl Into<Optimizer>) -> Self {
        Self { name, optimizer: optimizer.into(), part: None, groups: Vec::new() }
    }

    /// The same for the parameters of one field.
    #[must_use]
    pub fn only(mut self, part: &'static str) -> Self {
        self.part = Some(part);
        self
    }

    /// The same with other numbers for some of the parameters.
    #[must_use]
    pub fn group(mut self, group: ParamGroup) -> Self {
        self.groups.push(group);
        self
    }

    /// The optimizer of one parameter, and what its learning rate is multiplied by.
    pub fn optimizer_of(&self, path: &str) -> (Optimizer, f64) {
        groups::optimizer_of(self.optimizer, &self.groups, path)
    }

    /// Whether a parameter belongs to this pass.
    pub fn moves(&self, path: &str) -> bool {
        self.part.is_none_or(|part| {
            path.strip_prefix(part).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        })
    }
}
