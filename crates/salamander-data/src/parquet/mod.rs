//! Parquet: columns in row groups, read by record number.
//!
//! `source` gives the parquet crate its bytes, `layout` cuts row groups into blocks of a few megabytes that
//! are decoded and cached whole, `column` turns Arrow's many types into our few, and [`ParquetFile`] puts
//! these together. [`Batches`] hands out Arrow's own batches for those who want whole columns.

mod batches;
mod column;
mod file;
mod layout;
mod source;

pub use batches::Batches;
pub use file::ParquetFile;

pub(crate) use file::Cache;
