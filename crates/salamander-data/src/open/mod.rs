//! Opens files, folders, patterns and URLs as one reader, many files at once; `opener` opens one of them.

mod opener;
mod renamed;

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::path::{Path, PathBuf};

use opener::Opener;
pub(crate) use opener::{Opened, Opening};
use renamed::Renamed;
use salamander_core::experiment::{CsvSettings, Data};

use crate::index_cache::IndexCache;
use crate::parallel::in_parallel;
use crate::reader::Each;
use crate::{ColumnInfo, Error, Format, Reader, Shard, add_columns, places};

/// How [`open_indexed`] goes about it.
pub struct OpenOptions<'a> {
    /// Keeps the indexes of RecordIO, TFRecord and text files in this folder and takes them from there when
    /// the files are still the same.
    pub cache_folder: Option<PathBuf>,
    /// How CSV files are written down, where a header row and commas are not it.
    pub csv: CsvSettings,
    /// Names of columns in the files, by the names that they get.
    pub columns: BTreeMap<String, String>,
    /// Files opened at the same time.
    pub threads: usize,
    /// Told how many of the files are done, from any thread, one call at a time.
    pub progress: Option<&'a (dyn Fn(usize, usize) + Sync)>,
}

impl Default for OpenOptions<'_> {
    fn default() -> Self {
        OpenOptions {
            cache_folder: None,
            csv: CsvSettings::default(),
            columns: BTreeMap::new(),
            threads: 8,
            progress: None,
        }
    }
}

impl OpenOptions<'_> {
    /// As an experiment says that its files are read.
    pub fn of(data: &Data) -> Self {
        Self { csv: data.csv.clone(), columns: data.columns.clone(), ..Self::default() }
    }
}

/// Opens files as one reader, a shard per file in the order given.
///
/// A place is a file, a folder, a pattern such as `data/part-*.csv`, or a URL (`s3://`, `gs://`, `az://`,
/// `http://`, `https://`), which stands for the objects under it when it ends with a slash.
///
/// Of a folder all files are taken, sorted by name; hidden ones and folders inside it are left out. A file
/// whose format cannot be told is an error: data silently left out of training would be worse. A labels
/// file of MNIST is no shard of its own when its images file is among the files.
pub fn open(paths: &[PathBuf], format: Option<Format>) -> Result<Box<dyn Reader>, Error> {
    open_indexed(paths, format, &OpenOptions::default())
}

/// [`open`] for many files: with a cache of indexes and a report of progress.
///
/// ```
/// use salamander_data::{OpenOptions, open_indexed};
///
/// # let folder = tempfile::tempdir()?;
/// std::fs::write(folder.path().join("a.csv"), "x\n1\n")?;
/// std::fs::write(folder.path().join("b.csv"), "x\n2\n3\n")?;
/// let options = OpenOptions {
///     cache_folder: Some(folder.path().join("run")),
///     progress: Some(&|done, total| eprintln!("{done} of {total}")),
///     ..OpenOptions::default()
/// };
/// let reader = open_indexed(&[folder.path().join("*.csv")], None, &options)?;
/// assert_eq!(reader.shards()?.len(), 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn open_indexed(
    paths: &[PathBuf],
    format: Option<Format>,
    options: &OpenOptions<'_>,
) -> Result<Box<dyn Reader>, Error> {
    let files = files(paths, format)?;
    let known = options.cache_folder.as_deref().map(IndexCache::load);
    let opener = Opener::new(format, options.csv.clone(), known);
    let progress = |done| options.progress.map_or((), |progress| progress(done, files.len()));
    let opened = in_parallel(&files, options.threads, |file| opener.open(file), progress)?;
    let (mut readers, mut new) = (Vec::with_capacity(opened.len()), Vec::new());
    for Opened { reader, new_index } in opened {
        readers.push(reader);
        new.extend(new_index);
    }
    if let (Some(folder), Some(known), false) =
        (&options.cache_folder, opener.known, new.is_empty())
    {
        known.save(folder, new)?;
    }
    Ok(Renamed::over(Box::new(OpenFiles { readers }), &options.columns))
}

/// The files that [`open`] makes shards of, in the same order, for those who open them one by one.
pub fn files(paths: &[PathBuf], format: Option<Format>) -> Result<Vec<PathBuf>, Error> {
    let is_source = |folder: &Path| match format {
        Some(format) => format.definition().is_folder.is_some(),
        None => Format::of_folder(folder).is_some(),
    };
    let mut files = places::expand(paths, &is_source)?;
    let beside = |file: &PathBuf| {
        let of = |format: &Format| Some(((format.definition().companion)(file)?, *format));
        Format::ALL.iter().find_map(of)
    };
    let companions: HashMap<PathBuf, Format> = files.iter().filter_map(beside).collect();
    files.retain(|file| {
        let is = |wanted| format.map_or_else(|| Format::guess(file).ok(), Some) == Some(wanted);
        !companions.get(file).is_some_and(|format| is(*format))
    });
    Ok(files)
}

/// Readers of one shard each, as one.
struct OpenFiles {
    readers: Vec<Box<dyn Reader>>,
}

impl Reader for OpenFiles {
    fn shards(&self) -> Result<Vec<Shard>, Error> {
        let mut shards = Vec::new();
        for reader in &self.readers {
            shards.extend(reader.shards()?);
        }
        Ok(shards)
    }

    /// Those of all files, if all know them.
    fn columns(&self) -> Option<Vec<ColumnInfo>> {
        let mut columns = Vec::new();
        for reader in &self.readers {
            add_columns(&mut columns, reader.columns()?);
        }
        Some(columns)
    }

    fn columns_of(&self, shard: usize) -> Option<Vec<ColumnInfo>> {
        self.readers.get(shard).and_then(|reader| reader.columns())
    }

    /// That of all files, if all are of formats that are slow to decode.
    fn fingerprint(&self) -> Option<String> {
        let all: Option<Vec<String>> =
            self.readers.iter().map(|reader| reader.fingerprint()).collect();
        all.map(|all| all.join("\n"))
    }

    fn read(&self, shard: usize, records: Range<u64>, each: &mut Each<'_>) -> Result<(), Error> {
        let shards = self.readers.len();
        let reader = self.readers.get(shard).ok_or(Error::NoShard { shard, shards })?;
        reader.read(0, records, each)
    }
}

#[cfg(test)]
mod tests;
