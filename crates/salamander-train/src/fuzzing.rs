//! Doors for the fuzz targets into decoders that are private, so that these can stay private for all others.

use std::path::Path;

use crate::checkpoint::{Counted, Manifest, parse_manifest, unpack};

/// Unpacks the state that a worker sends to one that joins; the names of the parameters in it.
pub fn unpack_state(bytes: &[u8]) -> Result<Vec<String>, String> {
    unpack(bytes).map(|state| state.model.into_keys().collect())
}

/// Reads the manifest of a checkpoint.
pub fn manifest(bytes: &[u8]) -> Result<Manifest, String> {
    parse_manifest(Path::new("fuzzed"), bytes).map_err(|error| error.to_string())
}

/// Reads the list of checkpoints that count.
pub fn counted(bytes: &[u8]) -> Result<Counted, String> {
    Counted::parse(bytes)
}
