//! The gradients of all parameters as one flat tensor on a GPU: one launch to add, one to measure, one way to the
//! host and one back.

use burn::tensor::{DType, Device, FloatDType, Tensor};
use salamander_kernels::ops;

use super::{FlatGradient, ParamGradient};
use crate::Error;

/// A parameter's part of a bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketPart {
    /// The parameter's path.
    pub path: String,
    /// How many values it has.
    pub len: usize,
    /// Whether some record used it.
    pub used: bool,
}

/// A sum of gradients on a device.
#[derive(Clone, Debug)]
pub struct BucketSum {
    parts: Vec<BucketPart>,
    bucket: Tensor<1>,
    /// What the bucket is to be multiplied by: kept beside it, since the optimizer's pass can do it for nothing.
    pub(super) factor: f32,
}

impl BucketSum {
    /// The gradients of one micro-batch.
    pub(super) fn new(found: Vec<FlatGradient>, device: &Device) -> Self {
        let parts = found.iter().map(|param| BucketPart {
            path: param.path.clone(),
            len: param.len,
            used: param.gradient.is_some(),
        });
        Self { parts: parts.collect(), bucket: joined(found, device), factor: 1.0 }
    }

    /// Gradients of the host on a device; none if there are no parameters.
    pub(crate) fn send(params: &[ParamGradient], device: &Device) -> Option<Self> {
        // A parameter that nobody used has no values to tell its length by, and needs none.
        let parts = params.iter().map(|param| BucketPart {
            path: param.path.clone(),
            len: param.sum.as_ref().map_or(0, Vec::len),
            used: param.sum.is_some(),
        });
        let values: Vec<f32> =
            params.iter().flat_map(|param| &param.sum).flatten().copied().collect();
        let device = device.clone().without_autodiff();
        let any = !values.is_empty();
        any.then(|| Self {
            parts: parts.collect(),
            bucket: ops::send(values, &device),
            factor: 1.0,
        })
    }

    /// This one plus another one; neither was multiplied yet.
    pub(super) fn join(mut self, right: Self) -> Self {
        for (part, new) in self.parts.iter_mut().zip(&right.parts) {
            part.used |= new.used;
        }
        Self { bucket: self.bucket + right.bucket, ..self }
    }

    /// Multiplies all of it.
    pub(crate) fn scale(&mut self, factor: f32) {
        self.factor *= factor;
    }

    pub(super) fn clamp(&mut self, limit: f64) {
        let scaled = self.bucket.clone().mul_scalar(self.factor);
        (self.bucket, self.factor) = (scaled.clamp(-limit, limit), 1.0);
    }

    pub(super) fn norm(&self) -> Result<f64, Error> {
        let norm = ops::norm(&self.bucket).map_err(unreadable)?;
        Ok(norm * f64::from(self.factor.abs()))
    }

    pub(super) fn into_host(self, as_bf16: bool) -> Result<Vec<ParamGradient>, Error> {
        let mut values = ops::read(&self.bucket, as_bf16).map_err(unreadable)?;
        if self.factor != 1.0 {
            values.iter_mut().for_each(|value| *value *= self.factor);
        }
        let mut rest = values.as_slice();
        let mut params = Vec::with_capacity(self.parts.len());
        for part in self.parts {
            let (own, after) = rest.split_at(part.len);
            params.push(ParamGradient { path: part.path, sum: part.used.then(|| own.to_vec()) });
            rest = after;
        }
        Ok(params)
    }

    /// The parts that have a gradient, with the place that each begins at.
    pub fn used(&self) -> impl Iterator<Item = (&BucketPart, usize)> {
        let mut next = 0;
        let placed = self.parts.iter().map(move |part| {
            let at = next;
            next += part.len;
            (part, at)
        });
        placed.filter(|(part, _)| part.used)
    }

    /// The bucket, and what it is to be multiplied by.
    pub fn bucket(&self) -> (&Tensor<1>, f32) {
        (&self.bucket, self.factor)
    }
}

fn joined(found: Vec<FlatGradient>, device: &Device) -> Tensor<1> {
    let part = |param: FlatGradient| match param.gradient {
        Some(gradient) if gradient.dtype() == DType::F32 => gradient,
        Some(gradient) => gradient.cast(FloatDType::F32),
        // Adding it changes no bit of anything, not even of a negative zero.
        None => Tensor::full([param.len], -0.0, device),
    };
    Tensor::cat(found.into_iter().map(part).collect(), 0)
}

fn unreadable(reason: String) -> Error {
    Error::Invalid(format!("the gradients cannot be read from the device: {reason}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, values: Option<&[f32]>, len: usize) -> FlatGradient {
        let tensor = |values: &[f32]| Tensor::<1>::from_data(values, &Device::flex());
        FlatGradient { path: path.to_string(), len, gradient: values.map(tensor) }
    }

    #[test]
    fn micro_batches_add_up_and_what_nobody_used_stays_absent() {
        let device = Device::flex();
        let batch = |b| vec![found("a", Some(&[1.0, 2.0]), 2), b, found("c", None, 3)];
        let of = |b| BucketSum::new(batch(b), &device);
        let mut sum = of(found("b", None, 1)).join(of(found("b", Some(&[5.0]), 1)));
        let used: Vec<(&str, usize)> =
            sum.used().map(|(part, at)| (part.path.as_str(), at)).collect();
        assert_eq!(used, [("a", 0), ("b", 2)]);
        assert!((sum.norm().expect("readable") - 45f64.sqrt()).abs() < 1e-6);
        sum.factor = 0.5;
        let sums = sum.into_host(false).expect("readable").into_iter().map(|param| param.sum);
        assert_eq!(sums.collect::<Vec<_>>(), [Some(vec![1.0, 2.0]), Some(vec![2.5]), None]);
    }

    #[test]
    fn gradients_of_the_host_come_back_the_same() {
        let param = |path: &str, sum| ParamGradient { path: path.to_string(), sum };
        let params = vec![param("a", None), param("b", Some(vec![1.0 / 3.0, -2.0]))];
        let sum = BucketSum::send(&params, &Device::flex()).expect("has values");
        assert_eq!(sum.clone().into_host(false).expect("readable"), params);
        let rounded = sum.into_host(true).expect("readable").pop().expect("two parameters");
        assert_eq!(rounded.sum, Some(vec![0.333_984_38, -2.0]));
        assert!(BucketSum::send(&[param("a", None)], &Device::flex()).is_none());
    }
}
