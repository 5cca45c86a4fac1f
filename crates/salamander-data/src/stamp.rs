//! A local file's size and modification time at opening, because an index of another file reads nonsense.

use std::fs::{File, Metadata};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::Error;
use crate::blob::{BlobSource, ReadAt};

/// A file as it was when it was opened.
#[derive(Debug)]
pub(crate) struct Stamp {
    path: PathBuf,
    size: u64,
    modified: Option<SystemTime>,
}

impl Stamp {
    /// Remembers the file's size and time.
    pub(crate) fn take(path: &Path) -> Result<Stamp, Error> {
        let metadata = std::fs::metadata(path).map_err(Error::io(path))?;
        if !metadata.is_file() {
            return Err(Error::form(path, "not a regular file"));
        }
        let (size, modified) = (metadata.len(), metadata.modified().ok());
        Ok(Stamp { path: path.to_owned(), size, modified })
    }

    fn compare(&self, now: &Metadata) -> Result<(), Error> {
        if now.len() == self.size && now.modified().ok() == self.modified {
            return Ok(());
        }
        Err(Error::Changed { path: self.path.clone() })
    }
}

impl BlobSource for Stamp {
    fn path(&self) -> &Path {
        &self.path
    }

    fn size(&self) -> u64 {
        self.size
    }

    /// When the file was last written, where the system says so.
    fn version(&self) -> String {
        let since = self.modified.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        since.map_or_else(String::new, |since| since.as_nanos().to_string())
    }

    fn verify(&self) -> Result<(), Error> {
        self.compare(&std::fs::metadata(&self.path).map_err(Error::io(&self.path))?)
    }

    fn open(&self) -> Result<Box<dyn ReadAt>, Error> {
        let file = File::open(&self.path).map_err(Error::io(&self.path))?;
        self.compare(&file.metadata().map_err(Error::io(&self.path))?)?;
        Ok(Box::new(file))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_change_of_size_or_time_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("data");
        std::fs::write(&path, "abc").unwrap();
        let stamp = Stamp::take(&path).unwrap();
        assert!(stamp.verify().is_ok() && stamp.open().is_ok());

        let later = stamp.modified.unwrap() + Duration::from_secs(5);
        File::options().write(true).open(&path).unwrap().set_modified(later).unwrap();
        assert!(matches!(stamp.verify(), Err(Error::Changed { .. })));

        let stamp = Stamp::take(&path).unwrap();
        std::fs::write(&path, "abcd").unwrap();
        assert!(matches!(stamp.open(), Err(Error::Changed { .. })));
    }

    #[test]
    fn a_folder_is_not_a_data_file() {
        let folder = tempfile::tempdir().unwrap();
        let message = Stamp::take(folder.path()).unwrap_err().to_string();
        assert!(message.ends_with("not a regular file"), "{message}");
    }
}
