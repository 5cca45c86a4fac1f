//! Files that are there completely or not at all, with this crate's errors.

use std::path::Path;

use salamander_files::{Durability, replace};

use crate::Error;

/// Writes a file and waits until the disk has it.
pub(super) fn write_synced(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    salamander_files::write_synced(path, bytes).map_err(Error::io(path))
}

/// Replaces a file in one step: readers see the old content or the new.
pub(crate) fn write_atomic(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    replace(path, bytes, Durability::Synced).map_err(Error::io(path))
}
