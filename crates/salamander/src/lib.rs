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
//!
//!     fn build(cx: &Context<Hp>) -> Self {
//!         Self { layer: LinearConfig::new(4, 3).init(&cx.device) }
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
//!     fn optimizer(hp: &Hp) -> Optimizer {
//!         Optimizer::sgd(hp.learning_rate).momentum(0.9).into()
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
//! # Layout
//! - [`prelude`]: what a model's file imports
//! - [`main`] and `cli`: the command line, one file per subcommand
//! - `ui`: progress bar, epoch table, summary; [`report`]: the report of a classifier
//! - [`run`]: the folder of a run; [`fetch`]: public data sets
//! - `scaffold`: what `salamander new` writes; `demo`: what `salamander demo` trains

// The derive macros name this crate from outside.
extern crate self as salamander;

mod cli;
mod demo;
pub mod fetch;
pub mod report;
pub mod run;
mod scaffold;
mod ui;

use std::process::ExitCode;

pub use salamander_core as core;
pub use salamander_data as data;
pub use salamander_kernels as kernels;
pub use salamander_train as train;

pub use salamander_train::Trial;
pub use salamander_train::model::Models;

/// The whole program: parses the arguments, runs the subcommand, tells what went wrong.
pub fn main(models: Models) -> ExitCode {
    cli::main(&models)
}

/// The models of a program: `models![Cnn, Mlp]`.
#[macro_export]
macro_rules! models {
    ($($model:ty),+ $(,)?) => {
        $crate::Models::new(::std::vec![$($crate::__private::entry::<$model>()),+])
    };
}

/// What a model's file imports: `use salamander::prelude::*`.
pub mod prelude {
    pub use burn::module::Module;
    pub use burn::nn::PaddingConfig2d;
    pub use burn::tensor::activation::{log_softmax, sigmoid, softmax};
    pub use burn::tensor::{Device, Float, Int, Tensor};
    // Burn's names with kernels of their own on the CPU.
    pub use salamander_kernels::layers::{
        AdaptiveAvgPool2d, AdaptiveAvgPool2dConfig, AvgPool2d, AvgPool2dConfig, BatchNorm,
        BatchNormConfig, Conv2d, Conv2dConfig, Dropout, DropoutConfig, Gelu, LayerNorm,
        LayerNormConfig, Linear, LinearConfig, MaxPool2d, MaxPool2dConfig, MhaInput,
        MultiHeadAttention, MultiHeadAttentionConfig, Relu, TransformerEncoder,
        TransformerEncoderConfig, TransformerEncoderInput,
    };
    pub use salamander_kernels::ops::{gelu, relu};

    pub use salamander_core::experiment::Clip;
    pub use salamander_core::metrics::{Metric, Metrics};
    pub use salamander_core::optimizer::Optimizer;
    pub use salamander_core::schedule::{Curve, Schedule, Unit};
    pub use salamander_core::seed::Rng;
    pub use salamander_derive::{Example, Hparams};
    pub use salamander_train::callback::{Callback, Control, EpochReport, StepReport};
    pub use salamander_train::context::{BatchContext, Context};
    pub use salamander_train::example::Ragged;
    pub use salamander_train::loss::{binary_cross_entropy, cross_entropy, nll, squared_error};
    pub use salamander_train::metrics::{accuracy, auc, error_rate, mean, top_k};
    pub use salamander_train::table::{Combine, Table};
    pub use salamander_train::{BatchLoss, BatchOf, Pass, Trial};

    pub use crate::models;
}

/// What the derive macros and `models!` refer to; not for use by hand.
#[doc(hidden)]
pub mod __private {
    pub use burn::tensor::{Device, FloatDType, Tensor};
    pub use salamander_core::hparams::{Fields, HparamInfo, HparamValue, Hparams};
    pub use salamander_core::seed::Rng;
    pub use salamander_core::yaml::Error as YamlError;
    pub use salamander_data::Row;
    pub use salamander_data::preprocess::{
        discretise, hash, hash_int, log_round, round_identity, to_ragged,
    };
    pub use salamander_train::example::{
        Batch, Column, DecodeError, Example, Float, Int, Kind, Lookup, Normaliser, Ragged, Scale,
        ascending, bucket_floats, bucket_ints, bucket_texts, concatenated, feature, feature_or,
        float_tensor, hashed_columns, label, normalised_tensor, ragged_feature, ragged_ints,
        ragged_texts, shifted, text, texts,
    };
    pub use salamander_train::model::entry;
    pub use serde_json::{Map as JsonMap, Value as Json};
}
