//! Kernels on plain slices, f32, NCHW.

mod buffer;
pub mod conv;
pub mod dropout;
pub mod elementwise;
mod im2col;
pub mod linear;
pub mod pool;
mod product;
mod shape;

pub use product::{Matrix, Output, product};
pub use shape::{ConvShape, PoolShape};
