//! Opens files, folders, patterns and URLs as one reader, many files at once.

use std::collections::HashSet;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::cifar::CifarFile;
use crate::delimited::{self, Delimited};
use crate::dialect::Dialect;
use crate::idx::{IdxFile, labels_beside};
use crate::index_cache::{Entry, IndexCache, Key};
use crate::reader::Index;
use crate::recordio::{self, RecordFile};
use crate::tfrecord::TfRecordFile;
use crate::{Blob, Error, Format, Reader, Row, Shard, optional, places};

/// How [`open_indexed`] goes about it.
pub struct OpenOptions<'a> {
    /// Keeps the indexes of RecordIO, TFRecord and text files in this folder and takes them from there when
    /// the files are still the same.
    pub cache_folder: Option<PathBuf>,
    /// Files opened at the same time.
    pub threads: usize,
    /// Told how many of the files are done, from any thread, one call at a time.
    pub progress: Option<&'a (dyn Fn(usize, usize) + Sync)>,
}

impl Default for OpenOptions<'_> {
    fn default() -> Self {
        OpenOptions { cache_folder: None, threads: 8, progress: None }
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
    let opener = Opener { format, known, ..Opener::default() };
    let opened = in_parallel(&files, options, |file| opener.open(file))?;
    let (mut readers, mut new) = (Vec::with_capacity(opened.len()), Vec::new());
    for (reader, entry) in opened {
        readers.push(reader);
        new.extend(entry);
    }
    if let (Some(folder), Some(known), false) =
        (&options.cache_folder, opener.known, new.is_empty())
    {
        known.save(folder, new)?;
    }
    Ok(Box::new(Files { readers }))
}

/// The files that [`open`] makes shards of, in the same order, for those who open them one by one.
pub fn files(paths: &[PathBuf], format: Option<Format>) -> Result<Vec<PathBuf>, Error> {
    let is_source = |folder: &Path| match format {
        Some(format) => format == Format::ImageFolder,
        None => optional::has_classes(folder),
    };
    let mut files = places::expand(paths, &is_source)?;
    let labels: HashSet<PathBuf> = files.iter().filter_map(|file| labels_beside(file)).collect();
    let idx = |file: &Path| {
        let format = format.map_or_else(|| Format::guess(file), Ok);
        matches!(format, Ok(Format::Idx))
    };
    files.retain(|file| !(labels.contains(file) && idx(file)));
    Ok(files)
}

/// A reader, and its index if that is new and worth keeping.
type Opened = (Box<dyn Reader>, Option<(Key, Entry)>);

/// What the files of one reader share.
#[derive(Default)]
struct Opener {
    format: Option<Format>,
    known: Option<IndexCache>,
    chunks: Arc<recordio::Cache>,
    rows: Arc<delimited::Cache>,
    shared: optional::Shared,
}

impl Opener {
    fn open(&self, file: &Path) -> Result<Opened, Error> {
        let known = self.known(file)?;
        let format = self.format.or(known.as_ref().map(|(_, format)| *format));
        // Of folders only those of images are left here.
        let format = format.or_else(|| file.is_dir().then_some(Format::ImageFolder));
        let format = format.map_or_else(|| Format::guess(file), Ok)?;
        let blob = || known.map_or_else(|| Blob::open(file), |(blob, _)| Ok(blob));
        let reader: Box<dyn Reader> = match format {
            Format::RecordIo => {
                let file = |blob, index| RecordFile::new(blob, index, Arc::clone(&self.chunks));
                return self.open_indexed(blob()?, format, Index::build, file);
            }
            Format::Csv | Format::Census | Format::Criteo | Format::MovieLens => {
                let (dialect, rows) = (Dialect::of(format, file), Arc::clone(&self.rows));
                let build = |blob: &Blob| delimited::Index::build_as(dialect, blob);
                let file = |blob, index| Delimited::new(blob, dialect, index, rows);
                return self.open_indexed(blob()?, format, build, file);
            }
            Format::TfRecord => {
                return self.open_indexed(blob()?, format, Index::build, TfRecordFile::new);
            }
            Format::Idx => Box::new(IdxFile::open(file)?),
            Format::Cifar => Box::new(CifarFile::open(file)?),
            Format::Parquet => self.shared.parquet(file)?,
            Format::Sqlite => optional::sqlite(file)?,
            Format::ImageFolder => optional::images(file)?,
        };
        Ok((reader, None))
    }

    /// A file whose index is known, with its format: then nothing of it is read.
    fn known(&self, file: &Path) -> Result<Option<(Blob, Format)>, Error> {
        let Some(known) = self.known.as_ref().filter(|known| known.knows(file)) else {
            return Ok(None);
        };
        let blob = Blob::open(file)?;
        let format = known.get(&Key::of(&blob)).map(|entry| entry.format);
        Ok(format.map(|format| (blob, format)))
    }

    /// The reader of a file with its index, from the cache if that is known and can be of this file.
    fn open_indexed<I: Index, R: Reader + 'static>(
        &self,
        blob: Blob,
        format: Format,
        build: impl FnOnce(&Blob) -> Result<I, Error>,
        reader: impl FnOnce(Blob, I) -> R,
    ) -> Result<Opened, Error> {
        let key = Key::of(&blob);
        let saved = self.known.as_ref().and_then(|known| known.get(&key));
        let saved = saved.filter(|entry| entry.format == format);
        if let Some(index) = saved.and_then(|entry| I::restore(&entry.index, blob.size())) {
            return Ok((Box::new(reader(blob, index)), None));
        }
        let index = build(&blob)?;
        let entry = self.known.is_some().then(|| (key, Entry { format, index: index.save() }));
        Ok((Box::new(reader(blob, index)), entry))
    }
}

/// Calls `open` for all files on a few threads, of which the caller's is one, and gives the results in the order of
/// the files, or the first error in that order.
fn in_parallel<T: Send>(
    files: &[PathBuf],
    options: &OpenOptions<'_>,
    open: impl Fn(&Path) -> Result<T, Error> + Sync,
) -> Result<Vec<T>, Error> {
    let (next, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
    let results = Mutex::new(Vec::with_capacity(files.len()));
    let work = || {
        while !failed.load(Ordering::Relaxed) {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(file) = files.get(number) else { break };
            let result = open(file);
            failed.fetch_or(result.is_err(), Ordering::Relaxed);
            let mut results = results.lock().unwrap_or_else(PoisonError::into_inner);
            results.push((number, result));
            if let Some(progress) = options.progress {
                progress(results.len(), files.len());
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..options.threads.min(files.len()) {
            scope.spawn(work);
        }
        work();
    });
    let mut results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    results.sort_by_key(|(number, _)| *number);
    results.into_iter().map(|(_, result)| result).collect()
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
        check(
            &[path.to_owned()],
            "readme.md: cannot tell the format: give recordio, csv, idx, cifar, tfrecord, parquet, sqlite, images, \
             census, criteo or movielens",
        );
        check(&[path.join("nothing.csv")], "nothing.csv: No such file or directory (os error 2)");
        let empty = folder_with(&[]);
        check(&[empty.path().to_owned()], ": no data files in this folder");
        check(&[], "no data files were given");
    }

    fn counts(reader: &dyn Reader) -> Vec<u64> {
        reader.shards().unwrap().iter().map(|shard| shard.records).collect()
    }

    #[test]
    fn a_second_open_with_a_cache_reads_no_shard() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        std::fs::create_dir(&data).unwrap();
        for shard in 0..2000 {
            let mut writer = recordio::Writer::new(Vec::new(), recordio::Options::default());
            for record in 0..shard % 7 {
                writer.write(&[record as u8]).unwrap();
            }
            let path = data.join(format!("part-{shard:05}.recordio"));
            std::fs::write(path, writer.finish().unwrap()).unwrap();
        }
        std::fs::write(data.join("z.csv"), "x,y\n1,2\n").unwrap();
        let mut tf = crate::tfrecord::Writer::new(Vec::new());
        tf.write(b"abc").unwrap();
        std::fs::write(data.join("z.tfrecord"), tf.finish().unwrap()).unwrap();

        let cache_folder = Some(folder.path().join("run"));
        let steps = Mutex::new(Vec::new());
        let progress = |done, total| steps.lock().unwrap().push((done, total));
        let options =
            OpenOptions { cache_folder, progress: Some(&progress), ..OpenOptions::default() };
        let first = open_indexed(std::slice::from_ref(&data), None, &options).unwrap();
        let opened = crate::blob::opened(&data);
        assert_eq!(opened, 2002);
        assert!(steps.lock().unwrap().iter().copied().eq((1..=2002).map(|done| (done, 2002))));

        let second = open_indexed(std::slice::from_ref(&data), None, &options).unwrap();
        assert_eq!(crate::blob::opened(&data), opened, "no shard was read");
        let expected: Vec<u64> = (0..2000).map(|shard| shard % 7).chain([1, 1]).collect();
        assert_eq!((counts(&*first), counts(&*second)), (expected.clone(), expected));
        for shard in [5, 2000, 2001] {
            second.read(shard, 0..1, &mut |_, _| Ok(())).unwrap();
        }
    }

    #[test]
    fn a_file_that_changed_is_indexed_again() {
        let folder = folder_with(&[("a.csv", b"x\n1\n"), ("b.csv", b"x\n1\n")]);
        let cache = folder_with(&[]);
        let cache_folder = Some(cache.path().to_owned());
        let options = OpenOptions { cache_folder, threads: 1, ..OpenOptions::default() };
        let paths = [folder.path().to_owned()];
        assert_eq!(counts(&*open_indexed(&paths, None, &options).unwrap()), [1, 1]);
        std::fs::write(folder.path().join("b.csv"), "x\n1\n2\n").unwrap();
        assert_eq!(counts(&*open_indexed(&paths, None, &options).unwrap()), [1, 2]);
        let file = cache.path().join("index.cache");
        std::fs::write(&file, "nonsense").unwrap();
        assert_eq!(counts(&*open_indexed(&paths, None, &options).unwrap()), [1, 2]);
        assert!(std::fs::metadata(&file).unwrap().len() > 50, "written anew");
    }

    #[test]
    fn the_first_error_in_order_is_reported() {
        let folder = folder_with(&[("a.csv", b"x\n"), ("b.csv", b"x,x\n"), ("c.csv", b"y,y\n")]);
        for threads in [0, 1, 3] {
            let options = OpenOptions { threads, ..OpenOptions::default() };
            let error = open_indexed(&[folder.path().to_owned()], None, &options).err().unwrap();
            assert!(error.to_string().contains("b.csv: header row"), "{error}");
        }
    }
}
