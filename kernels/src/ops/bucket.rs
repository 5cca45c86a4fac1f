//! Buckets of gradients: their norm, and their way between device and host.

use burn::tensor::{Device, Tensor, TensorData};

/// The norm of all values together.
///
/// # Errors
/// What the device says when it cannot be read.
pub fn norm(bucket: &Tensor<1>) -> Result<f64, String> {
    #[cfg(any(feature = "wgpu", feature = "cuda"))]
    {
        use crate::cube;
        if cube::is_served(bucket) {
            return cube::sum_of_squares(cube::buffer(bucket.clone())).map(f64::sqrt);
        }
    }
    let values = host(bucket)?;
    Ok(values.into_iter().map(|value| f64::from(value).powi(2)).sum::<f64>().sqrt())
}

/// The values on the host; rounded to bf16 on the device, if asked for, so that half as many bytes move.
///
/// # Errors
/// What the device says when it cannot be read.
pub fn read(bucket: &Tensor<1>, as_bf16: bool) -> Result<Vec<f32>, String> {
    #[cfg(any(feature = "wgpu", feature = "cuda"))]
    {
        use crate::cube;
        if as_bf16 && cube::is_served(bucket) {
            let rounded = cube::pack(cube::buffer(bucket.clone()))?;
            return Ok(rounded.into_iter().map(widened).collect());
        }
    }
    let mut values = host(bucket)?;
    if as_bf16 {
        values.iter_mut().for_each(|value| *value = widened(bf16(*value)));
    }
    Ok(values)
}

/// Values as a bucket on a device. Those that bf16 can hold, as an exchange in bf16 gives them, go there as such.
pub fn send(values: Vec<f32>, device: &Device) -> Tensor<1> {
    #[cfg(any(feature = "wgpu", feature = "cuda"))]
    {
        use crate::cube;
        let fits = |value: &f32| value.to_bits() & 0xFFFF == 0;
        if let Some(gpu) = cube::gpu(device)
            && !values.is_empty()
            && values.iter().all(fits)
        {
            let halves: Vec<u16> =
                values.iter().map(|value| (value.to_bits() >> 16) as u16).collect();
            let bucket = cube::unpack(&halves, &gpu);
            return Tensor::from_primitive::<burn::backend::Cube>(bucket);
        }
    }
    let len = values.len();
    Tensor::from_data(TensorData::new(values, [len]), device)
}

/// To nearest, ties to even; what is not a number stays so.
fn bf16(value: f32) -> u16 {
    let bits = value.to_bits();
    if value.is_nan() {
        return (bits >> 16) as u16 | 0x40;
    }
    ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16) as u16
}

fn widened(half: u16) -> f32 {
    f32::from_bits(u32::from(half) << 16)
}

fn host(bucket: &Tensor<1>) -> Result<Vec<f32>, String> {
    let data = bucket.clone().try_into_data().map_err(|error| format!("{error:?}"))?;
    Ok(data.iter::<f32>().collect())
}
