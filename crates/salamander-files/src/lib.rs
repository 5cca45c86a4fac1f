//! Files and folders that are there completely or not at all: written beside their place and renamed.
//!
//! A crate of its own with nothing but the system below it, so that servers, which see neither tokio nor object stores,
//! use the same code as everybody else.
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
//! - [`PendingFolder`]: a folder; [`put_back`]: after a crash while one took another's place
//! - [`LockedFolder`]: a folder for as long as it is in use
//! - [`sync_folder_of`], [`write_synced`]: what a durable write is made of
//! - [`raise_open_files`]: for who opens more of them than is usual
//! - [`Disk`]: what all this needs of a disk; `faulty` has one for tests, behind the feature of that name, and
//!   `mutated` bytes for tests of decoders

mod disk;
#[cfg(feature = "faulty")]
pub mod faulty;
mod locked;
#[cfg(feature = "faulty")]
pub mod mutated;

use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

pub use disk::{Access, Disk, DiskFile, real};
pub use locked::LockedFolder;

/// Bytes that a writer collects before it asks the system.
const BUFFER: usize = 1 << 18;

/// How the name of a folder ends that is set aside while another takes its place.
const REPLACED: &str = ".replaced";

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
    let mut pending = PendingFile::create_at(real(), beside.to_path_buf(), path, durability)?;
    let written = write(&mut pending)?;
    pending.commit()?;
    Ok(written)
}

/// A file that is removed unless it is committed.
#[derive(Debug)]
pub struct PendingFile {
    path: PathBuf,
    beside: PathBuf,
    out: BufWriter<Appending>,
    durability: Durability,
    disk: Arc<dyn Disk>,
}

/// Writes one piece after the other.
#[derive(Debug)]
struct Appending {
    file: Box<dyn DiskFile>,
    end: u64,
}

impl Write for Appending {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write_all_at(bytes, self.end)?;
        self.end += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl PendingFile {
    /// Begins a file as `NAME.tmp`; what a killed process has left there is written over.
    pub fn create(path: &Path, durability: Durability) -> io::Result<Self> {
        Self::create_on(real(), path, durability)
    }

    /// [`PendingFile::create`] on a given disk.
    pub fn create_on(disk: Arc<dyn Disk>, path: &Path, durability: Durability) -> io::Result<Self> {
        Self::create_at(disk, beside(path, ".tmp"), path, durability)
    }

    fn create_at(
        disk: Arc<dyn Disk>,
        beside: PathBuf,
        path: &Path,
        durability: Durability,
    ) -> io::Result<Self> {
        let file = disk.open(&beside, Access::Empty)?;
        let out = BufWriter::with_capacity(BUFFER, Appending { file, end: 0 });
        Ok(Self { path: path.to_path_buf(), beside, out, durability, disk })
    }

    /// Where it is until it is whole.
    pub fn beside(&self) -> &Path {
        &self.beside
    }

    /// The file with all that was written so far, for writes at other places of it.
    pub fn file(&mut self) -> io::Result<&dyn DiskFile> {
        self.out.flush()?;
        Ok(&*self.out.get_ref().file)
    }

    /// Gives the file its name.
    pub fn commit(mut self) -> io::Result<()> {
        self.out.flush()?;
        if self.durability == Durability::Synced {
            self.out.get_ref().file.sync()?;
        }
        self.disk.rename(&self.beside, &self.path)?;
        sync_parent(&*self.disk, &self.path, self.durability)
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
        let _ = self.disk.remove_file(&self.beside);
    }
}

/// A folder that is filled beside its place, and removed unless it is committed.
#[derive(Debug)]
pub struct PendingFolder {
    beside: PathBuf,
    disk: Arc<dyn Disk>,
}

impl PendingFolder {
    /// Makes it empty, whatever a killed process has left there.
    pub fn create(beside: impl Into<PathBuf>) -> io::Result<Self> {
        Self::create_on(real(), beside)
    }

    /// [`PendingFolder::create`] on a given disk.
    pub fn create_on(disk: Arc<dyn Disk>, beside: impl Into<PathBuf>) -> io::Result<Self> {
        let beside = beside.into();
        if disk.exists(&beside) {
            disk.remove_folder(&beside)?;
        }
        disk.create_folder(&beside)?;
        Ok(Self { beside, disk })
    }

    /// Where it is until it is whole.
    pub fn path(&self) -> &Path {
        &self.beside
    }

    /// Gives the folder its name; fails if there is a folder of that name with content. Its files are synced by who
    /// writes them.
    pub fn commit(&self, path: &Path, durability: Durability) -> io::Result<()> {
        self.disk.rename(&self.beside, path)?;
        sync_parent(&*self.disk, path, durability)
    }

    /// [`PendingFolder::commit`] in place of a folder that has the name: readers find one of the two. Where the file
    /// system cannot swap names the old one is set aside meanwhile, and [`put_back`] is for who crashes just then.
    pub fn replace(&self, path: &Path, durability: Durability) -> io::Result<()> {
        if !self.disk.exists(path) {
            return self.commit(path, durability);
        }
        match self.disk.exchange(&self.beside, path) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::Unsupported => self.take_place(path)?,
            Err(error) => return Err(error),
        }
        sync_parent(&*self.disk, path, durability)
    }

    fn take_place(&self, path: &Path) -> io::Result<()> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let aside = path.with_file_name(format!(".{name}{REPLACED}"));
        self.disk.rename(path, &aside)?;
        if let Err(error) = self.disk.rename(&self.beside, path) {
            self.disk.rename(&aside, path)?;
            return Err(error);
        }
        // Only a waste of room, which [`put_back`] removes.
        let _ = self.disk.remove_folder(&aside);
        Ok(())
    }
}

/// Ends what a crash has cut short within [`PendingFolder::replace`]: a folder that was set aside gets its name back,
/// unless another has it by now. For when nobody is at work in the folder.
pub fn put_back(disk: &dyn Disk, folder: &Path) -> io::Result<()> {
    for entry in disk.names(folder)? {
        let Some(name) = entry.strip_prefix('.').and_then(|name| name.strip_suffix(REPLACED))
        else {
            continue;
        };
        let (aside, place) = (folder.join(&entry), folder.join(name));
        if disk.exists(&place) {
            disk.remove_folder(&aside)?;
        } else {
            disk.rename(&aside, &place)?;
        }
    }
    Ok(())
}

impl Drop for PendingFolder {
    fn drop(&mut self) {
        // After a commit there is nothing to remove.
        let _ = self.disk.remove_folder(&self.beside);
    }
}

/// Writes a file and waits until the disk has it; for files of a [`PendingFolder`].
pub fn write_synced(disk: &dyn Disk, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let file = disk.open(path, Access::Empty)?;
    file.write_all_at(bytes, 0)?;
    file.sync()
}

/// Waits until the disk knows the entries of the folder that something is in.
pub fn sync_folder_of(disk: &dyn Disk, path: &Path) -> io::Result<()> {
    match path.parent() {
        None => Ok(()),
        Some(folder) if folder.as_os_str().is_empty() => disk.sync_folder(Path::new(".")),
        Some(folder) => disk.sync_folder(folder),
    }
}

/// Lets this process have as many files and connections open as the system allows it: the usual bound is low for who
/// serves, or writes many shards at a time.
pub fn raise_open_files() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    // Where that is not allowed, there are as many as there were.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

fn sync_parent(disk: &dyn Disk, path: &Path, durability: Durability) -> io::Result<()> {
    match durability {
        Durability::Unsynced => Ok(()),
        Durability::Synced => sync_folder_of(disk, path),
    }
}

fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(ending);
    path.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use std::fs;

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
            write_synced(&*real(), &pending.path().join("x"), b"x").expect("written");
            let named = pending.commit(&path, Durability::Synced);
            assert_eq!(named.is_ok(), expected);
            drop(pending);
            assert_eq!(names(folder.path()), 1);
        }
        assert_eq!(fs::read(path.join("x")).expect("there"), b"x");
    }

    #[test]
    fn a_folder_takes_the_place_of_another_and_a_crash_meanwhile_loses_neither() {
        let folder = tempfile::tempdir().expect("a folder");
        let (beside, path) = (folder.path().join(".new"), folder.path().join("step-1"));
        type Take = fn(&PendingFolder, &Path) -> io::Result<()>;
        let takes: [Take; 3] = [
            |pending, path| pending.replace(path, Durability::Synced),
            |pending, path| pending.replace(path, Durability::Synced),
            PendingFolder::take_place,
        ];
        for (number, take) in takes.into_iter().enumerate() {
            let pending = PendingFolder::create(&beside).expect("made");
            write_synced(&*real(), &pending.path().join("x"), &[number as u8]).expect("written");
            take(&pending, &path).expect("in place");
            drop(pending);
            assert_eq!(fs::read(path.join("x")).expect("there"), [number as u8]);
            assert_eq!(names(folder.path()), 1, "the old one is gone");
        }
        // A crash after the old one was set aside, and one after the new one was in its place.
        for new_is_there in [false, true] {
            let aside = folder.path().join(".step-1.replaced");
            fs::rename(&path, &aside).expect("set aside");
            if new_is_there {
                fs::create_dir(&path).expect("made");
            }
            put_back(&*real(), folder.path()).expect("put back");
            assert_eq!((path.join("x").exists(), names(folder.path())), (!new_is_there, 1));
        }
    }
}
