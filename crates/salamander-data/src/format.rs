//! The table of formats, from which everything that knows more than one follows: opening, telling a format from a
//! name or from first bytes, `--format` and its help, writing, messages. A new format is its own module with a
//! [`Definition`], and one row of this table.

use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::open::{Opened, Opening};
use crate::sink::Sink;
use crate::{Blob, Error, cifar, dialect, idx, images, jsonl, parquet, recordio, sqlite, tfrecord};

/// Makes the names that programs use and the table that functions look into from the same rows.
macro_rules! formats {
    ($(#[doc = $about:literal] $format:ident = $definition:path;)*) => {
        /// The formats that can be read.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Format {
            $(#[doc = $about] $format,)*
        }

        impl Format {
            /// All formats, in the order in which people are shown them.
            pub const ALL: &'static [Format] = &[$(Format::$format),*];

            /// What a source of this format is, in a line.
            pub fn about(self) -> &'static str {
                match self { $(Format::$format => $about.trim(),)* }
            }

            pub(crate) fn definition(self) -> &'static Definition {
                match self { $(Format::$format => &$definition,)* }
            }
        }
    };
}

formats! {
    /// RecordIO, in either dialect
    RecordIo = recordio::FORMAT;
    /// Values between commas, tabs or other signs, usually with a header row
    Csv = dialect::CSV;
    /// JSON lines: an object in each line
    JsonLines = jsonl::FORMAT;
    /// The files of MNIST
    Idx = idx::FORMAT;
    /// The binary files of CIFAR-10
    Cifar = cifar::FORMAT;
    /// TFRecord
    TfRecord = tfrecord::FORMAT;
    /// Parquet
    Parquet = parquet::FORMAT;
    /// A table of an SQLite database
    Sqlite = sqlite::FORMAT;
    /// A folder of JPEG and PNG files, a subfolder for each class
    ImageFolder = images::FORMAT;
    /// The files of UCI's Census Income: `adult.data` and `adult.test`
    Census = dialect::CENSUS;
    /// The files of Criteo's display advertising challenge: `train.txt` and `test.txt`
    Criteo = dialect::CRITEO;
    /// The `ratings.dat` of MovieLens; its `ratings.csv` is CSV
    MovieLens = dialect::MOVIELENS;
}

/// Starts a file of a format.
type Create = fn(&Path) -> Result<Box<dyn Sink>, Error>;

/// What a format's module says of it; [`Definition::named`] has what most leave as it is.
pub(crate) struct Definition {
    /// What `--format` takes; also the cargo feature of a format that has one.
    pub(crate) name: &'static str,
    /// Endings of the files' names, in lower case.
    pub(crate) endings: &'static [&'static str],
    /// Tells a file from its whole name in lower case, where no ending does.
    pub(crate) is_named: fn(&str) -> bool,
    /// Tells a file from its first 16 bytes, where no name does.
    pub(crate) begins: fn(&[u8]) -> bool,
    /// Tells a folder that is one source; nothing where sources are files.
    pub(crate) is_folder: Option<fn(&Path) -> bool>,
    /// The file that another one is read with, by name: it is no source of its own beside that.
    pub(crate) companion: fn(&Path) -> Option<PathBuf>,
    /// Whether all values are text.
    pub(crate) text: bool,
    /// Whether its files may be gzipped, with `.gz` behind their names.
    pub(crate) gzip: bool,
    /// Opens a source; nothing in a program that was built without the format.
    pub(crate) open: Option<fn(Opening<'_>) -> Result<Opened, Error>>,
    /// Starts a file; nothing for a format that is only read.
    pub(crate) create: Option<Create>,
}

impl Definition {
    /// A format of files that only its name tells and that cannot be read yet.
    pub(crate) const fn named(name: &'static str) -> Definition {
        Definition {
            name,
            endings: &[],
            is_named: |_| false,
            begins: |_| false,
            is_folder: None,
            companion: |_| None,
            text: false,
            gzip: false,
            open: None,
            create: None,
        }
    }

    /// Why the format cannot be opened.
    pub(crate) fn left_out(&self, path: &Path) -> Error {
        let name = self.name;
        let reason = format!("this program was built without {name}: build it with that feature");
        Error::form(path, reason)
    }
}

/// A name that is no format's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown format {0:?}: give {list}", list = names(|_| true))]
pub struct UnknownName(String);

impl Format {
    /// What `--format` takes.
    pub fn name(self) -> &'static str {
        self.definition().name
    }

    /// Endings of file names that tell the format, in lower case.
    pub fn endings(self) -> &'static [&'static str] {
        self.definition().endings
    }

    /// Whether all values are text, so that numbers are written as they were read.
    pub fn is_text(self) -> bool {
        self.definition().text
    }

    /// Whether this program can write it.
    pub fn is_written(self) -> bool {
        self.definition().create.is_some()
    }

    /// Tells the format from a file's name alone, as for a file that is still to be written.
    pub fn of_name(path: &Path) -> Option<Format> {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let name = name.to_ascii_lowercase();
        // A database's name can be followed by settings.
        let settings = |rest: &str| rest.starts_with("table=") || rest.starts_with("key=");
        let plain = name.rsplit_once('?').filter(|(_, rest)| settings(rest));
        let name = plain.map_or(name.as_str(), |(name, _)| name);
        let plain = name.strip_suffix(".gz");
        let named = |format: &Definition| plain.filter(|_| format.gzip).unwrap_or(name);
        let ending = |name: &str| name.rsplit_once('.').map(|(_, ending)| ending.to_owned());
        let ends = |format: &Definition| {
            ending(named(format)).is_some_and(|ending| format.endings.contains(&ending.as_str()))
        };
        find(ends).or_else(|| find(|format| (format.is_named)(named(format))))
    }

    /// Tells the format from what a folder has, from a file's name, and from its first bytes if the name says nothing.
    pub fn guess(path: &Path) -> Result<Format, Error> {
        if let Some(format) = Format::of_folder(path).or_else(|| Format::of_name(path)) {
            return Ok(format);
        }
        let mut start = Vec::new();
        let file = Blob::open(path)?.handle()?.reader(0);
        file.take(16).read_to_end(&mut start).map_err(Error::io(path))?;
        let found = find(|format| (format.begins)(&start));
        if found.is_none() && matches!(start.trim_ascii_start().first(), Some(b'[' | b'{')) {
            let advice = "JSON is read with an object in each line: write it so and name it .jsonl, or give jsonl as \
                          its format if it is so";
            return Err(Error::form(path, advice));
        }
        found.ok_or_else(|| Error::UnknownFormat { path: path.to_owned() })
    }

    /// The format of a folder that is one source.
    pub(crate) fn of_folder(path: &Path) -> Option<Format> {
        let told = |format: &Definition| format.is_folder.is_some_and(|told| told(path));
        path.is_dir().then(|| find(told)).flatten()
    }
}

/// The first format of the table that this is true of.
fn find(told: impl Fn(&Definition) -> bool) -> Option<Format> {
    Format::ALL.iter().copied().find(|format| told(format.definition()))
}

/// The names of some formats as a sentence has them: `recordio, csv or idx`.
pub(crate) fn names(wanted: impl Fn(Format) -> bool) -> String {
    let wanted = Format::ALL.iter().copied().filter(|format| wanted(*format));
    let names: Vec<&str> = wanted.map(Format::name).collect();
    match names.split_last() {
        Some((last, [])) => (*last).to_owned(),
        Some((last, others)) => format!("{} or {last}", others.join(", ")),
        None => String::new(),
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Format {
    type Err = UnknownName;

    fn from_str(name: &str) -> Result<Format, UnknownName> {
        find(|format| format.name == name).ok_or_else(|| UnknownName(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn formats_are_told_by_name_then_by_content() {
        let check = |name: &str, content: &[u8], expected: Option<Format>| {
            let (_folder, path) = crate::blob::saved(name, content);
            assert_eq!(Format::guess(&path).ok(), expected, "{name}");
        };
        check("a.recordio", b"", Some(Format::RecordIo));
        check("A.CSV", b"", Some(Format::Csv));
        check("a.tsv", b"", Some(Format::Csv));
        check("a.csv.gz", b"", Some(Format::Csv));
        check("A.TSV.GZ", b"", Some(Format::Csv));
        check("a.ndjson.gz", b"", Some(Format::JsonLines));
        check("adult.data.gz", b"", Some(Format::Census));
        check("a.parquet.gz", b"", None);
        check("train-images-idx3-ubyte.gz", b"", Some(Format::Idx));
        check("train-images-idx3-ubyte", b"", Some(Format::Idx));
        check("train-images.idx3-ubyte", b"", Some(Format::Idx));
        check("train-images-idx3-ubyte.parquet", b"", Some(Format::Parquet));
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
        for &format in Format::ALL {
            assert_eq!(format.to_string().parse(), Ok(format));
        }
        let message = "orc".parse::<Format>().unwrap_err().to_string();
        assert_eq!(
            message,
            "unknown format \"orc\": give recordio, csv, jsonl, idx, cifar, tfrecord, parquet, sqlite, images, census, \
             criteo or movielens"
        );
    }

    /// What a row of the table must say, whichever format it is.
    #[test]
    fn every_row_is_whole() {
        let (mut names, mut endings) = (HashSet::new(), HashSet::new());
        for &format in Format::ALL {
            let definition = format.definition();
            assert!(names.insert(definition.name), "{format}: the name stands twice");
            assert!(!format.about().is_empty() && !format.about().ends_with('.'), "{format}");
            assert!(definition.open.is_some(), "{format}: tests have all features");
            for ending in definition.endings {
                assert!(endings.insert(*ending), "{format}: .{ending} is another format's too");
                let name = format!("part-0.{ending}");
                assert_eq!(Format::of_name(Path::new(&name)), Some(format), "{name}");
            }
        }
        assert_eq!(names_of_read_only(), ["sqlite"]);
    }

    fn names_of_read_only() -> Vec<&'static str> {
        Format::ALL.iter().filter(|format| !format.is_written()).map(|f| f.name()).collect()
    }
}
