//! Hubs with their stores on a Postgres server, each folder of runs with a database of its own.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use salamander_hub::{Error, Hub, StoreUrl};

use crate::server::server;

static DATABASES: Mutex<Option<HashMap<PathBuf, String>>> = Mutex::new(None);

fn url(runs: &Path) -> StoreUrl {
    let mut databases = DATABASES.lock().unwrap_or_else(PoisonError::into_inner);
    let of_runs = databases.get_or_insert_default().entry(runs.to_path_buf());
    of_runs.or_insert_with(|| server().database()).parse().expect("an address")
}

/// Opens the hub of a folder of runs.
pub(crate) fn open(runs: &Path) -> Result<Hub, Error> {
    Hub::open(runs, Some(&url(runs)))
}

/// Removes its store.
pub(crate) fn forget(runs: &Path) -> Result<(), Error> {
    Hub::forget_store(runs, Some(&url(runs)))
}
