//! A sink's file, which appears when it is whole, and how many bytes it has so far.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use flate2::Compression;
use flate2::write::GzEncoder;
use salamander_files::{Durability, PendingFile};

use crate::Error;
use crate::gzip::is_gz;

/// An output that is removed unless it is committed.
#[derive(Debug)]
pub(super) struct Pending {
    path: PathBuf,
    out: PendingOutput,
    count: Count,
}

#[derive(Debug)]
enum PendingOutput {
    Plain(PendingFile),
    Gzip(Box<GzEncoder<PendingFile>>),
}

/// How many bytes an output has, for those that have given the output away.
#[derive(Clone, Debug, Default)]
pub(super) struct Count(Arc<AtomicU64>);

impl Count {
    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Pending {
    pub(super) fn create(path: &Path) -> Result<Pending, Error> {
        let out = PendingFile::create(path, Durability::Synced).map_err(Error::io(path))?;
        let out = PendingOutput::Plain(out);
        Ok(Pending { path: path.to_owned(), out, count: Count::default() })
    }

    /// A text file, which is packed if its name ends with `.gz`.
    pub(super) fn create_text(path: &Path) -> Result<Pending, Error> {
        let pending = Pending::create(path)?;
        let out = match pending.out {
            PendingOutput::Plain(out) if is_gz(path) => {
                PendingOutput::Gzip(Box::new(GzEncoder::new(out, Compression::default())))
            }
            out => out,
        };
        Ok(Pending { out, ..pending })
    }

    pub(super) fn count(&self) -> Count {
        self.count.clone()
    }

    /// Writes bytes at the end.
    pub(super) fn append(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.write_all(bytes).map_err(Error::io(&self.path))
    }

    /// Writes over bytes that were written before, such as a count that was not known.
    pub(super) fn write_over(&mut self, bytes: &[u8], offset: u64) -> Result<(), Error> {
        let written = match &mut self.out {
            PendingOutput::Plain(out) => {
                out.file().and_then(|file| file.write_all_at(bytes, offset))
            }
            PendingOutput::Gzip(_) => Err(io::ErrorKind::Unsupported.into()),
        };
        written.map_err(Error::io(&self.path))
    }

    /// Makes sure of the bytes and gives the file its name.
    pub(super) fn commit(self) -> Result<(), Error> {
        let committed = match self.out {
            PendingOutput::Plain(out) => out.commit(),
            PendingOutput::Gzip(out) => out.finish().and_then(PendingFile::commit),
        };
        committed.map_err(Error::io(&self.path))
    }
}

impl Write for Pending {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = match &mut self.out {
            PendingOutput::Plain(out) => out.write(bytes)?,
            PendingOutput::Gzip(out) => out.write(bytes)?,
        };
        self.count.0.fetch_add(written as u64, Ordering::Relaxed);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.out {
            PendingOutput::Plain(out) => out.flush(),
            PendingOutput::Gzip(out) => out.flush(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_appears_only_when_it_is_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.csv");
        let names = || std::fs::read_dir(folder.path()).unwrap().count();
        let mut pending = Pending::create(&path).unwrap();
        pending.write_all(b"abc").unwrap();
        assert!(!path.exists());
        drop(pending);
        assert_eq!(names(), 0);
        let mut pending = Pending::create(&path).unwrap();
        pending.write_all(b"abcd").unwrap();
        assert_eq!(pending.count().get(), 4);
        pending.commit().unwrap();
        assert_eq!((std::fs::read(&path).unwrap(), names()), (b"abcd".to_vec(), 1));
    }
}
