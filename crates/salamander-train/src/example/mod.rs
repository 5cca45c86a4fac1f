//! Records to examples to batches: what `#[derive(Example)]` writes and what can be written by hand.
//!
//! A loader does these two steps with every batch:
//!
//! ```
//! use salamander::data::{Row, Value};
//! use salamander::prelude::*;
//! use salamander::train::example::{Batch, Example as _, ExampleContext};
//!
//! #[derive(Example)]
//! struct Person {
//!     #[input(discretise = [18, 65])]
//!     age: f32,
//!     #[input(columns = ["height", "weight"], scale = 0.01)]
//!     size: [f32; 2],
//!     #[label]
//!     rich: u8,
//! }
//!
//! let row = |age| {
//!     let cells = [("age", age), ("height", "180"), ("weight", "75"), ("rich", "0")];
//!     Row::new(cells.map(|(name, text)| (name.into(), Value::Text(text))).into())
//! };
//! let cx = ExampleContext::labelled();
//! let people = [Person::decode(&row("17"), &cx)?, Person::decode(&row("40"), &cx)?];
//! let batch = Person::collate(&people, &cx, &Device::flex())?;
//! assert_eq!(batch.records(), 2);
//! assert_eq!(batch.age.into_data().iter::<i64>().collect::<Vec<_>>(), [0, 1]);
//! assert_eq!(batch.size.dims(), [2, 2]);
//! let error = Person::decode(&row("old"), &cx).err().expect("no number").to_string();
//! assert!(error.starts_with("column \"age\":"), "{error}");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod absent;
mod asset_files;
mod assets;
mod augment;
mod buckets;
mod column;
mod fit;
mod inputs;
mod kind;
mod normalise;
mod packed;
#[cfg(feature = "images")]
mod picture;
mod several;
mod tokenizer_files;
#[cfg(feature = "text")]
mod tokens;

use burn::tensor::{Device, FloatDType};
use salamander_core::seed::Rng;
use salamander_data::Row;

pub(crate) use absent::absent_inputs;
pub use asset_files::AssetFiles;
pub(crate) use assets::files_said;
pub use assets::{AssetKind, AssetSpec, Assets, ExampleContext, MAX_TOKENS};
pub use augment::{Augmentation, Augmented};
pub use buckets::{
    ascending, bucket_texts, bucketed, class_number, feature_or, hashed_columns, label_text,
    label_texts, text, texts,
};
pub use column::{Column, Number};
pub use fit::fit;
pub use inputs::InputSpec;
pub use kind::{Float, Int, Kind, Scale, Target, float_tensor};
pub use normalise::normalised_tensor;
pub use packed::Packed;
#[cfg(feature = "images")]
pub use picture::fitted;
pub use several::{
    Ragged, WordList, concatenated, ragged_feature, ragged_ints, ragged_texts, shifted,
};

#[cfg(feature = "text")]
pub use tokens::length::LENGTH_OF_MODEL;
#[cfg(feature = "text")]
pub use tokens::{TokenPair, Tokenizer, Tokens};

/// One record, decoded. Usually derived with `#[derive(Example)]`; by hand where a record is no row of
/// numbers and words.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an example",
    label = "put `#[derive(Example)]` on this struct"
)]
pub trait Example: Sized + Send + 'static {
    /// What a model's `forward` takes.
    type Batch: Batch;

    /// The files that it is read with: statistics and vocabularies. They are part of each run, and reach `decode` and
    /// `collate` in the context.
    const ASSETS: &'static [AssetSpec] = &[];

    /// Its inputs, as who asks a trained model is told; none where they are not known.
    const INPUTS: &'static [InputSpec] = &[];

    /// Reads the record's columns, on a thread of the loader. Without `cx.labels`, as in prediction, the label columns
    /// may be absent. An error names the column; the loader adds file and record, and skips the record if the
    /// experiment says `on_bad_record: skip`.
    fn decode(row: &Row<'_>, cx: &ExampleContext) -> Result<Self, DecodeError>;

    /// Whether examples can be kept as bytes from one epoch to the next, with the two functions below.
    const PACKED: bool = false;

    /// Appends the example as bytes.
    fn pack(&self, _out: &mut Vec<u8>) {}

    /// The example from what `pack` wrote; nothing where that is none.
    fn unpack(_bytes: &mut &[u8]) -> Option<Self> {
        None
    }

    /// Puts examples side by side into tensors: the first dimension is the record.
    fn collate(
        examples: &[Self],
        cx: &ExampleContext,
        device: &Device,
    ) -> Result<Self::Batch, DecodeError>;

    /// About how many tokens its texts have, by which requests to a served model are put together; 0 where an example
    /// is of the same size as any other.
    fn tokens(&self) -> usize {
        0
    }

    /// Names of the label's classes, for reports and predictions; none where labels are numbers.
    fn class_names(_assets: &Assets) -> Vec<String> {
        Vec::new()
    }

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

    /// What a row says of a column; any other error is taken to be about this one.
    fn of(column: &str, error: salamander_data::Error) -> Self {
        match error {
            salamander_data::Error::Column { column, reason } => Self { column, reason },
            other => Self::new(column, other.to_string()),
        }
    }
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
