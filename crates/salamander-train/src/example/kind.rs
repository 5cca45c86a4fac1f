//! Tensors of floats and tensors of integers, made from columns.

use burn::tensor::{DType, Device, FloatDType, Tensor, TensorData};
pub use burn::tensor::{Float, Int};

use super::{Column, DecodeError};

/// A tensor's kind that columns can be collated into.
pub trait Kind: burn::tensor::kind::Basic + Sized {
    /// Puts the columns of several examples side by side; `shape` starts with their number.
    fn tensor<'a, const D: usize, C: Column + 'a>(
        name: &str,
        columns: impl Iterator<Item = &'a C>,
        shape: [usize; D],
        device: &Device,
    ) -> Result<Tensor<D, Self>, DecodeError>;

    /// Floats in another type; integers as they are.
    fn cast<const D: usize>(tensor: Tensor<D, Self>, dtype: FloatDType) -> Tensor<D, Self>;
}

/// `(value - offset) * scale`.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    /// Subtracted first.
    pub offset: f32,
    /// Multiplied then.
    pub scale: f32,
}

impl Kind for Float {
    fn tensor<'a, const D: usize, C: Column + 'a>(
        name: &str,
        columns: impl Iterator<Item = &'a C>,
        shape: [usize; D],
        device: &Device,
    ) -> Result<Tensor<D>, DecodeError> {
        float_tensor(name, columns, shape, Scale { offset: 0.0, scale: 1.0 }, device)
    }

    fn cast<const D: usize>(tensor: Tensor<D>, dtype: FloatDType) -> Tensor<D> {
        tensor.cast(dtype)
    }
}

impl Kind for Int {
    fn tensor<'a, const D: usize, C: Column + 'a>(
        name: &str,
        columns: impl Iterator<Item = &'a C>,
        shape: [usize; D],
        device: &Device,
    ) -> Result<Tensor<D, Int>, DecodeError> {
        int_tensor(name, ints(name, columns, &shape)?, shape, device)
    }

    fn cast<const D: usize>(tensor: Tensor<D, Int>, _dtype: FloatDType) -> Tensor<D, Int> {
        tensor
    }
}

/// A tensor of integers: with 64 bits each wherever the device has such, so that every id fits.
pub(super) fn int_tensor<const D: usize>(
    name: &str,
    values: Vec<i64>,
    shape: [usize; D],
    device: &Device,
) -> Result<Tensor<D, Int>, DecodeError> {
    if device.supports_dtype(DType::I64) {
        return Ok(Tensor::from_data(TensorData::new(values, shape), (device, DType::I64)));
    }
    match values.iter().find(|value| i32::try_from(**value).is_err()) {
        None => Ok(Tensor::from_data(TensorData::new(values, shape), device)),
        Some(value) => {
            let reason =
                format!("{value} does not fit the integers of this device: use fewer buckets");
            Err(DecodeError::new(name, reason))
        }
    }
}

/// A tensor of scaled floats, whatever the column's own kind.
pub fn float_tensor<'a, const D: usize, C: Column + 'a>(
    name: &str,
    columns: impl Iterator<Item = &'a C>,
    shape: [usize; D],
    scale: Scale,
    device: &Device,
) -> Result<Tensor<D>, DecodeError> {
    let mut values = floats(name, columns, &shape)?;
    if scale.offset != 0.0 || scale.scale != 1.0 {
        for value in &mut values {
            *value = (*value - scale.offset) * scale.scale;
        }
    }
    Ok(Tensor::from_data(TensorData::new(values, shape), device))
}

/// The values of several columns as floats, record after record.
pub(super) fn floats<'a, C: Column + 'a>(
    name: &str,
    columns: impl Iterator<Item = &'a C>,
    shape: &[usize],
) -> Result<Vec<f32>, DecodeError> {
    values(name, columns, shape, C::floats)
}

/// The values of several columns as integers, record after record.
pub(super) fn ints<'a, C: Column + 'a>(
    name: &str,
    columns: impl Iterator<Item = &'a C>,
    shape: &[usize],
) -> Result<Vec<i64>, DecodeError> {
    values(name, columns, shape, C::ints)
}

fn values<'a, C: Column + 'a, T>(
    name: &str,
    columns: impl Iterator<Item = &'a C>,
    shape: &[usize],
    append: fn(&C, &mut Vec<T>),
) -> Result<Vec<T>, DecodeError> {
    let mut values = Vec::with_capacity(shape.iter().product());
    for column in columns {
        check_len(name, column, shape)?;
        append(column, &mut values);
    }
    Ok(values)
}

pub(super) fn check_len(
    name: &str,
    column: &impl Column,
    shape: &[usize],
) -> Result<(), DecodeError> {
    let needed: usize = shape[1..].iter().product();
    match column.len() {
        found if found == needed => Ok(()),
        found => Err(DecodeError::new(
            name,
            format!("has {found} values, its shape {:?} needs {needed}", &shape[1..]),
        )),
    }
}
