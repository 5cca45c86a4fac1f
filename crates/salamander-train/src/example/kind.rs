//! Tensors of floats and tensors of integers, made from columns.

use burn::tensor::{DType, Device, FloatDType, Tensor, TensorData};
pub use burn::tensor::{Float, Int};

use super::{Column, DecodeError};

/// A tensor that the values of a field become.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a, const D: usize> {
    /// The field.
    pub name: &'a str,
    /// The number of records, then the shape of each.
    pub shape: [usize; D],
    /// Where it is made.
    pub device: &'a Device,
}

impl<const D: usize> Target<'_, D> {
    /// The values of several columns, record after record: what `append` takes from each.
    pub(super) fn values<'a, C: Column + 'a, T>(
        &self,
        columns: impl Iterator<Item = &'a C>,
        append: fn(&C, &mut Vec<T>),
    ) -> Result<Vec<T>, DecodeError> {
        let mut values = Vec::with_capacity(self.shape.iter().product());
        for column in columns {
            self.check_len(column)?;
            append(column, &mut values);
        }
        Ok(values)
    }

    pub(super) fn check_len(&self, column: &impl Column) -> Result<(), DecodeError> {
        let shape = &self.shape[1..];
        let (found, needed) = (column.len(), shape.iter().product::<usize>());
        if found == needed {
            return Ok(());
        }
        let reason = format!("has {found} values, its shape {shape:?} needs {needed}");
        Err(DecodeError::new(self.name, reason))
    }

    pub(super) fn floats(&self, values: Vec<f32>) -> Tensor<D> {
        Tensor::from_data(TensorData::new(values, self.shape), self.device)
    }

    /// With 64 bits each wherever the device has such, so that every id fits.
    pub(super) fn ints(&self, values: Vec<i64>) -> Result<Tensor<D, Int>, DecodeError> {
        let wide = self.device.supports_dtype(DType::I64);
        if !wide && let Some(value) = values.iter().find(|value| i32::try_from(**value).is_err()) {
            let reason =
                format!("{value} does not fit the integers of this device: use fewer buckets");
            return Err(DecodeError::new(self.name, reason));
        }
        let data = TensorData::new(values, self.shape);
        Ok(match wide {
            true => Tensor::from_data(data, (self.device, DType::I64)),
            false => Tensor::from_data(data, self.device),
        })
    }
}

/// A tensor's kind that columns can be collated into.
pub trait Kind: burn::tensor::kind::Basic + Sized {
    /// Puts the columns of several examples side by side.
    fn tensor<'a, const D: usize, C: Column + 'a>(
        target: Target<'_, D>,
        columns: impl Iterator<Item = &'a C>,
    ) -> Result<Tensor<D, Self>, DecodeError>;

    /// Floats in another type; integers as they are.
    fn cast<const D: usize>(tensor: Tensor<D, Self>, dtype: FloatDType) -> Tensor<D, Self>;
}

impl Kind for Float {
    fn tensor<'a, const D: usize, C: Column + 'a>(
        target: Target<'_, D>,
        columns: impl Iterator<Item = &'a C>,
    ) -> Result<Tensor<D>, DecodeError> {
        Ok(target.floats(target.values(columns, C::floats)?))
    }

    fn cast<const D: usize>(tensor: Tensor<D>, dtype: FloatDType) -> Tensor<D> {
        tensor.cast(dtype)
    }
}

impl Kind for Int {
    fn tensor<'a, const D: usize, C: Column + 'a>(
        target: Target<'_, D>,
        columns: impl Iterator<Item = &'a C>,
    ) -> Result<Tensor<D, Int>, DecodeError> {
        target.ints(target.values(columns, C::ints)?)
    }

    fn cast<const D: usize>(tensor: Tensor<D, Int>, _dtype: FloatDType) -> Tensor<D, Int> {
        tensor
    }
}

/// `(value - offset) * scale`.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    /// Subtracted first.
    pub offset: f32,
    /// Multiplied then.
    pub scale: f32,
}

impl Scale {
    /// Never inlined: compiled with this crate, at its level of optimisation.
    #[inline(never)]
    fn apply(self, values: &mut [f32]) {
        values.iter_mut().for_each(|value| *value = (*value - self.offset) * self.scale);
    }
}

/// A tensor of scaled floats, whatever the column's own kind.
pub fn float_tensor<'a, const D: usize, C: Column + 'a>(
    target: Target<'_, D>,
    columns: impl Iterator<Item = &'a C>,
    scale: Scale,
) -> Result<Tensor<D>, DecodeError> {
    let mut values = target.values(columns, C::floats)?;
    scale.apply(&mut values);
    Ok(target.floats(values))
}
