//! Bytes that formats read by position, so that no format needs to know where its files are kept.

use std::fmt::Debug;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use crate::stamp::Stamp;
use crate::{Error, places};

/// A file or object as it was when opened: cheap to clone, and never silently another one later.
///
/// A place is a path, or a URL (`s3://`, `gs://`, `az://`, `http://`, `https://`) kept in a path as it was
/// written.
///
/// ```
/// use std::io::Read;
/// use salamander_data::Blob;
///
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("digits");
/// std::fs::write(&path, "0123456789")?;
/// let blob = Blob::open(&path)?;
/// let mut two = [0; 2];
/// blob.handle()?.read_exact_at(&mut two, 4)?;
/// assert_eq!((blob.size(), &two), (10, b"45"));
///
/// let mut rest = String::new();
/// blob.handle()?.reader(7).read_to_string(&mut rest)?;
/// assert_eq!(rest, "789");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Blob {
    source: Arc<dyn BlobSource>,
}

/// Where a blob is kept: a file, or an object of a store.
pub(crate) trait BlobSource: Debug + Send + Sync {
    /// The place it was opened from.
    fn path(&self) -> &Path;
    /// Its bytes.
    fn size(&self) -> u64;
    /// What tells this version of it from others, besides its size.
    fn version(&self) -> String;
    /// Checks without opening that it is still the same, where that costs little.
    fn verify(&self) -> Result<(), Error>;
    /// Opens it for reading, if it is still the same.
    fn open(&self) -> Result<Box<dyn ReadAt>, Error>;
}

/// Bytes that are read by position.
pub(crate) trait ReadAt: Debug + Send + Sync {
    /// Fills `buf` with the bytes from `offset` on.
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()>;
}

impl ReadAt for File {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        FileExt::read_exact_at(self, buf, offset)
    }
}

/// An open [`Blob`], for one or many reads close together.
#[derive(Debug)]
pub struct BlobHandle {
    content: Box<dyn ReadAt>,
    size: u64,
}

/// A [`BlobHandle`] read from a place on, for code that wants a stream. It is not buffered.
#[derive(Debug)]
pub struct BlobReader {
    handle: BlobHandle,
    position: u64,
}

impl Blob {
    /// Remembers what is at the place now.
    pub fn open(place: &Path) -> Result<Blob, Error> {
        let source = match places::scheme(place) {
            Some(_) => open_remote(place)?,
            None => Arc::new(Stamp::take(place)?),
        };
        Ok(Blob { source })
    }

    /// What is kept elsewhere.
    pub(crate) fn of(source: Arc<dyn BlobSource>) -> Blob {
        Blob { source }
    }

    /// The place it was opened from.
    pub fn path(&self) -> &Path {
        self.source.path()
    }

    /// Its bytes.
    pub fn size(&self) -> u64 {
        self.source.size()
    }

    /// Opens it for reading; [`Error::Changed`] when it is not the same any more. A change of a remote
    /// object is found by the read that meets it, as such an [`Error`] inside of an [`io::Error`], which
    /// [`Error::io`] takes out.
    pub fn handle(&self) -> Result<BlobHandle, Error> {
        #[cfg(test)]
        OPENED.lock().unwrap().push(self.path().to_owned());
        Ok(BlobHandle { content: self.source.open()?, size: self.size() })
    }

    /// Checks without opening that it is still the same, where that costs little.
    pub(crate) fn verify(&self) -> Result<(), Error> {
        self.source.verify()
    }

    /// What tells its content from others.
    pub(crate) fn fingerprint(&self) -> String {
        format!("{} {} {}", self.path().display(), self.size(), self.version())
    }

    /// What tells this version of the file from others, besides its size.
    pub fn version(&self) -> String {
        self.source.version()
    }
}

#[cfg(feature = "cloud")]
fn open_remote(place: &Path) -> Result<Arc<dyn BlobSource>, Error> {
    Ok(Arc::new(crate::remote::open(place)?))
}

#[cfg(not(feature = "cloud"))]
fn open_remote(place: &Path) -> Result<Arc<dyn BlobSource>, Error> {
    Err(Error::form(place, "this program was built without the cloud feature"))
}

/// Places of all handles, for tests that count them.
#[cfg(test)]
static OPENED: std::sync::Mutex<Vec<std::path::PathBuf>> = std::sync::Mutex::new(Vec::new());

/// A file of this name with these bytes, in a folder of its own that goes with the first value.
#[cfg(test)]
pub(crate) fn saved(name: &str, bytes: &[u8]) -> (tempfile::TempDir, std::path::PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    std::fs::write(&path, bytes).unwrap();
    (folder, path)
}

/// How often a file, or a file in a folder, was opened.
#[cfg(test)]
pub(crate) fn opened(place: &Path) -> usize {
    OPENED.lock().unwrap().iter().filter(|path| path.starts_with(place)).count()
}

impl BlobHandle {
    /// Fills `buf` with the bytes from `offset` on.
    pub fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.content.read_exact_at(buf, offset)
    }

    /// A stream that starts at `offset`.
    pub fn reader(self, offset: u64) -> BlobReader {
        BlobReader { handle: self, position: offset }
    }
}

impl Read for BlobReader {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let left = self.handle.size.saturating_sub(self.position);
        let length = buf.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        self.handle.read_exact_at(&mut buf[..length], self.position)?;
        self.position += length as u64;
        Ok(length)
    }
}

impl Seek for BlobReader {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let position = match to {
            SeekFrom::Start(position) => Some(position),
            SeekFrom::Current(by) => self.position.checked_add_signed(by),
            SeekFrom::End(by) => self.handle.size.checked_add_signed(by),
        };
        self.position = position.ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidInput, "seek to before the first byte")
        })?;
        Ok(self.position)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blob_of(content: &[u8]) -> (tempfile::TempDir, Blob) {
        let (folder, path) = saved("data", content);
        (folder, Blob::open(&path).unwrap())
    }

    #[test]
    fn a_stream_seeks_and_ends_at_the_size() {
        let (_folder, blob) = blob_of(b"0123456789");
        let check = |to: SeekFrom, expected: &str| {
            let mut reader = blob.handle().unwrap().reader(5);
            reader.seek(to).unwrap();
            let mut found = String::new();
            reader.read_to_string(&mut found).unwrap();
            assert_eq!(found, expected);
        };
        check(SeekFrom::Start(8), "89");
        check(SeekFrom::Current(-1), "456789");
        check(SeekFrom::End(-3), "789");
        check(SeekFrom::Start(99), "");
        assert!(blob.handle().unwrap().reader(0).seek(SeekFrom::Current(-1)).is_err());
    }

    #[test]
    fn reads_past_the_end_fail() {
        let (_folder, blob) = blob_of(b"0123");
        let error = blob.handle().unwrap().read_exact_at(&mut [0; 3], 2).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn a_changed_file_gives_no_handle() {
        let (_folder, blob) = blob_of(b"0123");
        std::fs::write(blob.path(), "01234").unwrap();
        assert!(matches!(blob.handle(), Err(Error::Changed { .. })));
        assert!(matches!(blob.clone().verify(), Err(Error::Changed { .. })));
    }
}
