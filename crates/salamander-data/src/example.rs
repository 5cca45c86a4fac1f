//! Decodes a `tf.train.Example` into a row that borrows its bytes; prost would copy every image twice.
//!
//! The result is what prost's decoding of [`example_proto`](crate::example_proto) gives, merging of repeated
//! fields included; the tests compare the two.

use std::borrow::Cow;

use prost::Message;
use prost::encoding::{WireType, encode_key, encode_varint};

use crate::example_proto::Feature;
use crate::recordio::RECORD_COLUMN;
use crate::wire::{Error, Field, Wire};
use crate::{Row, Value};

/// A record of RecordIO or TFRecord as a row: a valid `tf.train.Example` with at least one feature becomes
/// its features; anything else becomes the single column [`RECORD_COLUMN`].
pub(crate) fn row(bytes: &[u8]) -> Row<'_> {
    match decode(bytes) {
        Ok(row) if row.columns().len() > 0 => row,
        _ => Row::new(vec![(RECORD_COLUMN.into(), Value::Bytes(bytes))]),
    }
}

/// Columns in the order of the bytes, which is the one they were written in; of a name that occurs twice the last one
/// counts, and a feature without a kind is no column.
pub(crate) fn decode(bytes: &[u8]) -> Result<Row<'_>, Error> {
    let mut features = Vec::new();
    let mut example = Wire::new(bytes);
    while let Some((number, field)) = example.next()? {
        if number == 1 {
            read_features(field.bytes()?, &mut features)?;
        }
    }
    drop_replaced(&mut features);
    let columns =
        features.into_iter().filter_map(|(name, value)| Some((Cow::Borrowed(name), value?)));
    Ok(Row::new(columns.collect()))
}

/// Leaves the last of features that have the same name.
fn drop_replaced(features: &mut Vec<NamedFeature<'_>>) {
    let mut order: Vec<usize> = (0..features.len()).collect();
    order.sort_unstable_by_key(|&place| (features[place].0, place));
    let same = |pair: &[usize]| features[pair[0]].0 == features[pair[1]].0;
    let mut last = vec![true; features.len()];
    for pair in order.windows(2).filter(|pair| same(pair)) {
        last[pair[0]] = false;
    }
    let mut last = last.into_iter();
    features.retain(|_| last.next().unwrap_or(true));
}

/// The bytes of a row, its columns in their order: the fields of a map may come in any.
pub(crate) fn encode(row: &Row<'_>) -> Vec<u8> {
    let mut features = Vec::new();
    for (name, value) in row.columns() {
        let mut entry = Vec::new();
        put(&mut entry, 1, name.as_bytes());
        put(&mut entry, 2, &Feature::from_value(value).encode_to_vec());
        put(&mut features, 1, &entry);
    }
    let mut example = Vec::with_capacity(features.len() + 8);
    put(&mut example, 1, &features);
    example
}

/// Appends a field of bytes.
fn put(out: &mut Vec<u8>, number: u32, bytes: &[u8]) {
    encode_key(number, WireType::LengthDelimited, out);
    encode_varint(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

type NamedFeature<'a> = (&'a str, Option<Value<'a>>);

fn read_features<'a>(bytes: &'a [u8], features: &mut Vec<NamedFeature<'a>>) -> Result<(), Error> {
    let mut map = Wire::new(bytes);
    while let Some((number, field)) = map.next()? {
        if number == 1 {
            features.push(read_entry(field.bytes()?)?);
        }
    }
    Ok(())
}

fn read_entry(bytes: &[u8]) -> Result<NamedFeature<'_>, Error> {
    let (mut name, mut value) = ("", None);
    let mut entry = Wire::new(bytes);
    while let Some((number, field)) = entry.next()? {
        match number {
            1 => name = std::str::from_utf8(field.bytes()?).map_err(|_| Error::Name)?,
            2 => read_feature(field.bytes()?, &mut value)?,
            _ => {}
        }
    }
    Ok((name, value))
}

/// Merges a feature into `value`: lists of the same kind are joined, another kind takes the place.
fn read_feature<'a>(bytes: &'a [u8], value: &mut Option<Value<'a>>) -> Result<(), Error> {
    let mut feature = Wire::new(bytes);
    while let Some((number, field)) = feature.next()? {
        if !(1..=3).contains(&number) {
            continue;
        }
        let list = field.bytes()?;
        *value = Some(match (number, value.take()) {
            (1, Some(old @ (Value::Bytes(_) | Value::List(_)))) => read_bytes(list, old)?,
            (1, _) => read_bytes(list, Value::List(Vec::new()))?,
            (2, Some(Value::Floats(old))) => read_floats(list, old.into_owned())?,
            (2, _) => read_floats(list, Vec::new())?,
            (_, Some(Value::Ints(old))) => read_ints(list, old.into_owned())?,
            (_, _) => read_ints(list, Vec::new())?,
        });
    }
    Ok(())
}

fn read_bytes<'a>(list: &'a [u8], mut value: Value<'a>) -> Result<Value<'a>, Error> {
    let mut list = Wire::new(list);
    while let Some((number, field)) = list.next()? {
        if number != 1 {
            continue;
        }
        let item = field.bytes()?;
        value = match value {
            Value::Bytes(first) => Value::List(vec![first, item]),
            Value::List(mut items) if !items.is_empty() => {
                items.push(item);
                Value::List(items)
            }
            _ => Value::Bytes(item),
        };
    }
    Ok(value)
}

/// Packed or not: old writers use the second form.
fn read_floats<'a>(list: &'a [u8], mut items: Vec<f32>) -> Result<Value<'a>, Error> {
    let mut list = Wire::new(list);
    while let Some((number, field)) = list.next()? {
        match field {
            _ if number != 1 => {}
            Field::Fixed32(bytes) => items.push(f32::from_le_bytes(bytes)),
            Field::Bytes(packed) => {
                items.reserve(packed.len() / 4);
                let mut packed = Wire::new(packed);
                while !packed.is_empty() {
                    items.push(f32::from_le_bytes(packed.fixed32()?));
                }
            }
            other => return Err(other.unexpected()),
        }
    }
    Ok(Value::Floats(items.into()))
}

/// Packed or not: old writers use the second form.
fn read_ints<'a>(list: &'a [u8], mut items: Vec<i64>) -> Result<Value<'a>, Error> {
    let mut list = Wire::new(list);
    while let Some((number, field)) = list.next()? {
        match field {
            _ if number != 1 => {}
            Field::Varint(item) => items.push(item as i64),
            Field::Bytes(packed) => {
                let mut packed = Wire::new(packed);
                while !packed.is_empty() {
                    items.push(packed.varint()? as i64);
                }
            }
            other => return Err(other.unexpected()),
        }
    }
    Ok(Value::Ints(items.into()))
}

#[cfg(test)]
mod tests {
    use proptest::collection::{btree_map, vec};
    use proptest::prelude::*;
    use prost::Message as _;

    use super::*;
    use crate::example_proto::Example;

    /// A row whose floats can be compared even when they are no numbers.
    fn comparable(row: &Row<'_>) -> Vec<(String, String)> {
        row.columns()
            .map(|(name, value)| {
                let text = match value {
                    Value::Floats(items) => {
                        format!("{:?}", items.iter().map(|item| item.to_bits()).collect::<Vec<_>>())
                    }
                    other => format!("{other:?}"),
                };
                (name.to_owned(), format!("{} {text}", value.kind()))
            })
            .collect()
    }

    /// True when a map entry has another wire type than protobuf says, which prost does not check.
    fn prost_is_lenient(bytes: &[u8]) -> bool {
        let mut example = Wire::new(bytes);
        while let Ok(Some((number, field))) = example.next() {
            let mut features = match field {
                Field::Bytes(bytes) if number == 1 => Wire::new(bytes),
                _ => continue,
            };
            while let Ok((number, wire_type)) = features.key() {
                if number == 1 && wire_type != 2 {
                    return true;
                }
                if features.value(number, wire_type, 0).is_err() {
                    break;
                }
            }
        }
        false
    }

    fn agrees_with_prost(bytes: &[u8]) {
        if prost_is_lenient(bytes) {
            assert!(decode(bytes).is_err());
            return;
        }
        let theirs = Example::decode(bytes).ok();
        let theirs = theirs.as_ref().map(|example| comparable(&example.row()));
        let ours = decode(bytes).ok().as_ref().map(comparable).map(|mut columns| {
            columns.sort();
            columns
        });
        assert_eq!(ours, theirs, "{bytes:02x?}");
    }

    #[test]
    fn merging_follows_protobuf() {
        let check = |bytes: &[u8], expected: Value<'_>| {
            agrees_with_prost(bytes);
            assert_eq!(decode(bytes).unwrap().get("a"), Some(&expected));
        };
        // Example { Features { entry { "a", Feature { int64_list { packed 5, 6 } } } } }.
        let packed = [10, 13, 10, 11, 10, 1, b'a', 18, 6, 26, 4, 10, 2, 5, 6];
        check(&packed, Value::Ints(vec![5, 6].into()));
        // The same without packing.
        let plain = [10, 13, 10, 11, 10, 1, b'a', 18, 6, 26, 4, 8, 5, 8, 6];
        check(&plain, Value::Ints(vec![5, 6].into()));
        // The name again: the last one counts.
        let last = [10, 11, 10, 9, 10, 1, b'a', 18, 4, 26, 2, 8, 9];
        check(&[&packed[..], &last].concat(), Value::Ints(vec![9].into()));
        // Two values in one entry are joined.
        let joined = [10, 17, 10, 15, 10, 1, b'a', 18, 4, 26, 2, 8, 5, 18, 4, 26, 2, 8, 6];
        check(&joined, Value::Ints(vec![5, 6].into()));
        // Of two kinds in one feature the second takes the place.
        let kinds = [10, 15, 10, 13, 10, 1, b'a', 18, 8, 26, 2, 8, 5, 10, 2, 10, 0];
        check(&kinds, Value::Bytes(b""));
    }

    #[test]
    fn columns_keep_their_order() {
        let row = Row::new(vec![
            ("z".into(), Value::Ints(vec![1].into())),
            ("a".into(), Value::Bytes(b"x")),
            ("m".into(), Value::Floats(vec![0.5, 1.5].into())),
        ]);
        let bytes = encode(&row);
        agrees_with_prost(&bytes);
        assert_eq!(decode(&bytes).unwrap(), row);
        // A name that comes again takes the last place.
        let again = [bytes, encode(&Row::new(vec![("z".into(), Value::Bytes(b"y"))]))].concat();
        let found = decode(&again).unwrap();
        assert_eq!(found.columns().map(|(name, _)| name).collect::<Vec<_>>(), ["a", "m", "z"]);
    }

    #[test]
    fn damage_is_refused_as_prost_refuses_it() {
        let check = |bytes: &[u8]| {
            agrees_with_prost(bytes);
            assert!(decode(bytes).is_err());
        };
        check(&[10, 2, 0]);
        check(&[8, 1]);
        check(&[10, 2, 8, 0]);
        check(&[10, 5, 10, 3, 10, 1, 0xff]);
        check(&[10, 12, 10, 10, 10, 1, b'a', 18, 5, 18, 3, 10, 1, 0]);
        check(&[10, 11, 10, 9, 10, 1, b'a', 18, 4, 18, 2, 8, 5]);
    }

    fn feature() -> impl Strategy<Value = Feature> {
        prop_oneof![
            vec(vec(any::<u8>(), 0..20), 0..4).prop_map(Feature::bytes_list),
            vec(any::<u32>().prop_map(f32::from_bits), 0..6).prop_map(Feature::floats),
            vec(any::<i64>(), 0..6).prop_map(Feature::ints),
            Just(Feature::default()),
        ]
    }

    fn example() -> impl Strategy<Value = Example> {
        btree_map("[a-c\u{e9}]{0,2}", feature(), 0..5).prop_map(Example::new)
    }

    proptest! {
        #[test]
        fn what_prost_writes_is_read_alike(example in example()) {
            agrees_with_prost(&example.to_bytes());
        }

        #[test]
        fn joined_examples_are_read_alike(first in example(), second in example()) {
            agrees_with_prost(&[first.to_bytes(), second.to_bytes()].concat());
        }

        #[test]
        fn damaged_examples_are_read_alike(
            example in example(),
            changes in vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
            cut in any::<prop::sample::Index>(),
        ) {
            let mut bytes = example.to_bytes();
            for (at, byte) in changes {
                if !bytes.is_empty() {
                    let at = at.index(bytes.len());
                    bytes[at] = byte;
                }
            }
            agrees_with_prost(&bytes);
            bytes.truncate(cut.index(bytes.len() + 1));
            agrees_with_prost(&bytes);
        }

        #[test]
        fn any_bytes_are_read_alike(bytes in vec(prop_oneof![0u8..32, any::<u8>()], 0..64)) {
            agrees_with_prost(&bytes);
        }
    }
}
