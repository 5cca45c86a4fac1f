//! Rows that a function refuses or a file holds broken: kept aside with the reason, so that one of them does not end a
//! flow and none is lost unseen.

use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

/// What stands for a function where a record could not even be read.
pub(crate) const SOURCE: &str = "source";

/// A row that did not come through.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BadRow {
    /// The function that refused it, or `source`.
    pub step: String,
    /// Why.
    pub reason: String,
    /// The row as the function got it, or the place of the record that cannot be read.
    pub row: Json,
}

/// Where functions put the rows that they refuse; cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct BadRows(Arc<Mutex<Vec<BadRow>>>);

impl BadRows {
    pub(crate) fn add(&self, row: BadRow) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(row);
    }

    /// Takes all rows out, in the order in which they came.
    pub(crate) fn take(&self) -> Vec<BadRow> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
