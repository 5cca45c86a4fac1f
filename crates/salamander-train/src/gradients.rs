//! Sums of gradients over records, in the parameters' fixed order: on the host for the CPU, on the device for a GPU.
//!
//! ```
//! use salamander::prelude::*;
//! use salamander::train::{GradientSum, ParamGradient};
//!
//! let weight = ParamGradient { path: "weight".to_string(), sum: Some(vec![6.0, 8.0]) };
//! let mut sum = GradientSum::from_params(vec![weight]);
//! sum.scale(0.5);
//! assert_eq!(sum.clip(Some(Clip::Norm(1.0)))?, Some(5.0));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod bucket;

use burn::module::{Module, ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::tensor::{Device, Tensor};
use salamander_core::experiment::Clip;
use salamander_kernels::ops::is_gpu;

pub use bucket::{BucketPart, BucketSum};

use crate::Error;
use crate::params::keep_path;
use crate::step::finite;
use crate::trial::Pass;

/// The gradient of one parameter; absent while no record used it, which is not the same as zero:
/// momentum and weight decay would move a parameter on zero.
#[derive(Clone, Debug, PartialEq)]
pub struct ParamGradient {
    /// The parameter's path.
    pub path: String,
    /// The sum over records.
    pub sum: Option<Vec<f32>>,
}

/// The sum of gradients of a step, over the parameters of one pass.
#[derive(Clone, Debug)]
pub enum GradientSum {
    /// On the host, parameter by parameter.
    Host(Vec<ParamGradient>),
    /// On a GPU, all parameters in one bucket.
    Device(Box<BucketSum>),
}

impl Default for GradientSum {
    fn default() -> Self {
        Self::Host(Vec::new())
    }
}

impl GradientSum {
    /// The gradients of a micro-batch.
    pub fn of<M: Module>(module: &M, gradients: GradientsParams, pass: &Pass) -> Self {
        let mut collect = Collect { path: Vec::new(), gradients, pass, found: Vec::new() };
        module.visit(&mut collect);
        placed(collect.found)
    }

    /// This one plus another one, in this order. A gradient that is absent is left out, which is not the same as zero:
    /// -0.0 + 0.0 has other bits than -0.0.
    #[must_use]
    pub fn join(self, right: Self) -> Self {
        match (self, right) {
            (Self::Device(left), Self::Device(right)) => Self::Device(Box::new(left.join(*right))),
            (Self::Host(none), other) | (other, Self::Host(none))
                if none.iter().all(|param| param.sum.is_none()) && !other.is_empty() =>
            {
                other
            }
            (Self::Host(mut left), Self::Host(right)) => {
                for (sum, new) in left.iter_mut().zip(right) {
                    match (&mut sum.sum, new.sum) {
                        (Some(sum), Some(new)) => {
                            sum.iter_mut().zip(&new).for_each(|(a, b)| *a += b)
                        }
                        (sum @ None, new) => *sum = new,
                        (Some(_), None) => {}
                    }
                }
                Self::Host(left)
            }
            _ => unreachable!("the gradients of one model are on one device"),
        }
    }

    /// Whether it is not even known which parameters there are.
    fn is_empty(&self) -> bool {
        matches!(self, Self::Host(params) if params.is_empty())
    }

    /// From what an exchange gave.
    pub fn from_params(params: Vec<ParamGradient>) -> Self {
        Self::Host(params)
    }

    /// The same on the host; rounded to bf16 on the way from a device, if asked for.
    pub fn into_host(self, as_bf16: bool) -> Result<Vec<ParamGradient>, Error> {
        match self {
            Self::Host(params) => Ok(params),
            Self::Device(sum) => sum.into_host(as_bf16),
        }
    }

    /// The same where the parameters are: only a GPU is worth the way.
    #[must_use]
    pub fn near(self, device: &Device) -> Self {
        match self {
            Self::Host(params) if is_gpu(device) => match BucketSum::send(&params, device) {
                Some(sum) => Self::Device(Box::new(sum)),
                None => Self::Host(params),
            },
            other => other,
        }
    }

    /// Multiplies all of it, usually by one over the number of records.
    pub fn scale(&mut self, factor: f32) {
        match self {
            Self::Host(params) => values(params).for_each(|value| *value *= factor),
            Self::Device(sum) => sum.scale(factor),
        }
    }

    /// Bounds it; returns the norm before, when it had to be computed.
    pub fn clip(&mut self, clip: Option<Clip>) -> Result<Option<f64>, Error> {
        let Some(clip) = clip else { return Ok(None) };
        match (clip, &mut *self) {
            (Clip::Value(limit), Self::Host(params)) => {
                let limit = limit as f32;
                values(params).for_each(|value| *value = value.clamp(-limit, limit));
                Ok(None)
            }
            (Clip::Value(limit), Self::Device(sum)) => {
                sum.clamp(limit);
                Ok(None)
            }
            (Clip::Norm(limit), _) => {
                let norm = self.norm()?;
                if norm > limit {
                    // The small term is PyTorch's, kept for equal trajectories.
                    self.scale((limit / (norm + 1e-6)) as f32);
                }
                Ok(Some(norm))
            }
        }
    }

    /// Whether all of it is a number. On a device the sum of squares tells, which bf16 can overflow by itself: values
    /// above 1e19 count as infinite there.
    pub fn is_finite(&self) -> Result<bool, Error> {
        match self {
            Self::Host(params) => Ok(params.iter().flat_map(|param| &param.sum).all(|v| finite(v))),
            Self::Device(sum) => Ok(sum.norm()?.is_finite()),
        }
    }

    /// The norm over all parameters together.
    pub fn norm(&self) -> Result<f64, Error> {
        match self {
            Self::Host(params) => {
                let values = params.iter().flat_map(|param| &param.sum).flatten();
                Ok(values.map(|value| f64::from(*value).powi(2)).sum::<f64>().sqrt())
            }
            Self::Device(sum) => sum.norm(),
        }
    }
}

fn values(params: &mut [ParamGradient]) -> impl Iterator<Item = &mut f32> {
    params.iter_mut().flat_map(|param| &mut param.sum).flatten()
}

/// The gradients of a micro-batch, where they are best kept.
fn placed(found: Vec<FlatGradient>) -> GradientSum {
    let devices = found.iter().filter_map(|param| param.gradient.as_ref().map(Tensor::device));
    if let Some(device) = devices.into_iter().next()
        && is_gpu(&device)
    {
        return GradientSum::Device(Box::new(BucketSum::new(found, &device)));
    }
    let on_host =
        |param: FlatGradient| ParamGradient { path: param.path, sum: param.gradient.map(host) };
    GradientSum::Host(found.into_iter().map(on_host).collect())
}

/// A parameter's gradient as a backward pass gave it, laid flat.
struct FlatGradient {
    path: String,
    len: usize,
    gradient: Option<Tensor<1>>,
}

struct Collect<'a> {
    path: Vec<String>,
    gradients: GradientsParams,
    pass: &'a Pass,
    found: Vec<FlatGradient>,
}

impl ModuleVisitor for Collect<'_> {
    keep_path!();

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        // Running values of normalisation layers are visited too; they have no gradients.
        if !param.base().is_require_grad() {
            return;
        }
        let path = self.path.join(".");
        if !self.pass.moves(&path) {
            return;
        }
        let len = param.lazy_shape().num_elements();
        let gradient = self.gradients.remove::<D>(param.id).map(|flat| flat.reshape([len]));
        self.found.push(FlatGradient { path, len, gradient });
    }
}

/// A tensor's values as f32; moved, not copied, when nobody else holds the tensor.
pub(crate) fn host<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    let data = tensor.into_data().convert::<f32>();
    data.try_into_vec::<f32>()
        .unwrap_or_else(|error| unreachable!("just converted to f32: {error:?}"))
}
