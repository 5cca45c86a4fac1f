//! Hubs with their stores in files.

use std::path::Path;

use salamander_hub::{Error, Hub};

/// Opens the hub of a folder of runs.
pub(crate) fn open(runs: &Path) -> Result<Hub, Error> {
    Hub::open(runs, None)
}

/// Removes its store.
pub(crate) fn forget(runs: &Path) -> Result<(), Error> {
    Hub::forget_store(runs, None)
}
