//! Parquet: columns in row groups, read by record number.
//!
//! `source` gives the parquet crate its bytes, `layout` cuts row groups into blocks of a few megabytes that
//! are decoded and cached whole, `column` turns Arrow's many types into our few, and [`ParquetFile`] puts
//! these together. [`Batches`] hands out Arrow's own batches for those who want whole columns.

#[cfg(feature = "parquet")]
mod batches;
#[cfg(feature = "parquet")]
mod column;
#[cfg(feature = "parquet")]
mod file;
#[cfg(feature = "parquet")]
mod layout;
#[cfg(feature = "parquet")]
mod source;

#[cfg(feature = "parquet")]
pub use batches::Batches;
#[cfg(feature = "parquet")]
pub use file::ParquetFile;

use crate::format::Definition;

pub(crate) static FORMAT: Definition = Definition {
    endings: &["parquet"],
    begins: |start| start.starts_with(b"PAR1"),
    #[cfg(feature = "parquet")]
    open: Some(file::open),
    #[cfg(feature = "parquet")]
    create: Some(crate::sink::parquet::create),
    ..Definition::named("parquet")
};
