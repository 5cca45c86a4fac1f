//! Opens files and folders as one reader, guessing the format so that users seldom have to say it.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use crate::delimited::Delimited;
use crate::idx::{IdxFile, labels_beside};
use crate::recordio::{Cache, RecordFile};
use crate::{Error, Reader, Row, Shard};

/// The formats that can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// RecordIO, in either dialect.
    RecordIo,
    /// Comma- or tab-separated values with a header row.
    Csv,
    /// The files of MNIST.
    Idx,
}

/// A name that is no format's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown format {0:?}: give recordio, csv or idx")]
pub struct UnknownName(String);

impl Format {
    const ALL: [(Format, &str); 3] =
        [(Format::RecordIo, "recordio"), (Format::Csv, "csv"), (Format::Idx, "idx")];

    /// Tells the format from the name, and from the first bytes if the name says nothing.
    pub fn guess(path: &Path) -> Result<Format, Error> {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let name = name.to_ascii_lowercase();
        let extension = name.rsplit_once('.').map_or("", |(_, extension)| extension);
        match extension {
            "recordio" | "rio" => return Ok(Format::RecordIo),
            "csv" | "tsv" | "tab" => return Ok(Format::Csv),
            "idx" => return Ok(Format::Idx),
            _ if name.contains("idx3-ubyte") || name.contains("idx1-ubyte") => {
                return Ok(Format::Idx);
            }
            _ => {}
        }
        let mut start = Vec::new();
        let file = File::open(path).map_err(Error::io(path))?;
        file.take(4).read_to_end(&mut start).map_err(Error::io(path))?;
        match start[..] {
            [4, 3, 2, 1] => Ok(Format::RecordIo),
            [0, 0, 8, 1 | 3] => Ok(Format::Idx),
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

/// Opens files or folders as one reader, a shard per file in the order given.
///
/// Of a folder all files are taken, sorted by name; hidden ones and folders inside it are left out. A file
/// whose format cannot be told is an error: data silently left out of training would be worse. A labels
/// file of MNIST is no shard of its own when its images file is among the files.
pub fn open(paths: &[PathBuf], format: Option<Format>) -> Result<Box<dyn Reader>, Error> {
    let mut files = Vec::new();
    for path in paths {
        if path.is_dir() {
            files.extend(list(path)?);
        } else {
            files.push(path.clone());
        }
    }
    if files.is_empty() {
        return Err(Error::NoFiles { path: PathBuf::new() });
    }
    let labels: Vec<PathBuf> = files.iter().filter_map(|file| labels_beside(file)).collect();
    let cache = Arc::<Cache>::default();
    let mut readers: Vec<Box<dyn Reader>> = Vec::new();
    for file in &files {
        let format = format.map_or_else(|| Format::guess(file), Ok)?;
        readers.push(match format {
            Format::Idx if labels.contains(file) => continue,
            Format::RecordIo => Box::new(RecordFile::open_with(file, Arc::clone(&cache))?),
            Format::Csv => Box::new(Delimited::open(file)?),
            Format::Idx => Box::new(IdxFile::open(file)?),
        });
    }
    Ok(Box::new(Files { readers }))
}

/// Readers of one shard each, as one.
struct Files {
    readers: Vec<Box<dyn Reader>>,
}

impl Reader for Files {
    fn shards(&self) -> Result<Vec<Shard>, Error> {
        let mut shards = Vec::new();
        for reader in &self.readers {
            shards.extend(reader.shards()?);
        }
        Ok(shards)
    }

    fn read(
        &self,
        shard: usize,
        records: Range<u64>,
        each: &mut dyn FnMut(u64, Row<'_>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let shards = self.readers.len();
        let reader = self.readers.get(shard).ok_or(Error::NoShard { shard, shards })?;
        reader.read(0, records, each)
    }
}

fn list(folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(Error::io(folder))? {
        let entry = entry.map_err(Error::io(folder))?;
        let hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
        let path = entry.path();
        if !hidden && !path.is_dir() {
            files.push(path);
        }
    }
    if files.is_empty() {
        return Err(Error::NoFiles { path: folder.to_owned() });
    }
    files.sort();
    Ok(files)
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
        check("part-00000", &[4, 3, 2, 1, 0], Some(Format::RecordIo));
        check("digits", &[0, 0, 8, 3], Some(Format::Idx));
        check("notes.txt", b"hello", None);
        check("empty", b"", None);
    }

    #[test]
    fn names_round_trip() {
        for (format, name) in Format::ALL {
            assert_eq!((format.to_string().as_str(), name.parse()), (name, Ok(format)));
        }
        let message = "parquet".parse::<Format>().unwrap_err().to_string();
        assert_eq!(message, "unknown format \"parquet\": give recordio, csv or idx");
    }

    #[test]
    fn a_folder_is_read_in_order_of_names() {
        let folder =
            folder_with(&[("b.csv", b"x\n1\n2\n"), ("a.csv", b"x\n0\n"), (".hidden", b"?")]);
        std::fs::create_dir(folder.path().join("inside")).unwrap();
        let reader = open(&[folder.path().to_owned()], None).unwrap();
        let counts: Vec<u64> = reader.shards().unwrap().iter().map(|shard| shard.records).collect();
        assert_eq!(counts, [1, 2]);
        let mut seen = Vec::new();
        let each = &mut |record, row: Row<'_>| {
            seen.push((record, row.text("x")?.to_owned()));
            Ok(())
        };
        reader.read(1, 1..2, each).unwrap();
        assert!(matches!(reader.read(2, 0..1, each), Err(Error::NoShard { shard: 2, shards: 2 })));
        assert_eq!(seen, [(1, "2".to_owned())]);
    }

    #[test]
    fn labels_are_no_shard_beside_their_images() {
        let images = [0, 0, 8, 3, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 9];
        let labels = [0, 0, 8, 1, 0, 0, 0, 1, 4];
        let folder =
            folder_with(&[("t-images-idx3-ubyte", &images), ("t-labels-idx1-ubyte", &labels)]);
        let reader = open(&[folder.path().to_owned()], None).unwrap();
        assert_eq!(reader.shards().unwrap().len(), 1);
        let alone = open(&[folder.path().join("t-labels-idx1-ubyte")], None).err().unwrap();
        assert!(alone.to_string().ends_with("give the images file beside it"), "{alone}");
    }

    #[test]
    fn what_cannot_be_opened_is_named() {
        let check = |paths: &[PathBuf], ending: &str| {
            let message = open(paths, None).err().unwrap().to_string();
            assert!(message.ends_with(ending), "{message}");
        };
        let folder = folder_with(&[("readme.md", b"hello")]);
        let path = folder.path();
        check(&[path.to_owned()], "readme.md: cannot tell the format: give recordio, csv or idx");
        check(&[path.join("nothing.csv")], "nothing.csv: No such file or directory (os error 2)");
        let empty = folder_with(&[]);
        check(&[empty.path().to_owned()], ": no data files in this folder");
        check(&[], "no data files were given");
    }
}
