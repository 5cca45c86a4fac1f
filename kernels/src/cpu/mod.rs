//! Kernels on plain slices, f32, NCHW.

pub mod average;
pub mod batch_norm;
mod buffer;
pub mod conv;
mod crew;
mod direct;
pub mod dropout;
pub mod elementwise;
mod im2col;
pub mod linear;
pub mod pool;
mod product;
mod shape;
mod sums;
mod tasks;

pub use product::{Matrix, Output, product};
pub use shape::{ConvShape, PoolShape};
