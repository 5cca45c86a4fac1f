//! Kernels on plain slices, f32, NCHW.

pub mod attention;
pub mod average;
pub mod batch_norm;
mod buffer;
mod columns;
pub mod conv;
mod depthwise;
mod direct;
pub mod dropout;
pub mod elementwise;
pub mod embedding;
pub mod entropy;
mod frame;
mod gathered;
pub mod gelu;
mod helpers;
mod im2col;
pub mod int8;
#[cfg(target_arch = "x86_64")]
mod int8_avx;
#[cfg(target_arch = "x86_64")]
mod int8_x86;
mod interleaved;
pub mod layer_norm;
pub mod linear;
pub mod packed_attention;
mod panel;
mod pixelwise;
mod pointwise;
pub mod pool;
mod prefetch;
mod product;
#[cfg(test)]
#[path = "../../tests/reference/conv.rs"]
mod reference;
mod rows;
mod several;
mod shape;
mod sums;
mod tasks;
mod winograd;

pub use product::{Matrix, ProductOutput, product};
pub use shape::{ConvShape, PoolShape};
pub use tasks::share;
