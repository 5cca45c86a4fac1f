//! The names and marks of the formats, so that users seldom have to say which one a file has.

use std::fmt;
use std::io::Read;
use std::path::Path;
use std::str::FromStr;

use crate::{Blob, Error};

/// The formats that can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// RecordIO, in either dialect.
    RecordIo,
    /// Comma- or tab-separated values with a header row.
    Csv,
    /// The files of MNIST.
    Idx,
    /// The binary files of CIFAR-10.
    Cifar,
    /// TFRecord.
    TfRecord,
    /// Parquet.
    Parquet,
    /// A table of an SQLite database.
    Sqlite,
    /// A folder of JPEG and PNG files, a subfolder for each class.
    ImageFolder,
    /// The files of UCI's Census Income: `adult.data` and `adult.test`.
    Census,
    /// The files of Criteo's display advertising challenge: `train.txt` and `test.txt`.
    Criteo,
    /// The `ratings.dat` of MovieLens; its `ratings.csv` is CSV.
    MovieLens,
}

/// A name that is no format's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "unknown format {0:?}: give recordio, csv, idx, cifar, tfrecord, parquet, sqlite, images, census, criteo or \
     movielens"
)]
pub struct UnknownName(String);

impl Format {
    const ALL: [(Format, &str); 11] = [
        (Format::RecordIo, "recordio"),
        (Format::Csv, "csv"),
        (Format::Idx, "idx"),
        (Format::Cifar, "cifar"),
        (Format::TfRecord, "tfrecord"),
        (Format::Parquet, "parquet"),
        (Format::Sqlite, "sqlite"),
        (Format::ImageFolder, "images"),
        (Format::Census, "census"),
        (Format::Criteo, "criteo"),
        (Format::MovieLens, "movielens"),
    ];

    /// Tells the format from a file's name alone, as for a file that is still to be written.
    pub fn of_name(path: &Path) -> Option<Format> {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let name = name.to_ascii_lowercase();
        // A database's name can be followed by settings.
        let settings = |rest: &str| rest.starts_with("table=") || rest.starts_with("key=");
        let plain = name.rsplit_once('?').filter(|(_, rest)| settings(rest));
        let name = plain.map_or(name.as_str(), |(name, _)| name);
        let extension = name.rsplit_once('.').map_or("", |(_, extension)| extension);
        match extension {
            "recordio" | "rio" => Some(Format::RecordIo),
            "csv" | "tsv" | "tab" => Some(Format::Csv),
            "idx" => Some(Format::Idx),
            "tfrecord" | "tfrecords" => Some(Format::TfRecord),
            "parquet" => Some(Format::Parquet),
            "sqlite" | "sqlite3" | "db" => Some(Format::Sqlite),
            _ if name == "adult.data" || name == "adult.test" => Some(Format::Census),
            "bin" if name.starts_with("data_batch") || name.starts_with("test_batch") => {
                Some(Format::Cifar)
            }
            _ if name == "ratings.dat" => Some(Format::MovieLens),
            _ if name.contains("idx3-ubyte") || name.contains("idx1-ubyte") => Some(Format::Idx),
            _ => None,
        }
    }

    /// Tells the format from the name, and from the first bytes if the name says nothing.
    pub fn guess(path: &Path) -> Result<Format, Error> {
        if let Some(format) = Format::of_name(path) {
            return Ok(format);
        }
        let mut start = Vec::new();
        let file = Blob::open(path)?.handle()?.reader(0);
        file.take(16).read_to_end(&mut start).map_err(Error::io(path))?;
        match start[..] {
            [4, 3, 2, 1, ..] => Ok(Format::RecordIo),
            [0, 0, 8, 1 | 3, ..] => Ok(Format::Idx),
            [b'P', b'A', b'R', b'1', ..] => Ok(Format::Parquet),
            _ if start == *b"SQLite format 3\0" => Ok(Format::Sqlite),
            _ => Err(Error::UnknownFormat { path: path.to_owned() }),
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name =
            Format::ALL.iter().find(|(format, _)| format == self).map_or("", |(_, name)| name);
        f.write_str(name)
    }
}

impl FromStr for Format {
    type Err = UnknownName;

    fn from_str(name: &str) -> Result<Format, UnknownName> {
        let found = Format::ALL.iter().find(|(_, known)| *known == name);
        found.map(|(format, _)| *format).ok_or_else(|| UnknownName(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder_with(files: &[(&str, &[u8])]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, content) in files {
            std::fs::write(folder.path().join(name), content).unwrap();
        }
        folder
    }

    #[test]
    fn formats_are_told_by_name_then_by_content() {
        let check = |name: &str, content: &[u8], expected: Option<Format>| {
            let folder = folder_with(&[(name, content)]);
            assert_eq!(Format::guess(&folder.path().join(name)).ok(), expected, "{name}");
        };
        check("a.recordio", b"", Some(Format::RecordIo));
        check("A.CSV", b"", Some(Format::Csv));
        check("a.tsv", b"", Some(Format::Csv));
        check("train-images-idx3-ubyte", b"", Some(Format::Idx));
        check("train-images.idx3-ubyte", b"", Some(Format::Idx));
        check("data_batch_3.bin", b"", Some(Format::Cifar));
        check("test_batch.bin", b"", Some(Format::Cifar));
        check("weights.bin", b"", None);
        check("part-00000", &[4, 3, 2, 1, 0], Some(Format::RecordIo));
        check("digits", &[0, 0, 8, 3], Some(Format::Idx));
        check("a.tfrecord", b"", Some(Format::TfRecord));
        check("a.parquet", b"", Some(Format::Parquet));
        check("part-00001", b"PAR1....", Some(Format::Parquet));
        check("shop", b"SQLite format 3\0....", Some(Format::Sqlite));
        check("shop.db?table=a.b&key=c", b"", Some(Format::Sqlite));
        check("adult.test", b"", Some(Format::Census));
        check("ratings.dat", b"", Some(Format::MovieLens));
        check("ratings.csv", b"", Some(Format::Csv));
        check("notes.txt", b"hello", None);
        check("empty", b"", None);
    }

    #[test]
    fn names_round_trip() {
        for (format, name) in Format::ALL {
            assert_eq!((format.to_string().as_str(), name.parse()), (name, Ok(format)));
        }
        let message = "orc".parse::<Format>().unwrap_err().to_string();
        assert_eq!(
            message,
            "unknown format \"orc\": give recordio, csv, idx, cifar, tfrecord, parquet, sqlite, images, census, \
             criteo or movielens"
        );
    }
}
