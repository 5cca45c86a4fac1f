//! Kernels for GPUs: one source for wgpu (Vulkan, Metal, DirectX) and CUDA, through CubeCL.
//!
//! Each works on flat runs of f32, has a plain reference in `tests/reference/bucket.rs`, and is
//! reached through a function of [`ops`](crate::ops), which calls Burn's own operations on other devices.
//!
//! # Layout
//! - `optimizer`: SGD, momentum and Adam(W), each one pass over a parameter
//! - `norm`: the sum of squares of a bucket
//! - `bf16`: two bf16 in a word, for devices that do not have the type too
//! - `rows`: rows of a table gathered, and their gradients added up
//! - `source`: all of them as CUDA C++, with the feature `cuda-source`
//!
//! **Invariant**: no kernel uses atomic additions, so a device gives the same bits every time.

mod bf16;
mod norm;
mod optimizer;
mod rows;
#[cfg(feature = "cuda-source")]
mod source;

pub(crate) use bf16::{pack, unpack};
pub(crate) use norm::sum_of_squares;
pub(crate) use optimizer::step;
pub(crate) use rows::{gather, scatter_add};
#[cfg(feature = "cuda-source")]
pub use source::cuda_sources;

use burn::backend::{Cube, CubeDevice, DispatchDevice, tensor::FloatTensor};
use burn::cubecl::client::Client;
use burn::cubecl::ir::{ElemType, FloatKind};
use burn::cubecl::prelude::{CubeCount, CubeDim};
use burn::cubecl::{calculate_cube_count_elemwise, std::tensor::into_contiguous};
use burn::tensor::{DType, Device, Shape, Tensor};

/// A tensor on a GPU.
pub(crate) type GpuTensor = FloatTensor<Cube>;

/// The GPU behind a device.
pub(crate) fn gpu(device: &Device) -> Option<CubeDevice> {
    match device.as_dispatch().clone().inner() {
        DispatchDevice::Cube(device) => Some(device),
        _ => None,
    }
}

/// Whether the kernels serve this tensor: f32 on a GPU, not recorded for a backward pass.
pub(crate) fn is_served<const D: usize>(tensor: &Tensor<D>) -> bool {
    let device = tensor.device();
    tensor.dtype() == DType::F32 && !device.is_autodiff() && gpu(&device).is_some()
}

/// A served tensor's buffer, its values one after the other.
pub(crate) fn buffer<const D: usize>(tensor: Tensor<D>) -> GpuTensor {
    let tensor = tensor.try_into_primitive::<Cube>();
    contiguous(tensor.unwrap_or_else(|error| unreachable!("asked before: {error:?}")))
}

pub(crate) fn contiguous(tensor: GpuTensor) -> GpuTensor {
    if tensor.is_contiguous() {
        return tensor;
    }
    let (client, device, dtype) = (tensor.client.clone(), tensor.device.clone(), tensor.dtype);
    let rows = into_contiguous(&client, tensor.binding(), ElemType::Float(FloatKind::F32));
    GpuTensor::new(client, rows.handle, *rows.metadata, device, dtype)
}

/// A buffer beside another one, its values not set.
fn empty_like(tensor: &GpuTensor, shape: impl Into<Shape>) -> GpuTensor {
    let (client, device, shape) = (tensor.client.clone(), tensor.device.clone(), shape.into());
    let handle = client.empty(shape.num_elements() * size_of::<f32>());
    GpuTensor::new_contiguous(client, device, shape, handle, DType::F32)
}

/// How many values a buffer has.
fn len(tensor: &GpuTensor) -> usize {
    tensor.meta.num_elements()
}

/// One unit per item.
fn grid(client: &Client, items: usize) -> (CubeCount, CubeDim) {
    let dim = CubeDim::new(client, items);
    (calculate_cube_count_elemwise(client, items, dim), dim)
}
