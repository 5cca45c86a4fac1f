//! Record files: formats, indexes and datasets, so that training can ask for any record by its number.
//!
//! # Layout
//!
//! - [`Reader`] is what a source of records implements: it lists [`Shard`]s and reads a range of one.
//! - [`Format`] is the table of formats: names, endings, first bytes, how to open and to write.
//! - [`open`] and [`open_indexed`] turn places into a [`Reader`], one shard per file, by that table; `places`
//!   finds the files and `index_cache` keeps their indexes.
//! - [`Blob`] is a file or object that formats read by position; `stamp` notices a changed file, `remote`
//!   reads from S3, Google, Azure and http through a cache of blocks, `part_cache` bounds what is kept in memory.
//! - [`Dataset`] numbers the records of all shards in one row and reads any list of them; a [`RecordCache`] keeps what
//!   text was decoded to, and `identity` tells it from others.
//! - [`GrowingFolder`] is data that is still being written, partition by partition; [`PartsWriter`] writes it.
//! - [`Row`] and [`Value`] are a record as named columns, [`ColumnInfo`] is a column of all records; [`Error`] names
//!   the file, chunk and record.
//! - [`recordio`] reads and writes RecordIO; [`example_proto`] is the `tf.train.Example` inside it,
//!   which `example` decodes without copying, walking the `wire` format.
//! - [`preprocess`] turns columns into buckets and ids, [`stats`] describes them, and [`split`] divides records.
//! - `delimited` reads CSV and TSV, and the public files of recommenders by their `dialect`; `jsonl` reads JSON lines;
//!   `text_index` finds the records of both, and `gzip` unpacks them; [`idx`] reads the MNIST
//!   files and `cifar` those of CIFAR-10.
//! - `tfrecord`, [`parquet`], `sqlite` and [`images`] read the other formats, the last three behind
//!   features; `guard` turns panics of their decoders into errors.
//! - [`types`] finds out what columns of text and bytes hold, for formats that keep numbers.
//! - [`sink`] writes rows in any format that can be written; [`generate`] draws rows from a known truth.
//!
//! # Example
//!
//! ```
//! use std::sync::Arc;
//! use salamander_data::{Dataset, open};
//!
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("people.csv");
//! std::fs::write(&path, "name,age\nada,36\ngrace,85\n")?;
//! let dataset = Dataset::new(Arc::from(open(&[path], None)?))?;
//! let mut names = vec![String::new(); 2];
//! dataset.read(&[1, 0], &mut |position, row| {
//!     names[position] = row.text("name")?.to_owned();
//!     Ok(())
//! })?;
//! assert_eq!(names, ["grace", "ada"]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod blob;
mod cifar;
mod dataset;
mod delimited;
mod dialect;
mod error;
mod example;
pub mod example_proto;
mod format;
#[doc(hidden)]
pub mod fuzzing;
pub mod generate;
mod growing;
#[cfg(any(feature = "images", feature = "parquet", feature = "sqlite"))]
mod guard;
mod gzip;
mod identity;
pub mod idx;
pub mod images;
mod index_cache;
mod jsonl;
mod open;
mod parallel;
pub mod parquet;
mod part_cache;
mod places;
pub mod preprocess;
mod reader;
mod record_cache;
pub mod recordio;
#[cfg(feature = "cloud")]
mod remote;
mod row;
mod row_picture;
mod schema;
pub mod sink;
pub mod split;
mod sqlite;
mod stamp;
pub mod stats;
mod text_index;
mod tfrecord;
pub mod types;
mod wire;

pub use blob::{Blob, BlobHandle, BlobReader};
pub use dataset::Dataset;
pub use dialect::{CENSUS_COLUMNS, CRITEO_COLUMNS, MISSING_WORDS, MOVIELENS_COLUMNS};
pub use error::{ChunkPlace, Error};
pub use format::{Format, UnknownName};
pub use growing::{GrowingFolder, PartFile, PartsWriter, Producer};
pub use jsonl::JsonRecord;
pub use open::{OpenOptions, files, open, open_indexed};
pub use reader::{Reader, Shard};
pub use record_cache::RecordCache;
#[cfg(feature = "cloud")]
pub use remote::{Bucket, Listing, ObjectVersion};
pub use row::{Row, Value};
pub use schema::{ColumnInfo, ColumnKind, add_columns, add_columns_of};
