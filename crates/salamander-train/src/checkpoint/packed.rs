//! A state as one run of bytes, for a worker that joins: the files of a checkpoint, one after the other.

use std::collections::HashMap;

use super::read::decode;
use super::write::contents;
use super::{Restored, Snapshot};

/// The longest name of a part.
const NAME: usize = 64;

/// Packs a state.
pub(crate) fn pack(snapshot: &Snapshot) -> Result<Vec<u8>, String> {
    let contents = contents(snapshot)?;
    let total: usize = contents.iter().map(|(name, bytes)| 16 + name.len() + bytes.len()).sum();
    let mut packed = Vec::with_capacity(total);
    for (name, bytes) in &contents {
        packed.extend((name.len() as u64).to_le_bytes());
        packed.extend(name.as_bytes());
        packed.extend((bytes.len() as u64).to_le_bytes());
        packed.extend(bytes);
    }
    Ok(packed)
}

/// Unpacks a state; lengths are checked before they are believed.
pub(crate) fn unpack(packed: &[u8]) -> Result<Restored, String> {
    let mut contents = HashMap::new();
    let mut rest = packed;
    while !rest.is_empty() {
        let name = take(&mut rest, NAME)?;
        let name = std::str::from_utf8(name).map_err(|error| error.to_string())?;
        let bytes = take(&mut rest, packed.len())?;
        contents.insert(name, bytes.to_vec());
    }
    decode(&mut contents)
}

fn take<'a>(rest: &mut &'a [u8], limit: usize) -> Result<&'a [u8], String> {
    let (length, after) = rest.split_first_chunk::<8>().ok_or("it is cut short")?;
    let length = usize::try_from(u64::from_le_bytes(*length)).unwrap_or(usize::MAX);
    if length > limit || length > after.len() {
        return Err("it is cut short".to_string());
    }
    let (part, after) = after.split_at(length);
    *rest = after;
    Ok(part)
}

#[cfg(test)]
mod tests {
    use burn::tensor::TensorData;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_state_survives_packing() {
        let packed = pack(&Snapshot::sample(1)).expect("packed");
        let state = unpack(&packed).expect("unpacked");
        assert_eq!(state.model["w"], TensorData::from([1.0f32]));
    }

    proptest! {
        #[test]
        fn broken_bytes_are_refused(cut in 0usize..400, flip in 0usize..400) {
            let mut packed = pack(&Snapshot::sample(1)).expect("packed");
            packed.truncate(cut);
            if let Some(byte) = packed.get_mut(flip) {
                *byte ^= 0x55;
            }
            // Never a panic; what decodes by chance is caught by the transfer's hash.
            let _ = unpack(&packed);
        }
    }
}
