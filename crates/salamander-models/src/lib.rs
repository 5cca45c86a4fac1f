//! Models that people have, as pieces of a trial: they compute what the originals do, read their files of weights and
//! write them again, under the names that are used there.
//!
//! # Layout
//! - [`bert`]: BERT and RoBERTa in the layout of Hugging Face, for classes of texts and for embeddings
//! - [`resnet`], [`mobilenet`]: networks for pictures with the names of torchvision
//! - [`gpt`]: a decoder that goes on with a text
//! - `torchvision`, `weights_path`: where weights that people have come from
//! - [`foreign`]: files of weights of other programs; [`onnx`]: networks as files that other programs run

pub mod bert;
pub mod foreign;
pub mod gpt;
mod head;
pub mod mobilenet;
pub mod onnx;
pub mod resnet;
mod torchvision;
mod weights_path;

pub use foreign::Error;
pub use head::Head;
pub use weights_path::WeightsPath;
