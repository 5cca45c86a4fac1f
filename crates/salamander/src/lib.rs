//! Elastic distributed deep learning in pure Rust, on [Burn](https://burn.dev).
//!
//! A model fills in a few blanks ([`Trial`]); [`main`] gives its program every subcommand.
//!
//! ```no_run
//! use salamander::prelude::*;
//!
//! #[derive(Hparams)]
//! pub struct Hp {
//!     #[hparam(default = 0.1)]
//!     learning_rate: f64,
//! }
//!
//! #[derive(Example)]
//! pub struct Flower {
//!     #[input(columns = ["sepal_length", "sepal_width", "petal_length", "petal_width"])]
//!     sizes: [f32; 4],
//!     #[label]
//!     species: u8,
//! }
//!
//! #[derive(Module, Debug)]
//! pub struct Iris {
//!     layer: Linear,
//! }
//!
//! impl Trial for Iris {
//!     const NAME: &str = "iris";
//!     type Hparams = Hp;
//!     type Example = Flower;
//!     type Output = Tensor<2>;
//!
//!     fn build(cx: &Context<Hp>) -> Result<Self, BuildError> {
//!         Ok(Self { layer: LinearConfig::new(4, 3).init(&cx.device) })
//!     }
//!
//!     fn forward(&self, batch: &FlowerBatch) -> Tensor<2> {
//!         self.layer.forward(batch.sizes.clone())
//!     }
//!
//!     fn loss(&self, output: &Tensor<2>, batch: &FlowerBatch) -> Tensor<1> {
//!         cross_entropy(output, &batch.species)
//!     }
//!
//!     fn optimizer(hp: &Hp) -> impl Into<Optimizer> {
//!         Optimizer::sgd(hp.learning_rate).momentum(0.9)
//!     }
//!
//!     fn metrics(&self, output: &Tensor<2>, batch: &FlowerBatch) -> Metrics {
//!         accuracy(output, &batch.species)
//!     }
//! }
//!
//! fn main() -> std::process::ExitCode {
//!     salamander::main(models![Iris])
//! }
//! ```
//!
//! Without the default feature `cli` there is no command line, and none of what a terminal needs; [`run`] starts,
//! follows and steers the same runs from code:
//!
//! ```
//! # use salamander::prelude::*;
//! # #[derive(Hparams)]
//! # pub struct Hp { #[hparam(default = 0.1)] learning_rate: f64 }
//! # #[derive(Example)]
//! # pub struct Point { #[input(columns = ["x"])] x: [f32; 1], #[label] y: u8 }
//! # #[derive(Module, Debug)]
//! # pub struct Line { layer: Linear }
//! # impl Trial for Line {
//! #     const NAME: &str = "line";
//! #     type Hparams = Hp;
//! #     type Example = Point;
//! #     type Output = Tensor<2>;
//! #     fn build(cx: &Context<Hp>) -> Result<Self, BuildError> {
//! #         Ok(Self { layer: LinearConfig::new(1, 2).init(&cx.device) })
//! #     }
//! #     fn forward(&self, batch: &PointBatch) -> Tensor<2> { self.layer.forward(batch.x.clone()) }
//! #     fn loss(&self, output: &Tensor<2>, batch: &PointBatch) -> Tensor<1> {
//! #         cross_entropy(output, &batch.y)
//! #     }
//! #     fn optimizer(hp: &Hp) -> impl Into<Optimizer> { Optimizer::sgd(hp.learning_rate) }
//! # }
//! use salamander::run::{Overrides, Program, Which};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let (file, data) = (folder.path().join("line.yaml"), folder.path().join("points.csv"));
//! std::fs::write(&data, "x,y\n-1.0,0\n-0.5,0\n0.5,1\n1.0,1\n")?;
//! std::fs::write(&file, "data: {training: points.csv}\nhyperparameters: {global_batch_size: 2}\n")?;
//! // First in `main`: the processes of a distributed run are this program again.
//! let program = Program::enter(salamander::models![Line]);
//! let run = program.experiment(&file, &Overrides::default(), folder.path())?.start()?;
//! let finished = run.wait()?;
//! assert_eq!(finished.outcome.progress.records, 4);
//!
//! let model = program.load(finished.run.folder(), &Which::Latest, "cpu")?;
//! let predicted = model.predict(&[data.display().to_string()], &mut |_batch| Ok(()))?;
//! assert_eq!(predicted.records, 4);
//! # Ok(())
//! # }
//! ```
//!
//! # Features
//! | feature | what it brings |
//! | --- | --- |
//! | `cli` (default) | [`main`]: the command line, with what a terminal needs |
//! | `formats` (default) | Parquet, SQLite and pictures as data |
//! | `hub` (with `cli`) | `salamander::hub`: hubs, and the client of their API |
//! | `azure`, `gcs` | data and runs in `az://` and `gs://`; `s3://` is always there |
//! | `brotli` | Parquet files that are compressed by Brotli |
//! | `models` | texts as inputs by tokenizers, and `salamander::models`: BERT, ResNet, MobileNet, GPT |
//! | `wgpu` | GPUs through Vulkan, Metal or DirectX: `--device wgpu` |
//! | `cuda` | NVIDIA's GPUs through CUDA: `--device cuda` |
//! | `flow` | `salamander::flow`: pre-processing on DataFusion; adds minutes to a build |
//! | `kube` | Kubernetes: pods and jobs of a cluster; with `cli` the operator and the commands for jobs |
//! | `postgres` | with `cli`: stores of hubs on a Postgres server |
//!
//! # Map
//! | to .. | look at |
//! | --- | --- |
//! | learn it step by step | the guide, `docs/guide` in the repository |
//! | write a model | [`prelude`]: the trait [`Trial`], the derives `Example` and `Hparams` |
//! | choose a layer, a loss, a metric | [`layers`] and [`burn::nn`]; [`train::loss`]; [`train::metrics`] |
//! | keep embeddings that no memory holds | [`train::table`] |
//! | run it from a terminal | [`main`] and [`models!`] |
//! | run it from code, follow and steer it, use what was trained | [`run`] |
//! | ask a hub, or have one | `salamander::hub` |
//! | write the loop by hand, test a model | [`train`] |
//! | read and write records | [`data`] |
//! | call Burn | [`burn`], at the very version that all of this is built on |
//!
//! # Layout
//! - [`prelude`]: what a model's file imports; [`train`] and [`data`]: what else a program may want
//! - [`main`]: the whole command line, of `salamander-cli`; [`run`]: the same from code, of `salamander-run`
//! - `guide`: compiles the code of `docs/guide`, in tests only

#[cfg(doctest)]
mod guide;

// The derive macros name this crate from outside.
extern crate self as salamander;

pub use burn;
#[cfg(feature = "flow")]
pub use salamander_flow::{flow, flows};
#[cfg(feature = "hub")]
pub use salamander_hub as hub;
pub use salamander_kernels::{layers, ops};
#[cfg(feature = "models")]
pub use salamander_models as models;
pub use salamander_run as run;
pub use salamander_train::Trial;
pub use salamander_train::model::Models;

/// The whole program: parses the arguments, runs the subcommand, tells what went wrong.
#[cfg(feature = "cli")]
pub fn main(models: Models) -> std::process::ExitCode {
    salamander_cli::main(models)
}

/// [`main`] for a program that has flows too: `main_with_flows(models![Cnn], flows![normalise])`.
#[cfg(all(feature = "cli", feature = "flow"))]
pub fn main_with_flows(models: Models, flows: flow::Flows) -> std::process::ExitCode {
    salamander_cli::main_with_flows(models, flows)
}

/// The models of a program: `models![Cnn, Mlp]`.
#[macro_export]
macro_rules! models {
    ($($model:ty),+ $(,)?) => {
        $crate::Models::new(::std::vec![$($crate::__private::entry::<$model>()),+])
    };
}

/// What a model's file imports: `use salamander::prelude::*`.
///
/// **Layers that are ours** have Burn's names, configurations and parameter names, and kernels of their own on the CPU
/// (everywhere else they call Burn's): `Conv2d`, `Linear`, `BatchNorm`, `LayerNorm`, `MaxPool2d`, `AvgPool2d`,
/// `AdaptiveAvgPool2d`, `Dropout`, `Embedding`, `MultiHeadAttention`, `TransformerEncoder`, `Relu` and `Gelu`, with
/// the functions `relu` and `gelu`. They are in [`layers`] too.
///
/// **Burn's** are `Module`, `Tensor` with `Float` and `Int`, `Device`, `PaddingConfig2d`, `sigmoid`, `tanh`, `softmax`
/// and `log_softmax`; every other layer is in [`burn::nn`]. The name `burn` is here for `#[derive(Module)]`, which
/// looks for it: a model needs no dependency besides `salamander`.
///
/// ```
/// use salamander::prelude::*;
///
/// /// Our linear layer beside Burn's recurrent one.
/// #[derive(Module, Debug)]
/// struct Net {
///     memory: burn::nn::gru::Gru,
///     out: Linear,
/// }
///
/// let device = Device::flex();
/// let net = Net {
///     memory: burn::nn::gru::GruConfig::new(4, 8, true).init(&device),
///     out: LinearConfig::new(8, 2).init(&device),
/// };
/// let words = Tensor::<3>::ones([5, 3, 4], &device);
/// assert_eq!(net.out.forward(net.memory.forward(words, None)).dims(), [5, 3, 2]);
/// ```
pub mod prelude {
    pub use burn;
    pub use burn::module::Module;
    pub use burn::nn::PaddingConfig2d;
    pub use burn::tensor::activation::{log_softmax, sigmoid, softmax, tanh};
    pub use burn::tensor::{Device, Float, Int, Tensor};
    pub use salamander_kernels::layers::{
        AdaptiveAvgPool2d, AdaptiveAvgPool2dConfig, AvgPool2d, AvgPool2dConfig, BatchNorm,
        BatchNormConfig, Conv2d, Conv2dConfig, Dropout, DropoutConfig, Embedding, EmbeddingConfig,
        Gelu, LayerNorm, LayerNormConfig, Linear, LinearConfig, MaxPool2d, MaxPool2dConfig,
        MhaInput, MultiHeadAttention, MultiHeadAttentionConfig, Relu, TransformerEncoder,
        TransformerEncoderConfig, TransformerEncoderInput,
    };
    pub use salamander_kernels::ops::{gelu, relu};

    pub use salamander_core::experiment::Clip;
    pub use salamander_core::hparams::InvalidHparams;
    pub use salamander_core::metrics::{Metric, Metrics};
    pub use salamander_core::optimizer::Optimizer;
    pub use salamander_core::schedule::{Curve, Schedule, Unit};
    pub use salamander_core::seed::Rng;
    #[cfg(feature = "formats")]
    pub use salamander_data::images::Image;
    pub use salamander_derive::{Example, Hparams};
    pub use salamander_train::callback::{Callback, Control, EpochReport, StepReport};
    pub use salamander_train::context::{BatchContext, Context};
    pub use salamander_train::example::Ragged;
    #[cfg(feature = "models")]
    pub use salamander_train::example::{Tokenizer, Tokens};
    pub use salamander_train::loss::{
        binary_cross_entropy, cross_entropy, nll, squared_error, token_cross_entropy, weighted,
    };
    pub use salamander_train::metrics::{
        accuracy, auc, error_rate, f1, mae, mean, pr_auc, precision, recall, rmse, token_accuracy,
        top_k,
    };
    pub use salamander_train::table::{Combine, Table};
    pub use salamander_train::{
        BatchLoss, BatchOf, BuildError, DataPaths, Output, ParamGroup, Pass, Trial,
    };

    pub use crate::models;
}

/// The pieces of the trainer, for those who write the loop themselves or test a model.
///
/// ```
/// use salamander::prelude::*;
/// use salamander::train::*;
/// # #[derive(Example)]
/// # struct Point { #[input(columns = ["x", "y"])] at: [f32; 2], #[label] side: u8 }
/// # #[derive(Module, Debug)]
/// # struct Net { out: Linear }
/// # impl Trial for Net {
/// #     const NAME: &str = "net";
/// #     type Hparams = ();
/// #     type Example = Point;
/// #     type Output = Tensor<2>;
/// #     fn build(cx: &Context<()>) -> Result<Self, BuildError> {
/// #         Ok(Self { out: LinearConfig::new(2, 2).init(&cx.device) })
/// #     }
/// #     fn forward(&self, batch: &PointBatch) -> Tensor<2> { self.out.forward(batch.at.clone()) }
/// #     fn loss(&self, output: &Tensor<2>, batch: &PointBatch) -> Tensor<1> {
/// #         cross_entropy(output, &batch.side)
/// #     }
/// #     fn optimizer(_: &()) -> impl Into<Optimizer> { Optimizer::sgd(1.0) }
/// # }
/// # let folder = tempfile::tempdir()?;
/// # let file = folder.path().join("points.csv");
/// # std::fs::write(&file, "x,y,side\n0.9,0.1,0\n0.1,0.8,1\n0.8,0.3,0\n0.2,0.7,1\n")?;
///
/// let device = device::select("cpu")?.autodiff();
/// let points = open_data("points", &[file.display().to_string()], &Data::default())?;
/// let mut net: Net = build(&Experiment::parse("hyperparameters: {}", &[])?, &device)?;
/// let pass = Pass::new("train", Optimizer::sgd(1.0));
/// let mut optimizer = OptimizerState::new(&pass);
/// for number in 0..20 {
///     for loaded in Loader::epoch::<Point>(&points, Epoch { number, batch: 2, seed: 7 }, &device)? {
///         let sum = compute(&net, &pass, &[loaded?], Arithmetic::plain(7), None)?;
///         let along = Along { rate: 1.0, factor: 1.0 / sum.tally.applied as f32 };
///         net = optimizer.step_by(net, sum.gradient, along)?;
///     }
/// }
/// let found = evaluate(&net, &points, Over::batches_of(4), &mut || {})?;
/// assert!(found.metrics.values()["loss"] < 0.3);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub mod train {
    pub use salamander_core::experiment::{Data, Experiment, OnBadRecord};
    pub use salamander_core::hparams;
    pub use salamander_core::ledger::Ledger;
    pub use salamander_core::plan::MicroBatch;
    pub use salamander_train::evaluate::{Evaluation, Over, evaluate};
    pub use salamander_train::gradients::{GradientSum, ParamGradient};
    pub use salamander_train::loader::{Epoch, Loaded, Loader};
    pub use salamander_train::model::{Model, build};
    pub use salamander_train::optimize::{Along, OptimizerState};
    pub use salamander_train::predict::{Predictions, predict};
    pub use salamander_train::step::{Arithmetic, StepSum, compute};
    pub use salamander_train::trainer::{Outcome, Setup, open_data};
    pub use salamander_train::{
        Error, callback, device, example, loss, metrics, params, table, weights,
    };
}

/// Records: files of every format, read by the number of a record, and written.
///
/// ```
/// use std::sync::Arc;
///
/// use salamander::data::{Dataset, open};
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("people.csv");
/// # std::fs::write(&path, "name,age\nada,36\ngrace,85\n")?;
///
/// let people = Dataset::new(Arc::from(open(&[path], None)?))?;
/// let mut oldest = 0.0;
/// people.read(&[0, 1], &mut |_, row| {
///     oldest = f32::max(oldest, row.text("age")?.parse().unwrap_or(0.0));
///     Ok(())
/// })?;
/// assert_eq!(oldest, 85.0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub mod data {
    pub use salamander_data::{
        Dataset, Error, Format, OpenOptions, Reader, Row, Shard, Value, open, open_indexed,
    };
    pub use salamander_data::{preprocess, recordio, sink};
}

/// What the derive macros and `models!` refer to; not for use by hand.
#[doc(hidden)]
pub mod __private {
    pub use burn::tensor::{Device, FloatDType, Tensor};
    pub use salamander_core::hparams::{
        AllowedRange, Fields, HparamInfo, HparamValue, Hparams, SearchRange,
    };
    pub use salamander_core::seed::Rng;
    pub use salamander_core::yaml::Error as YamlError;
    pub use salamander_data::Row;
    pub use salamander_data::preprocess::{discretise, hash, hash_int, log_round, round_identity};
    #[cfg(feature = "models")]
    pub use salamander_train::example::Tokens;
    #[cfg(feature = "formats")]
    pub use salamander_train::example::fitted;
    pub use salamander_train::example::{
        AssetKind, AssetSpec, Assets, Augmentation, Augmented, Batch, Column, DecodeError, Example,
        ExampleContext, Float, InputSpec, Int, Kind, Number, Packed, Ragged, Scale, Target,
        WordList, ascending, bucket_texts, bucketed, class_number, concatenated, feature_or,
        float_tensor, hashed_columns, label, label_text, label_texts, normalised_tensor,
        ragged_feature, ragged_ints, ragged_texts, shifted, text, texts,
    };
    pub use salamander_train::model::entry;
    pub use serde_json::{Map as JsonMap, Value as Json};
}
