//! Record files: formats, indexes and datasets, so that training can ask for any record by its number.
//!
//! # Layout
//!
//! - [`Reader`] is what a source of records implements: it lists [`Shard`]s and reads a range of one.
//! - [`open`] turns files or folders into a [`Reader`], one shard per file, by [`Format`].
//! - [`Dataset`] numbers the records of all shards in one row and reads any list of them.
//! - [`Row`] and [`Value`] are a record as named columns; [`Error`] names the file, chunk and record.
//! - [`recordio`] reads and writes RecordIO; [`example_proto`] is the `tf.train.Example` inside it,
//!   which `example` decodes without copying, walking the `wire` format.
//! - `delimited` reads CSV and TSV; [`idx`] reads the MNIST files; `stamp` notices a changed file.
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

mod dataset;
mod delimited;
mod error;
mod example;
pub mod example_proto;
pub mod idx;
mod open;
mod reader;
pub mod recordio;
mod row;
mod stamp;
mod wire;

pub use dataset::Dataset;
pub use error::{Error, Place};
pub use open::{Format, UnknownName, open};
pub use reader::{Reader, Shard};
pub use row::{Row, Value};
