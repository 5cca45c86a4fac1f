//! Gradients as bf16 between device and host: half the bytes to move. The rounding is done on the bits, so that it
//! does not ask for a device with this type.

use burn::backend::CubeDevice;
use burn::cubecl::{self, prelude::*};
use burn::tensor::{DType, Shape};

use super::{GpuTensor, grid, len};

/// To nearest, ties to even; what is not a number stays so.
#[cube]
fn rounded(value: f32) -> u32 {
    let bits = u32::reinterpret(value);
    let nearest = (bits + 0x7FFFu32 + ((bits >> 16u32) & 1u32)) >> 16u32;
    let quiet = (bits >> 16u32) | 0x40u32;
    select((bits & 0x7FFF_FFFFu32) > 0x7F80_0000u32, quiet, nearest)
}

#[cube(launch)]
pub(super) fn pack_kernel(values: &[f32], words: &mut [u32]) {
    let i = ABSOLUTE_POS;
    if i < words.len() {
        let mut word = rounded(values[2 * i]);
        if 2 * i + 1 < values.len() {
            word |= rounded(values[2 * i + 1]) << 16u32;
        }
        words[i] = word;
    }
}

#[cube(launch)]
pub(super) fn unpack_kernel(words: &[u32], values: &mut [f32]) {
    let i = ABSOLUTE_POS;
    if i < values.len() {
        let word = words[i / 2];
        let bits = select(i % 2 == 0, word << 16u32, word & 0xFFFF_0000u32);
        values[i] = f32::reinterpret(bits);
    }
}

/// Rounds a bucket and reads it.
pub(crate) fn pack(bucket: GpuTensor) -> Result<Vec<u16>, String> {
    let (count, client) = (len(&bucket), bucket.client.clone());
    let words = count.div_ceil(2);
    let packed = client.empty(words * size_of::<u32>());
    let (cubes, dim) = grid(&client, words);
    let to = words_tensor(&bucket.device, packed.clone(), words).into_buffer_arg();
    pack_kernel::launch(&client, cubes, dim, bucket.into_buffer_arg(), to);
    let bytes = client.read_one(packed).map_err(|error| format!("{error:?}"))?;
    let halves = bytes.chunks_exact(2).map(|half| u16::from_le_bytes([half[0], half[1]]));
    Ok(halves.take(count).collect())
}

/// Sends rounded values to a device and widens them there.
pub(crate) fn unpack(rounded: &[u16], device: &CubeDevice) -> GpuTensor {
    let (count, client) = (rounded.len(), device.client());
    let mut bytes: Vec<u8> = rounded.iter().flat_map(|half| half.to_le_bytes()).collect();
    let words = count.div_ceil(2);
    bytes.resize(words * size_of::<u32>(), 0);
    let packed = words_tensor(device, client.create_from_slice(&bytes), words);
    let handle = client.empty(count * size_of::<f32>());
    let values = GpuTensor::new_contiguous(
        client.clone(),
        device.clone(),
        Shape::from([count]),
        handle,
        DType::F32,
    );
    let (cubes, dim) = grid(&client, count);
    let to = values.clone().into_buffer_arg();
    unpack_kernel::launch(&client, cubes, dim, packed.into_buffer_arg(), to);
    values
}

fn words_tensor(device: &CubeDevice, handle: cubecl::server::Handle, words: usize) -> GpuTensor {
    let shape = Shape::from([words]);
    GpuTensor::new_contiguous(device.client(), device.clone(), shape, handle, DType::U32)
}
