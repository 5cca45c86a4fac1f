//! Doors for the fuzz targets into decoders that are private, so that these can stay private for all others.

use crate::{Row, example};

/// Decodes a `tf.train.Example`; the message says why not.
pub fn decode_example(bytes: &[u8]) -> Result<Row<'_>, String> {
    example::decode(bytes).map_err(|error| error.to_string())
}
