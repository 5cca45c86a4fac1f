//! The one error of the reading side, so that every message can name file, offset, chunk and record.

use std::io;
use std::path::{Path, PathBuf};

use crate::format::names;

/// Where in a chunked file something was found, for messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChunkPlace {
    /// The file.
    pub path: PathBuf,
    /// Byte offset in the file.
    pub offset: u64,
    /// Number of the chunk in the file, from 0.
    pub chunk: usize,
}

impl std::fmt::Display for ChunkPlace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: chunk {} at byte {}", self.path.display(), self.chunk, self.offset)
    }
}

/// Why records could not be found or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused.
    #[error("{}: {cause}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What the system said; not an error's source, because the message has it already.
        cause: io::Error,
    },
    /// A chunk does not start with the magic number: not RecordIO, or the chunk before has a wrong size.
    #[error("{place}: found {found:#010x} where a recordio chunk begins with 0x01020304")]
    BadMagic {
        /// The chunk's start.
        place: ChunkPlace,
        /// The four bytes found.
        found: u32,
    },
    /// A chunk's bytes are not those that were written.
    #[error("{place}: checksum {found:#010x}, but the header says {expected:#010x}: damaged chunk")]
    Checksum {
        /// The chunk's start.
        place: ChunkPlace,
        /// Checksum of the bytes in the file.
        found: u32,
        /// Checksum in the header.
        expected: u32,
    },
    /// The file ends inside a chunk.
    #[error("{place}: needs {needed} bytes, but the file ends after {available}: truncated file")]
    Truncated {
        /// The chunk's start.
        place: ChunkPlace,
        /// Bytes the chunk needs from its start.
        needed: u64,
        /// Bytes the file has from there.
        available: u64,
    },
    /// A length or count in the file cannot be true.
    #[error("{place}: {what} is {value}, but at most {limit} is possible here")]
    Length {
        /// The chunk's start.
        place: ChunkPlace,
        /// Which length.
        what: &'static str,
        /// What the file says.
        value: u64,
        /// The most it could be.
        limit: u64,
    },
    /// A chunk cannot be decompressed.
    #[error("{place}: cannot decompress: {reason}")]
    Decompress {
        /// The chunk's start.
        place: ChunkPlace,
        /// What the decompressor said.
        reason: String,
    },
    /// One record cannot be read, or the callback refused it.
    #[error("{}:{} record {record}: {reason}", path.display(), chunk_part(.chunk))]
    Record {
        /// The file, or the name of the shard.
        path: PathBuf,
        /// The chunk, for formats that have chunks.
        chunk: Option<usize>,
        /// Number of the record in the file, from 0.
        record: u64,
        /// What is wrong with it.
        reason: String,
    },
    /// A column of one record cannot be turned into what was asked for.
    #[error("{}:{} record {record}: column {column:?}: {reason}", path.display(), chunk_part(.chunk))]
    Decode {
        /// The file, or the name of the shard.
        path: PathBuf,
        /// The chunk, for formats that have chunks.
        chunk: Option<usize>,
        /// Number of the record in the file, from 0.
        record: u64,
        /// The column.
        column: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A [`Row`](crate::Row) has no such column, or one of another kind; readers turn this into
    /// [`Error::Decode`] with the place.
    #[error("column {column:?}: {reason}")]
    Column {
        /// The column asked for.
        column: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The message of a callback that refused a record; readers turn this into [`Error::Record`] with the
    /// place.
    #[error("{0}")]
    Rejected(String),
    /// The file does not have the form that its format asks for.
    #[error("{}: {reason}", path.display())]
    Form {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A record number past the end was asked for.
    #[error("{}: record {record} was asked for, but there are {records}", path.display())]
    Range {
        /// The file, or the name of the shard.
        path: PathBuf,
        /// The record asked for.
        record: u64,
        /// How many there are.
        records: u64,
    },
    /// A shard number past the end was asked for.
    #[error("shard {shard} was asked for, but there are {shards}")]
    NoShard {
        /// The shard asked for.
        shard: usize,
        /// How many there are.
        shards: usize,
    },
    /// Neither name nor first bytes tell the format.
    #[error(
        "{}: cannot tell the format: give --format (in an experiment data: {{format: ..}}) {}",
        path.display(),
        names(|_| true)
    )]
    UnknownFormat {
        /// The file.
        path: PathBuf,
    },
    /// The file is not the one that was indexed.
    #[error("{}: size or modification time changed since it was indexed: open it again", path.display())]
    Changed {
        /// The file.
        path: PathBuf,
    },
    /// There is nothing to read.
    #[error("{}", no_files(.path))]
    NoFiles {
        /// The folder, or nothing when no path was given at all.
        path: PathBuf,
    },
}

impl Error {
    /// An [`Error::Io`] for `map_err`. An error of this crate that came through an [`io::Error`] is taken
    /// out of it again.
    pub fn io(path: &Path) -> impl FnOnce(io::Error) -> Error + '_ {
        move |source| match source.downcast::<Error>() {
            Ok(error) => error,
            Err(cause) => Error::Io { path: path.to_owned(), cause },
        }
    }

    /// A file that does not have the form that its format asks for.
    pub(crate) fn form(path: impl Into<PathBuf>, reason: impl ToString) -> Error {
        Error::Form { path: path.into(), reason: reason.to_string() }
    }

    /// A column that is not what was asked for.
    pub(crate) fn column(name: &str, reason: impl ToString) -> Error {
        Error::Column { column: name.to_owned(), reason: reason.to_string() }
    }

    /// Adds the place to an error of a callback that could not know it; leaves all others alone.
    #[must_use]
    pub fn at(self, path: &Path, chunk: Option<usize>, record: u64) -> Error {
        let path = path.to_owned();
        match self {
            Error::Rejected(reason) => Error::Record { path, chunk, record, reason },
            Error::Column { column, reason } => {
                Error::Decode { path, chunk, record, column, reason }
            }
            other => other,
        }
    }

    /// Adds the line to an error of a callback that could not know it; leaves all others alone.
    #[must_use]
    pub(crate) fn on_line(self, line: impl FnOnce() -> u64) -> Error {
        match self {
            Error::Rejected(reason) => Error::Rejected(format!("line {}: {reason}", line())),
            Error::Column { column, reason } => {
                Error::Column { column, reason: format!("line {}: {reason}", line()) }
            }
            other => other,
        }
    }

    /// True when the data itself is bad, so that skipping the record can help; false when the machine,
    /// the request or the choice of files is at fault.
    pub fn is_bad_data(&self) -> bool {
        matches!(
            self,
            Error::BadMagic { .. }
                | Error::Checksum { .. }
                | Error::Truncated { .. }
                | Error::Length { .. }
                | Error::Decompress { .. }
                | Error::Record { .. }
                | Error::Decode { .. }
                | Error::Column { .. }
                | Error::Rejected(_)
        )
    }
}

fn chunk_part(chunk: &Option<usize>) -> String {
    chunk.map(|chunk| format!(" chunk {chunk}")).unwrap_or_default()
}

fn no_files(path: &Path) -> String {
    if path.as_os_str().is_empty() {
        return "no data files were given".to_owned();
    }
    let pattern = path.as_os_str().as_encoded_bytes().iter().any(|byte| b"*?[".contains(byte));
    let reason =
        if pattern { "nothing matches this pattern" } else { "no data files in this folder" };
    format!("{}: {reason}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_name_the_place() {
        let check = |error: Error, expected: &str| assert_eq!(error.to_string(), expected);
        let path = Path::new("a.recordio");
        check(
            Error::Rejected("label 12".into()).at(path, Some(3), 17),
            "a.recordio: chunk 3 record 17: label 12",
        );
        check(
            Error::Rejected("label 12".into()).at(path, None, 17),
            "a.recordio: record 17: label 12",
        );
        check(
            Error::Column { column: "x".into(), reason: "missing".into() }.at(path, None, 2),
            "a.recordio: record 2: column \"x\": missing",
        );
        check(
            Error::BadMagic {
                place: ChunkPlace { path: path.into(), offset: 40, chunk: 1 },
                found: 7,
            },
            "a.recordio: chunk 1 at byte 40: found 0x00000007 where a recordio chunk begins with \
             0x01020304",
        );
    }

    #[test]
    fn a_placed_error_keeps_its_place() {
        let first = Error::Rejected("no".into()).at(Path::new("a"), None, 1);
        let second = first.at(Path::new("b"), Some(9), 2);
        assert_eq!(second.to_string(), "a: record 1: no");
    }

    #[test]
    fn only_damage_counts_as_bad_data() {
        let check = |error: Error, expected: bool| assert_eq!(error.is_bad_data(), expected);
        check(Error::Rejected(String::new()), true);
        check(Error::Changed { path: "a".into() }, false);
        check(Error::io(Path::new("a"))(io::ErrorKind::NotFound.into()), false);
    }
}
