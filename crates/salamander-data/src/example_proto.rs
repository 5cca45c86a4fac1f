//! TensorFlow's `tf.train.Example`, the usual content of a record, written by hand from its `.proto` file
//! (<https://github.com/tensorflow/tensorflow/blob/master/tensorflow/core/example/example.proto>) so that no
//! code generation is needed for three small messages.

use std::borrow::Cow;
use std::collections::BTreeMap;

use prost::Message;

use crate::{Row, Value};

/// One record: named features.
#[derive(Clone, PartialEq, Message)]
pub struct Example {
    /// The features.
    #[prost(message, optional, tag = "1")]
    pub features: Option<Features>,
}

/// The features of a record by name.
#[derive(Clone, PartialEq, Message)]
pub struct Features {
    /// Name and feature.
    #[prost(btree_map = "string, message", tag = "1")]
    pub feature: BTreeMap<String, Feature>,
}

/// One feature: a list of values of one kind.
#[derive(Clone, PartialEq, Message)]
pub struct Feature {
    /// The list; a feature without one counts as missing.
    #[prost(oneof = "FeatureList", tags = "1, 2, 3")]
    pub kind: Option<FeatureList>,
}

/// The kinds of lists.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum FeatureList {
    /// Strings of bytes.
    #[prost(message, tag = "1")]
    BytesList(BytesList),
    /// Floating-point numbers.
    #[prost(message, tag = "2")]
    FloatList(FloatList),
    /// Integers.
    #[prost(message, tag = "3")]
    Int64List(Int64List),
}

/// Strings of bytes.
#[derive(Clone, PartialEq, Message)]
pub struct BytesList {
    /// The strings.
    #[prost(bytes = "vec", repeated, tag = "1")]
    pub value: Vec<Vec<u8>>,
}

/// Floating-point numbers.
#[derive(Clone, PartialEq, Message)]
pub struct FloatList {
    /// The numbers.
    #[prost(float, repeated, packed = "true", tag = "1")]
    pub value: Vec<f32>,
}

/// Integers.
#[derive(Clone, PartialEq, Message)]
pub struct Int64List {
    /// The numbers.
    #[prost(int64, repeated, packed = "true", tag = "1")]
    pub value: Vec<i64>,
}

impl Example {
    /// An example of these features.
    ///
    /// ```
    /// use salamander_data::example_proto::{Example, Feature};
    ///
    /// let example = Example::new([("image", Feature::bytes([0; 784])), ("label", Feature::ints([7]))]);
    /// assert_eq!(example.row().ints("label")?, [7]);
    /// let record: Vec<u8> = example.to_bytes();
    /// # assert!(record.len() > 784);
    /// # Ok::<(), salamander_data::Error>(())
    /// ```
    pub fn new<N: Into<String>>(features: impl IntoIterator<Item = (N, Feature)>) -> Example {
        let feature = features.into_iter().map(|(name, feature)| (name.into(), feature)).collect();
        Example { features: Some(Features { feature }) }
    }

    /// The record's bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.encode_to_vec()
    }

    /// The same content as a row, columns sorted by name.
    pub fn row(&self) -> Row<'_> {
        let features = self.features.iter().flat_map(|features| &features.feature);
        let columns = features.filter_map(|(name, feature)| {
            let value = feature.kind.as_ref()?.value();
            Some((Cow::Borrowed(name.as_str()), value))
        });
        Row::new(columns.collect())
    }
}

impl Feature {
    /// A feature of one string of bytes.
    pub fn bytes(value: impl Into<Vec<u8>>) -> Feature {
        Feature::bytes_list(vec![value.into()])
    }

    /// A feature of several strings of bytes.
    pub fn bytes_list(value: Vec<Vec<u8>>) -> Feature {
        Feature { kind: Some(FeatureList::BytesList(BytesList { value })) }
    }

    /// A feature of floating-point numbers.
    pub fn floats(value: impl Into<Vec<f32>>) -> Feature {
        Feature { kind: Some(FeatureList::FloatList(FloatList { value: value.into() })) }
    }

    /// A feature with the content of a value; text becomes its UTF-8 bytes.
    pub fn from_value(value: &Value<'_>) -> Feature {
        match value {
            Value::Bytes(bytes) => Feature::bytes(*bytes),
            Value::List(items) => {
                Feature::bytes_list(items.iter().map(|item| item.to_vec()).collect())
            }
            Value::Text(text) => Feature::bytes(*text),
            Value::Ints(items) => Feature::ints(&**items),
            Value::Floats(items) => Feature::floats(&**items),
        }
    }

    /// A feature of integers.
    pub fn ints(value: impl Into<Vec<i64>>) -> Feature {
        Feature { kind: Some(FeatureList::Int64List(Int64List { value: value.into() })) }
    }
}

impl FeatureList {
    fn value(&self) -> Value<'_> {
        match self {
            FeatureList::BytesList(list) => match &list.value[..] {
                [one] => Value::Bytes(one),
                many => Value::List(many.iter().map(Vec::as_slice).collect()),
            },
            FeatureList::FloatList(list) => Value::Floats(Cow::Borrowed(&list.value)),
            FeatureList::Int64List(list) => Value::Ints(Cow::Borrowed(&list.value)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_become_examples_and_rows_again() {
        let columns = vec![
            ("a".into(), Value::Ints(vec![1, -2].into())),
            ("b".into(), Value::Floats(vec![0.5].into())),
            ("c".into(), Value::Bytes(&[0xff])),
            ("d".into(), Value::List(vec![b"x", b""])),
        ];
        let of = |row: &Row<'_>| {
            Example::new(row.columns().map(|(name, value)| (name, Feature::from_value(value))))
        };
        let row = Row::new(columns);
        assert_eq!(of(&row).row(), row);
        let text = Row::new(vec![("t".into(), Value::Text("ada"))]);
        assert_eq!(of(&text).row().get("t"), Some(&Value::Bytes(b"ada")));
    }

    #[test]
    fn bytes_are_those_tensorflow_writes() {
        let check = |example: Example, expected: &[u8]| assert_eq!(example.to_bytes(), expected);
        check(
            Example::new([("a", Feature::ints([5, -1]))]),
            b"\x0a\x16\x0a\x14\x0a\x01a\x12\x0f\x1a\x0d\x0a\x0b\x05\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        );
        check(
            Example::new([("b", Feature::floats([1.0]))]),
            b"\x0a\x0f\x0a\x0d\x0a\x01b\x12\x08\x12\x06\x0a\x04\0\0\x80\x3f",
        );
        check(
            Example::new([("c", Feature::bytes("xy"))]),
            b"\x0a\x0d\x0a\x0b\x0a\x01c\x12\x06\x0a\x04\x0a\x02xy",
        );
    }
}
