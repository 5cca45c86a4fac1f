//! Files that are there completely or not at all.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use crate::Error;

/// Writes a file and waits until the disk has it.
pub(super) fn write_synced(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    let mut file = File::create(path).map_err(Error::io(path))?;
    file.write_all(bytes).map_err(Error::io(path))?;
    file.sync_all().map_err(Error::io(path))
}

/// Waits until the disk knows a folder's entries.
pub(super) fn sync_folder(path: &Path) -> Result<(), Error> {
    File::open(path).and_then(|folder| folder.sync_all()).map_err(Error::io(path))
}

/// Replaces a file in one step: readers see the old content or the new.
pub fn write_atomic(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    let beside = path.with_extension("tmp");
    write_synced(&beside, bytes)?;
    fs::rename(&beside, path).map_err(Error::io(path))?;
    path.parent().map_or(Ok(()), sync_folder)
}
