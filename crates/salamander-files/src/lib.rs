//! Files and folders that are there completely or not at all: written beside their place and renamed.
//!
//! A crate of its own without dependencies, so that servers, which see neither tokio nor object stores, use the same
//! code as everybody else.
//!
//! ```
//! use salamander_files::{Durability, replace};
//!
//! let path = std::env::temp_dir().join(format!("salamander-files-{}", std::process::id()));
//! replace(&path, b"whole", Durability::Unsynced)?;
//! assert_eq!(std::fs::read(&path)?, b"whole");
//! # std::fs::remove_file(&path)?;
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! # Layout
//! - [`replace`], [`replace_via`]: a file whose content is at hand, or comes from a function
//! - [`PendingFile`]: a file that is written over a longer time
//! - [`PendingFolder`]: a folder
//! - [`sync_folder`], [`write_synced`]: what a durable write is made of

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// Bytes that a writer collects before it asks the system.
const BUFFER: usize = 1 << 18;

/// What a file that was written survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// The end of any process, but not of the machine: for caches and for what can be made again.
    Unsynced,
    /// The end of the machine too: bytes and name are on the disk when the call returns.
    Synced,
}

/// Replaces a file in one step: readers see the old content or the new.
pub fn replace(path: &Path, bytes: &[u8], durability: Durability) -> io::Result<()> {
    // Several processes may write the same file.
    let beside = beside(path, &format!(".{}.tmp", std::process::id()));
    replace_via(&beside, path, durability, |out| out.write_all(bytes))
}

/// [`replace`] with a function that writes, into a file of a given name until it is whole.
pub fn replace_via<T, E: From<io::Error>>(
    beside: &Path,
    path: &Path,
    durability: Durability,
    write: impl FnOnce(&mut PendingFile) -> Result<T, E>,
) -> Result<T, E> {
    let mut pending = PendingFile::create_at(beside.to_path_buf(), path, durability)?;
    let written = write(&mut pending)?;
    pending.commit()?;
    Ok(written)
}

/// A file that is removed unless it is committed.
#[derive(Debug)]
pub struct PendingFile {
    path: PathBuf,
    beside: PathBuf,
    out: BufWriter<File>,
    durability: Durability,
}

impl PendingFile {
    /// Begins a file as `NAME.tmp`; what a killed process has left there is written over.
    pub fn create(path: &Path, durability: Durability) -> io::Result<Self> {
        Self::create_at(beside(path, ".tmp"), path, durability)
    }

    fn create_at(beside: PathBuf, path: &Path, durability: Durability) -> io::Result<Self> {
        let out = BufWriter::with_capacity(BUFFER, File::create(&beside)?);
        Ok(Self { path: path.to_path_buf(), beside, out, durability })
    }

    /// Where it is until it is whole.
    pub fn beside(&self) -> &Path {
        &self.beside
    }

    /// The file with all that was written so far, for writes at other places of it.
    pub fn file(&mut self) -> io::Result<&File> {
        self.out.flush()?;
        Ok(self.out.get_ref())
    }

    /// Gives the file its name.
    pub fn commit(mut self) -> io::Result<()> {
        self.out.flush()?;
        if self.durability == Durability::Synced {
            self.out.get_ref().sync_all()?;
        }
        fs::rename(&self.beside, &self.path)?;
        sync_parent(&self.path, self.durability)
    }
}

impl Write for PendingFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.out.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

impl Drop for PendingFile {
    fn drop(&mut self) {
        // After a commit there is nothing to remove, and a failure leaves only a file that says it is temporary.
        let _ = fs::remove_file(&self.beside);
    }
}

/// A folder that is filled beside its place, and removed unless it is committed.
#[derive(Debug)]
pub struct PendingFolder {
    beside: PathBuf,
}

impl PendingFolder {
    /// Makes it empty, whatever a killed process has left there.
    pub fn create(beside: impl Into<PathBuf>) -> io::Result<Self> {
        let beside = beside.into();
        if beside.exists() {
            fs::remove_dir_all(&beside)?;
        }
        fs::create_dir_all(&beside)?;
        Ok(Self { beside })
    }

    /// Where it is until it is whole.
    pub fn path(&self) -> &Path {
        &self.beside
    }

    /// Gives the folder its name; fails if there is a folder of that name with content. Its files are synced by who
    /// writes them.
    pub fn commit(&self, path: &Path, durability: Durability) -> io::Result<()> {
        fs::rename(&self.beside, path)?;
        sync_parent(path, durability)
    }
}

impl Drop for PendingFolder {
    fn drop(&mut self) {
        // After a commit there is nothing to remove.
        let _ = fs::remove_dir_all(&self.beside);
    }
}

/// Writes a file and waits until the disk has it; for files of a [`PendingFolder`].
pub fn write_synced(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// Waits until the disk knows a folder's entries.
pub fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

fn sync_parent(path: &Path, durability: Durability) -> io::Result<()> {
    match (durability, path.parent()) {
        (Durability::Unsynced, _) | (_, None) => Ok(()),
        (_, Some(folder)) if folder.as_os_str().is_empty() => sync_folder(Path::new(".")),
        (_, Some(folder)) => sync_folder(folder),
    }
}

fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(ending);
    path.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> usize {
        fs::read_dir(folder).expect("there").count()
    }

    #[test]
    fn a_file_appears_only_when_it_is_whole() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.csv");
        for durability in [Durability::Unsynced, Durability::Synced] {
            let mut pending = PendingFile::create(&path, durability).expect("made");
            pending.write_all(b"abc").expect("written");
            drop(pending);
            assert_eq!(names(folder.path()), 0, "given up");
            let mut pending = PendingFile::create(&path, durability).expect("made");
            pending.write_all(b"abc").expect("written");
            assert!(!path.exists());
            pending.commit().expect("named");
            assert_eq!((fs::read(&path).expect("there"), names(folder.path())), (b"abc".into(), 1));
            fs::remove_file(&path).expect("removed");
        }
    }

    #[test]
    fn a_failed_write_leaves_the_old_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a");
        replace(&path, b"old", Durability::Unsynced).expect("written");
        let beside = folder.path().join("b");
        let failed = replace_via(&beside, &path, Durability::Synced, |out| {
            out.write_all(b"half")?;
            Err::<(), _>(io::Error::other("the disk is full"))
        });
        assert_eq!(failed.expect_err("it failed").to_string(), "the disk is full");
        assert_eq!((fs::read(&path).expect("there"), names(folder.path())), (b"old".into(), 1));
    }

    #[test]
    fn a_folder_appears_with_its_content_and_never_replaces_another() {
        let folder = tempfile::tempdir().expect("a folder");
        let (beside, path) = (folder.path().join(".new"), folder.path().join("run"));
        for expected in [true, false] {
            let pending = PendingFolder::create(&beside).expect("made");
            write_synced(&pending.path().join("x"), b"x").expect("written");
            let named = pending.commit(&path, Durability::Synced);
            assert_eq!(named.is_ok(), expected);
            drop(pending);
            assert_eq!(names(folder.path()), 1);
        }
        assert_eq!(fs::read(path.join("x")).expect("there"), b"x");
    }
}
