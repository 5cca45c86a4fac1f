//! Kernels on plain slices, f32, NCHW.

pub mod attention;
mod buffer;
pub mod conv;
pub mod dropout;
pub mod elementwise;
pub mod entropy;
pub mod gelu;
mod im2col;
pub mod linear;
pub mod norm;
pub mod pool;
mod product;
mod rows;
mod several;
mod shape;

pub use product::{Matrix, Output, product};
pub use shape::{ConvShape, PoolShape};
