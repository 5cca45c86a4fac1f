//! TFRecord framing: length, checksum of it, bytes, checksum of them; checksums are CRC-32C, masked.

use std::io::{self, Write};

/// Added to a rotated checksum, so that one of bytes that hold checksums is not weak.
const MASK: u32 = 0xa282_ead8;

/// Writes one record.
pub fn write(out: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    let length = (bytes.len() as u64).to_le_bytes();
    out.write_all(&length)?;
    out.write_all(&masked(&length).to_le_bytes())?;
    out.write_all(bytes)?;
    out.write_all(&masked(bytes).to_le_bytes())
}

fn masked(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes).rotate_right(15).wrapping_add(MASK)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The records of a file, and whether it ends with one.
    fn read(mut file: &[u8]) -> Option<Vec<Vec<u8>>> {
        let mut records = Vec::new();
        while !file.is_empty() {
            let (length, rest) = file.split_at_checked(8)?;
            let (checksum, rest) = rest.split_at_checked(4)?;
            assert_eq!(checksum, masked(length).to_le_bytes());
            let length = u64::from_le_bytes(length.try_into().ok()?) as usize;
            let (bytes, rest) = rest.split_at_checked(length)?;
            let (checksum, rest) = rest.split_at_checked(4)?;
            assert_eq!(checksum, masked(bytes).to_le_bytes());
            records.push(bytes.to_vec());
            file = rest;
        }
        Some(records)
    }

    #[test]
    fn checksums_are_those_of_the_format() {
        let mut file = Vec::new();
        write(&mut file, b"").expect("memory");
        // An empty record, as TensorFlow writes it.
        let expected = [0, 0, 0, 0, 0, 0, 0, 0, 0x29, 0x03, 0x98, 0x07, 0xd8, 0xea, 0x82, 0xa2];
        assert_eq!(file, expected);
    }

    proptest! {
        #[test]
        fn records_come_back(
            records in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..300), 0..20),
        ) {
            let mut file = Vec::new();
            for record in &records {
                write(&mut file, record).expect("memory");
            }
            prop_assert_eq!(read(&file), Some(records));
        }
    }
}
