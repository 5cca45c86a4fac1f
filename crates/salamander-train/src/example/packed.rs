//! Examples as bytes: what a field is packed to is what it is unpacked to, to the last bit.

/// A field that can be kept as bytes.
pub trait Packed: Sized {
    /// Appends the value.
    fn pack(&self, out: &mut Vec<u8>);

    /// Cuts a value off at the front; nothing where the bytes are no such value.
    fn unpack(bytes: &mut &[u8]) -> Option<Self>;

    /// Appends one value after the other.
    fn pack_all(values: &[Self], out: &mut Vec<u8>) {
        values.iter().for_each(|value| value.pack(out));
    }

    /// Cuts so many values off at the front.
    fn unpack_all(bytes: &mut &[u8], count: usize) -> Option<Vec<Self>> {
        // No more room than the bytes can fill.
        let mut values = Vec::with_capacity(count.min(bytes.len()));
        for _ in 0..count {
            values.push(Self::unpack(bytes)?);
        }
        Some(values)
    }
}

macro_rules! numbers {
    ($($type:ty),*) => {
        $(impl Packed for $type {
            fn pack(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }

            fn unpack(bytes: &mut &[u8]) -> Option<Self> {
                let (value, rest) = bytes.split_first_chunk()?;
                *bytes = rest;
                Some(Self::from_le_bytes(*value))
            }

            // Never inlined: compiled with this crate, at its level of optimisation, and not in every crate that has
            // an example, at the level of that one.
            #[inline(never)]
            fn pack_all(values: &[Self], out: &mut Vec<u8>) {
                out.reserve(size_of_val(values));
                values.iter().for_each(|value| out.extend_from_slice(&value.to_le_bytes()));
            }

            #[inline(never)]
            fn unpack_all(bytes: &mut &[u8], count: usize) -> Option<Vec<Self>> {
                let length = count.checked_mul(size_of::<$type>())?;
                let (values, rest) = bytes.split_at_checked(length)?;
                *bytes = rest;
                let (values, _) = values.as_chunks::<{ size_of::<$type>() }>();
                Some(values.iter().map(|value| Self::from_le_bytes(*value)).collect())
            }
        })*
    };
}

numbers!(u8, i8, u16, i16, u32, i32, u64, i64, f32, f64);

impl Packed for bool {
    fn pack(&self, out: &mut Vec<u8>) {
        u8::from(*self).pack(out);
    }

    fn unpack(bytes: &mut &[u8]) -> Option<Self> {
        Some(u8::unpack(bytes)? == 1)
    }
}

impl Packed for String {
    fn pack(&self, out: &mut Vec<u8>) {
        (self.len() as u64).pack(out);
        out.extend_from_slice(self.as_bytes());
    }

    fn unpack(bytes: &mut &[u8]) -> Option<Self> {
        let length = usize::try_from(u64::unpack(bytes)?).ok()?;
        let (text, rest) = bytes.split_at_checked(length)?;
        *bytes = rest;
        Some(std::str::from_utf8(text).ok()?.to_owned())
    }
}

impl<T: Packed> Packed for Vec<T> {
    fn pack(&self, out: &mut Vec<u8>) {
        (self.len() as u64).pack(out);
        T::pack_all(self, out);
    }

    fn unpack(bytes: &mut &[u8]) -> Option<Self> {
        let length = usize::try_from(u64::unpack(bytes)?).ok()?;
        T::unpack_all(bytes, length)
    }
}

impl<T: Packed, const N: usize> Packed for [T; N] {
    fn pack(&self, out: &mut Vec<u8>) {
        T::pack_all(self, out);
    }

    fn unpack(bytes: &mut &[u8]) -> Option<Self> {
        T::unpack_all(bytes, N)?.try_into().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_survive_to_the_last_bit() {
        fn check<T: Packed + PartialEq + std::fmt::Debug>(value: T) {
            let mut bytes = Vec::new();
            value.pack(&mut bytes);
            let whole = bytes.len();
            let mut rest = &bytes[..];
            assert_eq!(T::unpack(&mut rest), Some(value));
            assert!(rest.is_empty());
            for length in 0..whole {
                assert_eq!(T::unpack(&mut &bytes[..length]), None, "{length} of {whole}");
            }
        }
        check(-0.0f32);
        check(u64::MAX);
        check(true);
        check("Zürich".to_string());
        check(vec![1i64, -1]);
        check([1.5f64, f64::MIN_POSITIVE]);
        check(["a".to_string(), String::new()]);
        let mut nan = Vec::new();
        f32::from_bits(0x7fc0_1234).pack(&mut nan);
        assert_eq!(f32::unpack(&mut &nan[..]).map(f32::to_bits), Some(0x7fc0_1234));
        assert_eq!(Vec::<u8>::unpack(&mut &u64::MAX.to_le_bytes()[..]), None);
    }
}
