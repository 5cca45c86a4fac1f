//! Reads and writes the insides of frames: 8-byte words, texts and arrays, each starting at a
//! multiple of 8 bytes, so that arrays can be used where they lie.

use bytemuck::{AnyBitPattern, NoUninit};

use super::Error;

/// Reads a body from front to back; every length is checked against what is there.
#[derive(Clone, Debug)]
pub struct Cursor<'a> {
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    /// Starts at the first byte of a body, which has to be aligned for words.
    pub fn new(body: &'a [u8]) -> Self {
        Self { rest: body }
    }

    /// The next word.
    pub fn u64(&mut self) -> Result<u64, Error> {
        let (word, rest) = self.rest.split_first_chunk().ok_or(Error::Short)?;
        self.rest = rest;
        Ok(u64::from_le_bytes(*word))
    }

    /// The next word, if it is one.
    pub fn optional(&mut self) -> Result<Option<u64>, Error> {
        self.u64().map(|word| word.checked_sub(1))
    }

    /// The next word, which has to fit.
    pub fn u32(&mut self) -> Result<u32, Error> {
        self.u64()?.try_into().map_err(|_| Error::Range)
    }

    /// The next word as a number of things that take at least `width` bytes each, and so cannot be
    /// more than the bytes that are left allow.
    pub fn count(&mut self, width: usize) -> Result<usize, Error> {
        let count = usize::try_from(self.u64()?).map_err(|_| Error::Short)?;
        if count > self.rest.len() / width.max(1) { Err(Error::Short) } else { Ok(count) }
    }

    /// The next word as a number.
    pub fn f64(&mut self) -> Result<f64, Error> {
        self.u64().map(f64::from_bits)
    }

    /// The next word as a short number.
    pub fn f32(&mut self) -> Result<f32, Error> {
        self.u32().map(f32::from_bits)
    }

    /// So many values, in place; what fills them up to whole words is skipped.
    pub fn array<T: AnyBitPattern>(&mut self, count: usize) -> Result<&'a [T], Error> {
        let length = count.checked_mul(size_of::<T>()).ok_or(Error::Short)?;
        let padded = length.checked_next_multiple_of(8).ok_or(Error::Short)?;
        let (bytes, rest) = self.rest.split_at_checked(padded).ok_or(Error::Short)?;
        self.rest = rest;
        bytemuck::try_cast_slice(&bytes[..length]).map_err(|_| Error::Unaligned)
    }

    /// A text and its length before it.
    pub fn text(&mut self) -> Result<&'a str, Error> {
        let length = self.count(1)?;
        std::str::from_utf8(self.array(length)?).map_err(|_| Error::Text)
    }

    /// Ends the body, which has to be used up.
    pub fn end(self) -> Result<(), Error> {
        if self.rest.is_empty() { Ok(()) } else { Err(Error::Long(self.rest.len())) }
    }
}

/// The first bytes of a body for which memory is taken before they are there.
const FIRST: usize = 1 << 20;

/// Receives a body, aligned for words, in pieces of so many bytes at most. Memory is taken with the bytes that come
/// rather than for what a header promises.
pub(crate) fn fill<E>(
    body: &mut Vec<u64>,
    length: usize,
    piece: usize,
    mut receive: impl FnMut(&mut [u8]) -> Result<(), E>,
) -> Result<(), E> {
    let mut filled = 0;
    while filled < length {
        if filled == body.len() * 8 {
            let wanted = length.min((filled * 2).max(FIRST));
            body.resize(wanted.div_ceil(8), 0);
        }
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(body);
        let end = length.min(bytes.len()).min(filled + piece);
        receive(&mut bytes[filled..end])?;
        filled = end;
    }
    Ok(())
}

/// Writes what [`Cursor`] reads.
#[derive(Clone, Debug, Default)]
pub struct WireWriter {
    bytes: Vec<u8>,
}

impl WireWriter {
    /// A word.
    pub fn u64(&mut self, word: u64) -> &mut Self {
        self.bytes.extend_from_slice(&word.to_le_bytes());
        self
    }

    /// A word or none: zero is nothing, and counters have far less than 64 bits.
    pub fn optional(&mut self, word: Option<u64>) -> &mut Self {
        self.u64(word.map_or(0, |word| word.saturating_add(1)))
    }

    /// A number as a word.
    pub fn f64(&mut self, number: f64) -> &mut Self {
        self.u64(number.to_bits())
    }

    /// A short number as a word.
    pub fn f32(&mut self, number: f32) -> &mut Self {
        self.u64(number.to_bits().into())
    }

    /// Values, filled up to whole words.
    pub fn array<T: NoUninit>(&mut self, values: &[T]) -> &mut Self {
        self.bytes.extend_from_slice(bytemuck::cast_slice(values));
        self.bytes.resize(self.bytes.len().next_multiple_of(8), 0);
        self
    }

    /// A text.
    pub fn text(&mut self, text: &str) -> &mut Self {
        self.u64(text.len() as u64).array(text.as_bytes())
    }

    /// All that was written.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_was_written_is_read(
            word: u64, number: f64, short: f32, text: String, halves: Vec<u16>, ids: Vec<u64>,
        ) {
            let mut writer = WireWriter::default();
            writer.u64(word).f64(number).f32(short).text(&text);
            writer.u64(halves.len() as u64).array(&halves).u64(ids.len() as u64).array(&ids);
            let bytes = writer.into_bytes();
            let words = crate::wire::tests::words(&bytes);
            let mut cursor = Cursor::new(bytemuck::cast_slice(&words));
            prop_assert_eq!(cursor.u64(), Ok(word));
            prop_assert_eq!(cursor.f64().map(f64::to_bits), Ok(number.to_bits()));
            prop_assert_eq!(cursor.f32().map(f32::to_bits), Ok(short.to_bits()));
            prop_assert_eq!(cursor.text(), Ok(text.as_str()));
            let count = cursor.count(2).expect("a count");
            prop_assert_eq!(cursor.array(count), Ok(&halves[..]));
            let count = cursor.count(8).expect("a count");
            prop_assert_eq!(cursor.array(count), Ok(&ids[..]));
            prop_assert_eq!(cursor.end(), Ok(()));
        }
    }

    #[test]
    fn lies_about_lengths_are_errors() {
        let words = [u64::MAX, 3, 0];
        let all = Cursor::new(bytemuck::cast_slice(&words));
        assert_eq!(all.clone().count(1), Err(Error::Short));
        assert_eq!(all.clone().u32(), Err(Error::Range));
        assert_eq!(all.clone().array::<u64>(usize::MAX), Err(Error::Short));
        assert_eq!(all.clone().array::<u64>(4), Err(Error::Short));
        assert_eq!(all.clone().text(), Err(Error::Short));
        assert_eq!(all.end(), Err(Error::Long(24)));
    }
}
