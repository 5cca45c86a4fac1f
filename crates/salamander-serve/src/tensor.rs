//! Tensors as the protocols carry them: JSON, little-endian bytes, and what a model computes on.

use bytes::{Buf, Bytes};
use half::{bf16, f16};
use serde::ser::{Serialize, SerializeSeq, Serializer};

/// What the values of a tensor are, by the names of the Open Inference Protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum DataType {
    Bool,
    Uint8,
    Uint16,
    Uint32,
    Uint64,
    Int8,
    Int16,
    Int32,
    Int64,
    Fp16,
    Fp32,
    Fp64,
    Bf16,
    Bytes,
}

/// All of them with their names.
const NAMES: [(DataType, &str); 14] = [
    (DataType::Bool, "BOOL"),
    (DataType::Uint8, "UINT8"),
    (DataType::Uint16, "UINT16"),
    (DataType::Uint32, "UINT32"),
    (DataType::Uint64, "UINT64"),
    (DataType::Int8, "INT8"),
    (DataType::Int16, "INT16"),
    (DataType::Int32, "INT32"),
    (DataType::Int64, "INT64"),
    (DataType::Fp16, "FP16"),
    (DataType::Fp32, "FP32"),
    (DataType::Fp64, "FP64"),
    (DataType::Bf16, "BF16"),
    (DataType::Bytes, "BYTES"),
];

impl DataType {
    /// The protocol's name.
    pub fn name(self) -> &'static str {
        NAMES.iter().find(|(kind, _)| *kind == self).map_or("", |(_, name)| name)
    }

    /// By the protocol's name.
    pub fn parse(name: &str) -> Result<Self, String> {
        NAMES.iter().find(|(_, known)| *known == name).map(|(kind, _)| *kind).ok_or_else(|| {
            let known: Vec<&str> = NAMES.iter().map(|(_, name)| *name).collect();
            format!("there is no datatype \"{name}\" (there are: {})", known.join(", "))
        })
    }

    /// Bytes of a value; texts have a length of their own.
    pub fn size(self) -> Option<usize> {
        match self {
            DataType::Bool | DataType::Uint8 | DataType::Int8 => Some(1),
            DataType::Uint16 | DataType::Int16 | DataType::Fp16 | DataType::Bf16 => Some(2),
            DataType::Uint32 | DataType::Int32 | DataType::Fp32 => Some(4),
            DataType::Uint64 | DataType::Int64 | DataType::Fp64 => Some(8),
            DataType::Bytes => None,
        }
    }

    /// Whether the values are floats.
    pub fn is_float(self) -> bool {
        matches!(self, DataType::Fp16 | DataType::Fp32 | DataType::Fp64 | DataType::Bf16)
    }

    /// The integers that fit.
    fn range(self) -> Option<(i128, i128)> {
        Some(match self {
            DataType::Bool => (0, 1),
            DataType::Uint8 => (0, u8::MAX.into()),
            DataType::Uint16 => (0, u16::MAX.into()),
            DataType::Uint32 => (0, u32::MAX.into()),
            DataType::Uint64 => (0, i64::MAX.into()),
            DataType::Int8 => (i8::MIN.into(), i8::MAX.into()),
            DataType::Int16 => (i16::MIN.into(), i16::MAX.into()),
            DataType::Int32 => (i32::MIN.into(), i32::MAX.into()),
            DataType::Int64 => (i64::MIN.into(), i64::MAX.into()),
            _ => return None,
        })
    }
}

/// The most records of a tensor without values: a shape alone must not stand for more of them than a body could hold.
const EMPTY: usize = 4096;

/// The values of a tensor, row by row.
#[derive(Clone, Debug, PartialEq)]
pub enum Values {
    /// Of `UINT8`, as they came.
    Bytes(Bytes),
    /// Of the other integers, and of `BOOL`.
    Ints(Vec<i64>),
    /// Of all floats.
    Floats(Vec<f32>),
    /// Of `BYTES`.
    Texts(Vec<Bytes>),
}

impl Values {
    /// How many.
    pub fn len(&self) -> usize {
        match self {
            Values::Bytes(bytes) => bytes.len(),
            Values::Ints(ints) => ints.len(),
            Values::Floats(floats) => floats.len(),
            Values::Texts(texts) => texts.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Some of them.
    #[must_use]
    pub fn slice(&self, range: std::ops::Range<usize>) -> Values {
        match self {
            Values::Bytes(bytes) => Values::Bytes(bytes.slice(range)),
            Values::Ints(ints) => Values::Ints(ints[range].to_vec()),
            Values::Floats(floats) => Values::Floats(floats[range].to_vec()),
            Values::Texts(texts) => Values::Texts(texts[range].to_vec()),
        }
    }

    /// From little-endian bytes; a text is its length in four bytes, then itself. Texts are as many as there are
    /// bytes for: a count from the wire takes no memory.
    pub fn from_raw(datatype: DataType, raw: Bytes) -> Result<Values, String> {
        let Some(size) = datatype.size() else { return texts(raw) };
        if !raw.len().is_multiple_of(size) {
            let (name, bytes) = (datatype.name(), raw.len());
            return Err(format!("{bytes} bytes are no whole number of {name} values"));
        }
        let ints = |one: fn(&[u8]) -> i64| Values::Ints(raw.chunks_exact(size).map(one).collect());
        let floats =
            |one: fn(&[u8]) -> f32| Values::Floats(raw.chunks_exact(size).map(one).collect());
        Ok(match datatype {
            DataType::Uint8 => Values::Bytes(raw),
            DataType::Bool => ints(|mut b| i64::from(b.get_u8() != 0)),
            DataType::Int8 => ints(|mut b| b.get_i8().into()),
            DataType::Uint16 => ints(|mut b| b.get_u16_le().into()),
            DataType::Int16 => ints(|mut b| b.get_i16_le().into()),
            DataType::Uint32 => ints(|mut b| b.get_u32_le().into()),
            DataType::Int32 => ints(|mut b| b.get_i32_le().into()),
            DataType::Int64 => ints(|mut b| b.get_i64_le()),
            DataType::Uint64 => {
                let all = raw.chunks_exact(size).map(|mut b| i64::try_from(b.get_u64_le()));
                let all = all.collect::<Result<_, _>>();
                Values::Ints(all.map_err(|_| format!("a value is more than {}", i64::MAX))?)
            }
            DataType::Fp16 => floats(|mut b| f16::from_bits(b.get_u16_le()).to_f32()),
            DataType::Bf16 => floats(|mut b| bf16::from_bits(b.get_u16_le()).to_f32()),
            DataType::Fp64 => floats(|mut b| b.get_f64_le() as f32),
            DataType::Fp32 | DataType::Bytes => floats(|mut b| b.get_f32_le()),
        })
    }

    /// Bytes that values from little-endian bytes take beside these: eight for each small integer, and a place for each
    /// text.
    pub(crate) fn grown(datatype: DataType, raw: &[u8]) -> usize {
        let each = match datatype {
            DataType::Uint8 => return 0,
            DataType::Bytes => return count_texts(raw) * size_of::<Bytes>(),
            _ if datatype.is_float() => size_of::<f32>(),
            _ => size_of::<i64>(),
        };
        let values = raw.len() / datatype.size().unwrap_or(1);
        (values * each).saturating_sub(raw.len())
    }

    /// As little-endian bytes; the inverse of [`Values::from_raw`] for the types that answers have.
    pub fn to_raw(&self) -> Bytes {
        match self {
            Values::Bytes(bytes) => bytes.clone(),
            Values::Ints(ints) => ints.iter().flat_map(|int| int.to_le_bytes()).collect(),
            Values::Floats(floats) => floats.iter().flat_map(|float| float.to_le_bytes()).collect(),
            Values::Texts(texts) => {
                let mut raw = Vec::with_capacity(texts.iter().map(|text| text.len() + 4).sum());
                for text in texts {
                    raw.extend_from_slice(&(text.len() as u32).to_le_bytes());
                    raw.extend_from_slice(text);
                }
                raw.into()
            }
        }
    }

    /// From integers, if they fit the type.
    pub fn from_ints(datatype: DataType, ints: Vec<i64>) -> Result<Values, String> {
        if datatype.is_float() {
            return Ok(Values::Floats(ints.into_iter().map(|int| int as f32).collect()));
        }
        let name = datatype.name();
        let Some((least, most)) = datatype.range() else {
            return Err(format!("numbers where {name} holds text"));
        };
        let fits = |int: &&i64| (least..=most).contains(&i128::from(**int));
        if let Some(wrong) = ints.iter().find(|int| !fits(int)) {
            return Err(format!("{wrong} does not fit {name}"));
        }
        Ok(match datatype {
            DataType::Uint8 => Values::Bytes(ints.into_iter().map(|int| int as u8).collect()),
            _ => Values::Ints(ints),
        })
    }

    /// From floats; where the type has integers they must be whole.
    pub fn from_floats(datatype: DataType, floats: Vec<f64>) -> Result<Values, String> {
        if datatype.is_float() {
            return Ok(Values::Floats(floats.into_iter().map(|float| float as f32).collect()));
        }
        let name = datatype.name();
        match floats.iter().find(|float| float.fract() != 0.0 || float.abs() > 2f64.powi(53)) {
            Some(wrong) => Err(format!("{wrong} does not fit {name}")),
            None => {
                Self::from_ints(datatype, floats.into_iter().map(|float| float as i64).collect())
            }
        }
    }
}

/// How many texts there are, also where the last one is cut off.
fn count_texts(mut raw: &[u8]) -> usize {
    let mut count = 0;
    while let Some((length, rest)) = raw.split_first_chunk::<4>() {
        count += 1;
        raw = rest.get(u32::from_le_bytes(*length) as usize..).unwrap_or_default();
    }
    count
}

fn texts(mut raw: Bytes) -> Result<Values, String> {
    let mut texts = Vec::with_capacity(count_texts(&raw));
    while !raw.is_empty() {
        let place = texts.len();
        if raw.len() < 4 {
            return Err(format!("the length of text {place} is cut off"));
        }
        let length = raw.get_u32_le() as usize;
        if raw.len() < length {
            return Err(format!("text {place} has {} of its {length} bytes", raw.len()));
        }
        texts.push(raw.split_to(length));
    }
    Ok(Values::Texts(texts))
}

/// As JSON: texts that are no UTF-8 lose what is none, as elsewhere.
impl Serialize for Values {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Values::Bytes(bytes) => to.collect_seq(bytes.iter()),
            Values::Ints(ints) => to.collect_seq(ints),
            Values::Floats(floats) => to.collect_seq(floats),
            Values::Texts(texts) => {
                let mut list = to.serialize_seq(Some(texts.len()))?;
                for text in texts {
                    list.serialize_element(&*String::from_utf8_lossy(text))?;
                }
                list.end()
            }
        }
    }
}

/// A named tensor whose first dimension is the record.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    /// Its name.
    pub name: String,
    /// What its values are.
    pub datatype: DataType,
    /// Its shape.
    pub shape: Vec<usize>,
    /// Its values.
    pub values: Values,
}

impl Tensor {
    /// A tensor whose values are as many as its shape says.
    pub fn new(
        name: impl Into<String>,
        datatype: DataType,
        shape: &[i64],
        values: Values,
    ) -> Result<Self, String> {
        let name = name.into();
        let wrong = |reason: String| format!("input \"{name}\": {reason}");
        let sizes = shape.iter().map(|size| usize::try_from(*size)).collect::<Result<Vec<_>, _>>();
        let sizes = sizes.map_err(|_| wrong(format!("shape {shape:?} has a negative size")))?;
        let count = sizes.iter().try_fold(1usize, |count, size| count.checked_mul(*size));
        if sizes.is_empty() || count != Some(values.len()) {
            let values = values.len();
            return Err(wrong(format!("shape {shape:?} does not fit {values} values")));
        }
        // Such records cost the client nothing, and each of them is decoded.
        if values.is_empty() && sizes.first().is_some_and(|records| *records > EMPTY) {
            return Err(wrong(format!(
                "shape {shape:?} has more than {EMPTY} records without a value"
            )));
        }
        Ok(Self { name, datatype, shape: sizes, values })
    }

    /// How many records.
    pub fn rows(&self) -> usize {
        self.shape.first().copied().unwrap_or_default()
    }

    /// Values of a record.
    pub fn width(&self) -> usize {
        self.shape.iter().skip(1).product()
    }

    /// Some of its records.
    #[must_use]
    pub fn rows_in(&self, rows: std::ops::Range<usize>) -> Tensor {
        let width = self.width();
        let mut shape = self.shape.clone();
        if let Some(first) = shape.first_mut() {
            *first = rows.len();
        }
        let values = self.values.slice(rows.start * width..rows.end * width);
        Tensor { name: self.name.clone(), datatype: self.datatype, shape, values }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn raw_values_are_little_endian() {
        let check = |kind, raw: &'static [u8], expected: Values| {
            assert_eq!(Values::from_raw(kind, Bytes::from_static(raw)), Ok(expected));
        };
        check(DataType::Bool, &[0, 2], Values::Ints(vec![0, 1]));
        check(DataType::Int16, &[0xff, 0xff, 1, 0], Values::Ints(vec![-1, 1]));
        check(DataType::Uint32, &[1, 0, 0, 0x80], Values::Ints(vec![0x8000_0001]));
        check(DataType::Fp16, &[0x00, 0x3e], Values::Floats(vec![1.5]));
        check(DataType::Bf16, &[0xc0, 0x3f], Values::Floats(vec![1.5]));
        check(DataType::Fp32, &[0, 0, 0xc0, 0x3f], Values::Floats(vec![1.5]));
        check(
            DataType::Bytes,
            &[1, 0, 0, 0, b'a', 0, 0, 0, 0],
            Values::Texts(vec!["a".into(), "".into()]),
        );
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let raw = |kind, raw: &'static [u8]| Values::from_raw(kind, Bytes::from_static(raw));
        let check = |found: Result<Values, String>, expected: &str| {
            assert_eq!(found, Err(expected.to_string()));
        };
        check(raw(DataType::Fp32, &[1, 2, 3]), "3 bytes are no whole number of FP32 values");
        check(
            raw(DataType::Bytes, &[255, 255, 255, 255, 1]),
            "text 0 has 1 of its 4294967295 bytes",
        );
        check(raw(DataType::Bytes, &[1, 0]), "the length of text 0 is cut off");
        check(raw(DataType::Uint64, &[255; 8]), "a value is more than 9223372036854775807");
        check(Values::from_ints(DataType::Uint8, vec![256]), "256 does not fit UINT8");
        check(Values::from_floats(DataType::Int8, vec![0.5]), "0.5 does not fit INT8");
        check(Values::from_ints(DataType::Bytes, vec![1]), "numbers where BYTES holds text");
        let shape =
            |shape: &[i64]| Tensor::new("x", DataType::Fp32, shape, Values::Floats(vec![0.0]));
        assert!(shape(&[1, 1]).is_ok());
        for wrong in [&[2][..], &[], &[-1], &[i64::MAX, i64::MAX], &[1 << 62, 4]] {
            assert!(shape(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn records_without_values_are_bounded_by_their_number() {
        let texts = |shape: &[i64]| {
            Tensor::new("x", DataType::Bytes, shape, Values::Texts(Vec::new())).map(|x| x.rows())
        };
        assert_eq!((texts(&[0]), texts(&[3, 0]), texts(&[4096, 0])), (Ok(0), Ok(3), Ok(4096)));
        for wrong in [&[4097, 0][..], &[i64::MAX, 0], &[1 << 40, 0, 1 << 40]] {
            let error = texts(wrong).unwrap_err();
            assert!(error.ends_with("has more than 4096 records without a value"), "{error}");
        }
    }

    #[test]
    fn what_values_take_beside_their_bytes_is_known_before() {
        let check = |kind, raw: &[u8], expected| assert_eq!(Values::grown(kind, raw), expected);
        check(DataType::Uint8, &[7; 100], 0);
        check(DataType::Bool, &[1; 100], 700);
        check(DataType::Fp16, &[0; 100], 100);
        check(DataType::Fp32, &[0; 100], 0);
        check(DataType::Bytes, &[0; 100], 25 * 32);
        check(DataType::Bytes, &[255; 100], 32);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(raw in prop::collection::vec(any::<u8>(), 0..200), kind in 0..14usize) {
            let _ = Values::from_raw(NAMES[kind].0, raw.into());
        }

        #[test]
        fn answers_survive_being_raw(
            ints in prop::collection::vec(any::<i64>(), 0..9),
            floats in prop::collection::vec(-1e30f32..1e30, 0..9),
            texts in prop::collection::vec("\\PC{0,9}", 0..9),
        ) {
            let same = |kind, values: Values| {
                assert_eq!(Values::from_raw(kind, values.to_raw()), Ok(values));
            };
            same(DataType::Int64, Values::Ints(ints));
            same(DataType::Fp32, Values::Floats(floats));
            same(DataType::Bytes, Values::Texts(texts.into_iter().map(Bytes::from).collect()));
        }
    }
}
