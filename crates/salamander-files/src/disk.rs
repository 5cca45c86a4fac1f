//! What durable files need of a disk: the machine's own, or in tests one that loses, reorders and refuses.

use std::fmt::Debug;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{CWD, RenameFlags, renameat_with};

/// How a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// To be read; it must be there.
    Read,
    /// Empty, whatever was there.
    Empty,
    /// As it is, or empty if it is not there.
    Keep,
}

/// A disk.
pub trait Disk: Debug + Send + Sync {
    /// Opens a file.
    fn open(&self, path: &Path, access: Access) -> io::Result<Box<dyn DiskFile>>;
    /// Makes a folder and those above it.
    fn create_folder(&self, path: &Path) -> io::Result<()>;
    /// The names in a folder, in no order.
    fn names(&self, folder: &Path) -> io::Result<Vec<String>>;
    /// Whether there is something of this name.
    fn exists(&self, path: &Path) -> bool;
    /// Gives something another name; a file of that name is replaced, a folder only if it is empty.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Swaps two names in one step; `Unsupported` where the disk cannot.
    fn exchange(&self, one: &Path, other: &Path) -> io::Result<()>;
    /// Removes a file.
    fn remove_file(&self, path: &Path) -> io::Result<()>;
    /// Removes a folder with all that is in it.
    fn remove_folder(&self, path: &Path) -> io::Result<()>;
    /// Waits until the names in a folder are on the disk.
    fn sync_folder(&self, path: &Path) -> io::Result<()>;

    /// The whole content of a file.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let file = self.open(path, Access::Read)?;
        let length = usize::try_from(file.length()?).map_err(io::Error::other)?;
        let mut bytes = vec![0; length];
        file.read_exact_at(&mut bytes, 0)?;
        Ok(bytes)
    }
}

/// An open file of a [`Disk`].
pub trait DiskFile: Debug + Send + Sync {
    /// Its length in bytes.
    fn length(&self) -> io::Result<u64>;
    /// Fills a buffer with what is at an offset.
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()>;
    /// Writes at an offset; the file grows as it must.
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;
    /// Cuts it, or makes it longer with zeros.
    fn set_length(&self, length: u64) -> io::Result<()>;
    /// Waits until everything written is on the disk. After an error nothing written since the last success may be.
    fn sync(&self) -> io::Result<()>;
    /// Keeps others from locking it, for as long as it is open.
    fn try_lock(&self) -> Result<(), TryLockError>;
}

/// The machine's disk.
pub fn real() -> Arc<dyn Disk> {
    Arc::new(RealDisk)
}

#[derive(Debug)]
struct RealDisk;

impl Disk for RealDisk {
    fn open(&self, path: &Path, access: Access) -> io::Result<Box<dyn DiskFile>> {
        let mut options = OpenOptions::new();
        options.read(true);
        match access {
            Access::Read => {}
            Access::Empty => drop(options.write(true).create(true).truncate(true)),
            Access::Keep => drop(options.write(true).create(true).truncate(false)),
        }
        Ok(Box::new(options.open(path)?))
    }

    fn create_folder(&self, path: &Path) -> io::Result<()> {
        fs::create_dir_all(path)
    }

    fn names(&self, folder: &Path) -> io::Result<Vec<String>> {
        let name =
            |entry: io::Result<fs::DirEntry>| Ok(entry?.file_name().to_string_lossy().into_owned());
        fs::read_dir(folder)?.map(name).collect()
    }

    fn exists(&self, path: &Path) -> bool {
        path.exists()
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn exchange(&self, one: &Path, other: &Path) -> io::Result<()> {
        use rustix::io::Errno;
        renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE).map_err(|error| match error {
            Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP => io::ErrorKind::Unsupported.into(),
            error => error.into(),
        })
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn remove_folder(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir_all(path)
    }

    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }
}

impl DiskFile for File {
    fn length(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        FileExt::read_exact_at(self, buffer, offset)
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        FileExt::write_all_at(self, bytes, offset)
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        self.set_len(length)
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_all()
    }

    fn try_lock(&self) -> Result<(), TryLockError> {
        File::try_lock(self)
    }
}
