//! A trained model becomes an endpoint: the Open Inference Protocol and its older relatives, batching, versions.
//!
//! The crate knows no tensors and no training: whoever has a model implements [`Source`], which loads a
//! [`Model`] on the thread that will own it, and a [`Decoder`] that any thread can use.
//!
//! # Layout
//! - [`model`]: what a model is here; [`tensor`], [`input`]: what it takes and gives
//! - `engine`: one owner thread per version of a model and what waits for it; [`Registry`]: models by name
//! - `http`, `grpc`: REST and gRPC over the registry
//! - [`server`]: connections, and their end; `progress`: readers that do not read; [`Client`]: the other side of them
//! - `settings`: what clients change while a server runs
//! - `fuzzing`: doors for the fuzz target; `page`: what a browser shows, and the description of the REST API

mod client;
mod engine;
#[doc(hidden)]
pub mod fuzzing;
mod grpc;
mod http;
pub mod input;
pub mod model;
mod page;
mod progress;
mod refusal;
pub mod server;
mod settings;
pub mod tensor;

pub use client::{Client, ClientError, ClientOptions, Question};
pub use engine::{Batching, InferRequest, InferResponse, Registry};
pub use input::Input;
pub use model::{
    Decoded, Decoder, Failed, Loaded, Metadata, Model, Opener, Source, SourceToServe, TensorInfo,
};
pub use refusal::Refusal;
pub use server::{AddressUse, Server, ServerOptions, ServingToken};
pub use tensor::{DataType, Tensor, Values};
