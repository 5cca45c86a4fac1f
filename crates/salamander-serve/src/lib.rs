//! A trained model becomes an endpoint: the Open Inference Protocol and its older relatives, batching, versions.
//!
//! The crate knows no tensors and no training: whoever has a model implements [`Source`], which loads a
//! [`Model`] on the thread that will own it, and a [`Decoder`] that any thread can use.
//!
//! # Layout
//! - [`model`]: what a model is here; [`tensor`], [`input`]: what it takes and gives
//! - `engine`: one owner thread per version of a model and what waits for it; [`Registry`]: models by name
//! - `http`, `grpc`: REST and gRPC over the registry
//! - [`server`]: connections, and their end; [`Client`]: the other side of them

mod client;
mod engine;
mod grpc;
mod http;
pub mod input;
pub mod model;
mod refusal;
pub mod server;
pub mod tensor;

pub use client::{Client, ClientError, Question};
pub use engine::{Batching, InferRequest, InferResponse, Registry};
pub use input::Input;
pub use model::{Decoded, Decoder, Failed, Loaded, Metadata, Model, Source, TensorInfo};
pub use refusal::Refusal;
pub use server::{Server, ServerOptions, Token};
pub use tensor::{DataType, Tensor, Values};
