//! The `tf.train.Example` decoder: what it accepts, prost accepts too and reads alike.
#![no_main]

use libfuzzer_sys::fuzz_target;
use prost::Message;
use salamander_data::example_proto::Example;
use salamander_data::{Row, Value, fuzzing};

fuzz_target!(|bytes: &[u8]| {
    // Prost is more lenient about the wire type of map entries, so its word is not enough to accept.
    if let Ok(ours) = fuzzing::decode_example(bytes) {
        let theirs = Example::decode(bytes).expect("prost accepts what we accept");
        assert_eq!(comparable(&ours), comparable(&theirs.row()));
    }
});

/// A row whose floats can be compared even when they are no numbers.
fn comparable(row: &Row<'_>) -> Vec<(String, String)> {
    let show = |value: &Value<'_>| match value {
        Value::Floats(items) => {
            format!("floats {:?}", items.iter().map(|item| item.to_bits()).collect::<Vec<_>>())
        }
        other => format!("{} {other:?}", other.kind()),
    };
    let columns = row.columns().map(|(name, value)| (name.to_owned(), show(value)));
    let mut columns: Vec<(String, String)> = columns.collect();
    // Prost has a sorted map.
    columns.sort();
    columns
}
