//! Fast training for ordinary Burn models: on the CPU, layers with Burn's names whose operations have kernels of
//! their own, forward and backward; on GPUs, optimizers and the exchange's arithmetic on flat buckets.
//!
//! Where there is no kernel (other devices, types and shapes) the same functions call Burn's own operations, so a
//! model's code is the same everywhere.
//!
//! ```
//! use burn::tensor::{Device, Tensor};
//! use salamander_kernels::layers::{Conv2dConfig, MaxPool2dConfig};
//! use salamander_kernels::ops::relu;
//!
//! let device = Device::flex().autodiff();
//! let conv = Conv2dConfig::new([1, 8], [3, 3]).init(&device);
//! let pool = MaxPool2dConfig::new([2, 2]).init();
//! let x = Tensor::<4>::ones([2, 1, 28, 28], &device);
//! assert_eq!(pool.forward(relu(conv.forward(x))).dims(), [2, 8, 13, 13]);
//! ```
//!
//! # Layout
//! - [`layers`]: `Conv2d`, `BatchNorm`, pools, `Linear`, `LayerNorm`, `MultiHeadAttention`, `TransformerEncoder`,
//!   `Embedding`, `Relu`, `Gelu`, `Dropout` with Burn's configurations and parameter names
//! - [`ops`]: the operations behind them as functions on tensors; each decides where it runs
//! - [`cpu`]: the kernels, on plain slices
//! - `cube`: kernels for GPUs, with the feature `wgpu` or `cuda`
//!
//! The tests compare all of them with the same arithmetic in the plainest Rust (`tests/reference`).
//!
//! **Invariant**: how work is cut into pieces depends on shapes alone, never on the number of threads, and sums are
//! taken in a fixed order. One thread and many give the same bits.

pub mod cpu;
#[cfg(any(feature = "wgpu", feature = "cuda"))]
mod cube;
pub mod layers;
pub mod ops;

#[cfg(feature = "cuda-source")]
pub use cube::cuda_sources;
