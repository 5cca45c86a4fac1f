//! Operations on tensors with kernels of their own in f32; Burn's own everywhere else.
//!
//! Those of layers have an extension of Burn's backend behind them, implemented for the plain CPU backend and for the
//! one that records gradients. Those of a training step ([`step`], [`norm`], [`read`], [`send`]) have kernels for
//! GPUs and work on buckets: all gradients of a model in one flat tensor; so has [`rows`], for embedding tables. The
//! function in front decides whether a kernel serves this device, type and shape.

mod attention;
mod average;
mod batch_norm;
mod bucket;
mod conv;
mod dropout;
mod entropy;
mod gelu;
mod int8;
mod layer_norm;
mod linear;
mod optimizer;
mod packed_attention;
mod pool;
mod relu;
mod relu6;
mod rows;

pub(crate) use attention::{attention, attention_is_served};
pub use average::{adaptive_avg_pool2d, avg_pool2d};
pub use batch_norm::{BatchNormed, batch_norm_train};
pub use bucket::{norm, read, send};
pub use conv::{Activation, conv2d};
pub use dropout::dropout;
pub(crate) use dropout::{draw, masked};
pub use entropy::cross_entropy;
pub use gelu::gelu;
pub use int8::{Int8Layers, use_int8, use_int8_layers};
pub use layer_norm::layer_norm;
pub use linear::{linear, linear_gelu};
pub use optimizer::{Gradient, Rule, step};
pub use packed_attention::{PackedAttention, packed_attention};
pub use pool::max_pool2d;
pub use relu::relu;
pub use relu6::relu6;
pub use rows::{embedding, rows};

use burn::backend::{DispatchDevice, Flex, tensor::FloatTensor};
use burn::tensor::{DType, Device, Shape, Tensor, TensorData};

/// A tensor of the CPU backend.
type CpuTensor = FloatTensor<Flex>;

/// Whether a device is a GPU, or a program that stands for one: what it holds is best left there.
pub fn is_gpu(device: &Device) -> bool {
    !matches!(device.as_dispatch().clone().inner(), DispatchDevice::Flex(_))
}

/// Whether the CPU's kernels serve this tensor.
fn is_served<const D: usize>(tensor: &Tensor<D>) -> bool {
    tensor.dtype() == DType::F32
        && matches!(tensor.device().as_dispatch().clone().inner(), DispatchDevice::Flex(_))
}

/// The values of a contiguous f32 tensor.
fn values(tensor: &CpuTensor) -> &[f32] {
    tensor.as_slice::<f32>().expect("tensors are made contiguous and checked to be f32 before")
}

/// A tensor of new values, without copying them.
fn tensor(values: Vec<f32>, shape: impl Into<Shape>) -> CpuTensor {
    CpuTensor::from_data(TensorData::new(values, shape.into()))
}

/// Changes a tensor's values, in place if nobody else holds them.
fn map_values(tensor: CpuTensor, change: impl FnOnce(&mut [f32])) -> CpuTensor {
    let mut tensor = tensor.to_contiguous();
    let (whole, shape) = (tensor.storage::<f32>().len(), tensor.layout().shape().clone());
    if values(&tensor).len() == whole
        && let Some(values) = tensor.try_storage_mut::<f32>()
    {
        change(values);
        return tensor;
    }
    let mut copy = values(&tensor).to_vec();
    change(&mut copy);
    self::tensor(copy, shape)
}
