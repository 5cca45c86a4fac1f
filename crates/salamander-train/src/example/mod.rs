//! Records to examples to batches: what `#[derive(Example)]` writes and what can be written by hand.

mod buckets;
mod column;
mod kind;
mod normalise;
mod several;

use burn::tensor::{Device, FloatDType};
use salamander_core::seed::Rng;
use salamander_data::Row;

pub use buckets::{
    Lookup, ascending, bucket_floats, bucket_ints, bucket_texts, feature_or, hashed_columns, text,
    texts,
};
pub use column::{Column, Number};
pub use kind::{Float, Int, Kind, Scale, float_tensor};
pub use normalise::{Normaliser, normalised_tensor};
pub use several::{Ragged, concatenated, ragged_feature, ragged_ints, ragged_texts, shifted};

/// One record, decoded. Usually derived.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an example",
    label = "put `#[derive(Example)]` on this struct"
)]
pub trait Example: Sized + Send + 'static {
    /// What a model's `forward` takes.
    type Batch: Batch;

    /// Reads the record's columns. Without `labels` the label columns may be absent.
    fn decode(row: &Row<'_>, labels: bool) -> Result<Self, DecodeError>;

    /// Puts examples side by side into tensors.
    fn collate(examples: &[Self], device: &Device) -> Result<Self::Batch, DecodeError>;

    /// Changes the example for training: crops, flips, noise. The generator depends only on the
    /// record's place in the run.
    fn augment(&mut self, _rng: &mut Rng) {}
}

/// Tensors of several examples.
pub trait Batch: Clone + Send + 'static {
    /// How many examples.
    fn records(&self) -> usize;

    /// The same with its float features in another type, for mixed precision.
    #[must_use]
    fn cast(self, dtype: FloatDType) -> Self;
}

/// Why a record is not an example.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("column \"{column}\": {reason}")]
pub struct DecodeError {
    /// The column.
    pub column: String,
    /// What is wrong with it.
    pub reason: String,
}

impl DecodeError {
    /// An error about a column.
    pub fn new(column: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { column: column.into(), reason: reason.into() }
    }
}

/// Reads a feature: from the column of its name, or from several columns in a row.
pub fn feature<C: Column>(row: &Row<'_>, columns: &[&str]) -> Result<C, DecodeError> {
    C::read(row, columns)
}

/// Reads a label; where none is asked for and none is there, `len` zeros.
pub fn label<C: Column>(
    row: &Row<'_>,
    columns: &[&str],
    required: bool,
    len: usize,
) -> Result<C, DecodeError> {
    if !required && columns.iter().any(|column| row.get(column).is_none()) {
        return Ok(C::zeros(len));
    }
    C::read(row, columns)
}
