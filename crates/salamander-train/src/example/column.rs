//! Rust types that a column can be read into.

use salamander_core::seed::Rng;
use salamander_data::{MISSING_WORDS, Row, Value};

use super::augment::augment_planes;
use super::kind::{Float, Int, Kind};
use super::{Augmentation, DecodeError};

/// A type that holds the values of one input or label.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot hold an input or a label",
    label = "use a number, bool, `[T; N]` or `Vec<T>`"
)]
pub trait Column: Sized {
    /// Whether its tensor has floats or integers.
    type Kind: Kind;
    /// What its values are.
    type Item: Number;

    /// Reads the columns, in the order given.
    fn read(row: &Row<'_>, columns: &[&str]) -> Result<Self, DecodeError>;
    /// The values, in the order of the tensor.
    fn items(&self) -> impl Iterator<Item = Self::Item>;
    /// Appends the values as floats.
    fn floats(&self, out: &mut Vec<f32>) {
        out.extend(self.items().map(Number::float));
    }
    /// Appends the values as integers.
    fn ints(&self, out: &mut Vec<i64>) {
        out.extend(self.items().map(Number::int));
    }
    /// So many zeros, for a label that is absent.
    fn zeros(len: usize) -> Self;
    /// How many values.
    fn len(&self) -> usize;
    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A number that a column can hold.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot hold an input or a label",
    label = "use a number, bool, `[T; N]` or `Vec<T>`"
)]
pub trait Number: Copy + Default + Send + 'static {
    /// What its tensor holds when it stands alone.
    type Kind: Kind;
    /// What its tensor holds in a vector: bytes are pixels there, not categories.
    type VectorKind: Kind;
    /// What the Open Inference Protocol calls it.
    const DATATYPE: &'static str;

    /// From an integer, if it fits.
    fn from_int(value: i64) -> Option<Self>;
    /// From a float, if it fits.
    fn from_float(value: f64) -> Option<Self> {
        (value.fract() == 0.0).then_some(value as i64).and_then(Self::from_int)
    }
    /// As a float.
    fn float(self) -> f32;
    /// As an integer.
    fn int(self) -> i64;

    /// The values of columns, one after the other.
    fn read_all(row: &Row<'_>, columns: &[&str]) -> Result<Vec<Self>, DecodeError>;
    /// Appends all of them as floats.
    fn append_floats(values: &[Self], out: &mut Vec<f32>);
    /// Appends all of them as integers.
    fn append_ints(values: &[Self], out: &mut Vec<i64>);
    /// Changes planes of pixels as [`Augmented`](super::Augmented) says.
    fn augment_all(values: &mut [Self], shape: [usize; 3], changes: &[Augmentation], rng: &mut Rng);
}

/// What goes over all values of a column, never inlined: it is compiled with this crate, at its level of optimisation,
/// and not again in every crate that has an example, at the level of that one.
macro_rules! over_all_values {
    () => {
        #[inline(never)]
        fn read_all(row: &Row<'_>, columns: &[&str]) -> Result<Vec<Self>, DecodeError> {
            numbers(row, columns)
        }

        #[inline(never)]
        fn append_floats(values: &[Self], out: &mut Vec<f32>) {
            out.extend(values.iter().map(|value| value.float()));
        }

        #[inline(never)]
        fn append_ints(values: &[Self], out: &mut Vec<i64>) {
            out.extend(values.iter().map(|value| value.int()));
        }

        #[inline(never)]
        fn augment_all(
            values: &mut [Self],
            shape: [usize; 3],
            changes: &[Augmentation],
            rng: &mut Rng,
        ) {
            augment_planes(values, shape, changes, rng);
        }
    };
}

macro_rules! whole {
    ($($type:ty => $vector:ty, $name:literal;)*) => {
        $(impl Number for $type {
            type Kind = Int;
            type VectorKind = $vector;
            const DATATYPE: &'static str = $name;

            fn from_int(value: i64) -> Option<Self> {
                <$type>::try_from(value).ok()
            }
            fn float(self) -> f32 {
                self as f32
            }
            fn int(self) -> i64 {
                self as i64
            }
            over_all_values!();
        })*
    };
}

whole! {
    u8 => Float, "UINT8";
    i8 => Int, "INT8";
    u16 => Int, "UINT16";
    i16 => Int, "INT16";
    u32 => Int, "UINT32";
    i32 => Int, "INT32";
    u64 => Int, "UINT64";
    i64 => Int, "INT64";
}

macro_rules! real {
    ($($type:ty => $name:literal),*) => {
        $(impl Number for $type {
            type Kind = Float;
            type VectorKind = Float;
            const DATATYPE: &'static str = $name;

            fn from_int(value: i64) -> Option<Self> {
                Some(value as $type)
            }
            fn from_float(value: f64) -> Option<Self> {
                Some(value as $type)
            }
            fn float(self) -> f32 {
                self as f32
            }
            fn int(self) -> i64 {
                self as i64
            }
            over_all_values!();
        })*
    };
}

real!(f32 => "FP32", f64 => "FP64");

impl Number for bool {
    type Kind = Int;
    type VectorKind = Int;
    const DATATYPE: &'static str = "BOOL";

    fn from_int(value: i64) -> Option<Self> {
        matches!(value, 0 | 1).then_some(value == 1)
    }

    fn float(self) -> f32 {
        f32::from(u8::from(self))
    }

    fn int(self) -> i64 {
        i64::from(self)
    }

    over_all_values!();
}

impl<T: Number> Column for T {
    type Kind = T::Kind;
    type Item = T;

    fn read(row: &Row<'_>, columns: &[&str]) -> Result<Self, DecodeError> {
        let values = T::read_all(row, columns)?;
        match values.as_slice() {
            [value] => Ok(*value),
            many => Err(wrong_count(columns, many.len(), 1)),
        }
    }

    fn items(&self) -> impl Iterator<Item = T> {
        std::iter::once(*self)
    }

    fn zeros(_len: usize) -> Self {
        T::default()
    }

    fn len(&self) -> usize {
        1
    }
}

impl<T: Number> Column for Vec<T> {
    type Kind = T::VectorKind;
    type Item = T;

    fn read(row: &Row<'_>, columns: &[&str]) -> Result<Self, DecodeError> {
        T::read_all(row, columns)
    }

    fn items(&self) -> impl Iterator<Item = T> {
        self.iter().copied()
    }

    fn floats(&self, out: &mut Vec<f32>) {
        T::append_floats(self, out);
    }

    fn ints(&self, out: &mut Vec<i64>) {
        T::append_ints(self, out);
    }

    fn zeros(len: usize) -> Self {
        vec![T::default(); len]
    }

    fn len(&self) -> usize {
        self.as_slice().len()
    }
}

impl<T: Number, const N: usize> Column for [T; N] {
    type Kind = T::VectorKind;
    type Item = T;

    fn read(row: &Row<'_>, columns: &[&str]) -> Result<Self, DecodeError> {
        let values = T::read_all(row, columns)?;
        let found = values.len();
        values.try_into().map_err(|_| wrong_count(columns, found, N))
    }

    fn items(&self) -> impl Iterator<Item = T> {
        self.iter().copied()
    }

    fn floats(&self, out: &mut Vec<f32>) {
        T::append_floats(self, out);
    }

    fn ints(&self, out: &mut Vec<i64>) {
        T::append_ints(self, out);
    }

    fn zeros(_len: usize) -> Self {
        [T::default(); N]
    }

    fn len(&self) -> usize {
        N
    }
}

fn wrong_count(columns: &[&str], found: usize, needed: usize) -> DecodeError {
    DecodeError::new(columns.join(", "), format!("has {found} values, {needed} are needed"))
}

fn numbers<T: Number>(row: &Row<'_>, columns: &[&str]) -> Result<Vec<T>, DecodeError> {
    let mut out = Vec::new();
    for column in columns {
        let value = row.get(column).ok_or_else(|| {
            let known: Vec<&str> = row.columns().map(|(name, _)| name).collect();
            DecodeError::new(*column, format!("is not there (columns: {})", known.join(", ")))
        })?;
        let before = out.len();
        let fits = match value {
            Value::Bytes(bytes) => extend(&mut out, bytes.iter().map(|b| T::from_int((*b).into()))),
            Value::Ints(ints) => extend(&mut out, ints.iter().map(|v| T::from_int(*v))),
            Value::Floats(floats) => {
                extend(&mut out, floats.iter().map(|v| T::from_float((*v).into())))
            }
            Value::Text(text) => extend(&mut out, text.split_whitespace().map(parse)),
            // Several byte strings: of text that holds numbers, or nothing we can read.
            Value::List(items) => items.iter().all(|item| {
                let words = std::str::from_utf8(item).unwrap_or("not text").split_whitespace();
                extend(&mut out, words.map(parse))
            }),
        };
        if !fits || (matches!(value, Value::Text(_)) && out.len() == before) {
            return Err(DecodeError::new(*column, misfit(value, std::any::type_name::<T>())));
        }
    }
    Ok(out)
}

/// Why a value is none of a type, in words for whoever wrote the data or the example.
fn misfit(value: &Value<'_>, name: &str) -> String {
    let shown = match value {
        Value::Text(text) if text.trim().is_empty() => {
            return format!(
                "is empty where {name} is needed (an input can say what that means: missing = 0)"
            );
        }
        Value::Text(text) => format!("{text:?}"),
        Value::Ints(ints) => listed(ints),
        Value::Floats(floats) => listed(floats),
        other => format!("{other:?}"),
    };
    let shown: String = shown.chars().take(60).collect();
    let no_number = |word: &str| word.parse::<f64>().is_err();
    match value {
        Value::Text(text) if MISSING_WORDS.contains(&text.trim()) => {
            let word = text.trim();
            format!(
                "{shown} does not fit {name} (if it stands for a missing value: data: {{csv: {{missing: \
                 [{word:?}]}}}}, and the input says what that means: missing = 0)"
            )
        }
        Value::Text(text) if text.split_whitespace().all(no_number) => {
            format!(
                "{shown} does not fit {name} (words become numbers by vocabulary, hash or classes)"
            )
        }
        _ => format!("{shown} does not fit {name}"),
    }
}

/// One value as it is, several in brackets.
fn listed<T: std::fmt::Debug>(values: &[T]) -> String {
    match values {
        [only] => format!("{only:?}"),
        all => format!("{all:?}"),
    }
}

fn parse<T: Number>(word: &str) -> Option<T> {
    match word.parse::<i64>() {
        Ok(value) => T::from_int(value),
        Err(_) => word.parse::<f64>().ok().and_then(T::from_float),
    }
}

/// Appends while the values fit.
fn extend<T>(out: &mut Vec<T>, values: impl Iterator<Item = Option<T>>) -> bool {
    for value in values {
        match value {
            Some(value) => out.push(value),
            None => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use super::*;

    fn check<C: Column + std::fmt::Debug>(value: Value<'_>, expected: &str) {
        let row = Row::new(vec![(Cow::Borrowed("x"), value)]);
        let got = match C::read(&row, &["x"]) {
            Ok(value) => format!("{value:?}"),
            Err(error) => error.to_string(),
        };
        assert_eq!(got, expected);
    }

    #[test]
    fn columns_are_read_or_refused() {
        check::<u8>(Value::Ints(Cow::Borrowed(&[7])), "7");
        check::<f32>(Value::Text("1.5"), "1.5");
        check::<[f32; 3]>(Value::Text("1 2 3"), "[1.0, 2.0, 3.0]");
        check::<Vec<u8>>(Value::Bytes(&[1, 255]), "[1, 255]");
        check::<bool>(Value::Text("1"), "true");
        check::<u8>(Value::Ints(Cow::Borrowed(&[256])), "column \"x\": 256 does not fit u8");
        check::<u8>(Value::Text("-1"), "column \"x\": \"-1\" does not fit u8");
        let words = "(words become numbers by vocabulary, hash or classes)";
        let expected = format!("column \"x\": \"seven\" does not fit i64 {words}");
        check::<i64>(Value::Text("seven"), &expected);
        let absent = |word: &str, kind: &str| {
            format!(
                "column \"x\": \"{word}\" does not fit {kind} (if it stands for a missing value: data: {{csv: \
                 {{missing: [\"{word}\"]}}}}, and the input says what that means: missing = 0)"
            )
        };
        check::<f32>(Value::Text("NA"), &absent("NA", "f32"));
        check::<f32>(Value::Text("?"), &absent("?", "f32"));
        check::<i64>(Value::Text("nan"), &absent("nan", "i64"));
        let empty = "column \"x\": is empty where f32 is needed (an input can say what that means: missing = 0)";
        check::<f32>(Value::Text(" "), empty);
        check::<u8>(Value::Bytes(&[1, 2]), "column \"x\": has 2 values, 1 are needed");
        let row = Row::new(vec![(Cow::Borrowed("y"), Value::Text("1"))]);
        let error = f32::read(&row, &["x"]).expect_err("absent").to_string();
        assert_eq!(error, "column \"x\": is not there (columns: y)");
    }
}
