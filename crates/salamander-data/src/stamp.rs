//! A file's size and modification time at indexing, because an index of another file reads nonsense.

use std::fs::{File, Metadata};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::Error;

/// A file as it was when it was indexed.
#[derive(Debug)]
pub(crate) struct Stamp {
    path: PathBuf,
    size: u64,
    modified: Option<SystemTime>,
}

impl Stamp {
    /// Opens the file and remembers its size and time.
    pub(crate) fn open(path: &Path) -> Result<(File, Stamp), Error> {
        let file = File::open(path).map_err(Error::io(path))?;
        let metadata = file.metadata().map_err(Error::io(path))?;
        if !metadata.is_file() {
            let reason = "not a regular file".to_owned();
            return Err(Error::Form { path: path.to_owned(), reason });
        }
        let (size, modified) = (metadata.len(), metadata.modified().ok());
        Ok((file, Stamp { path: path.to_owned(), size, modified }))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// Opens the file again, if it is still the same.
    pub(crate) fn reopen(&self) -> Result<File, Error> {
        let file = File::open(&self.path).map_err(Error::io(&self.path))?;
        self.compare(&file.metadata().map_err(Error::io(&self.path))?)?;
        Ok(file)
    }

    /// Checks without opening that the file is still the same.
    pub(crate) fn verify(&self) -> Result<(), Error> {
        self.compare(&std::fs::metadata(&self.path).map_err(Error::io(&self.path))?)
    }

    fn compare(&self, now: &Metadata) -> Result<(), Error> {
        if now.len() == self.size && now.modified().ok() == self.modified {
            return Ok(());
        }
        Err(Error::Changed { path: self.path.clone() })
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
        let (file, stamp) = Stamp::open(&path).unwrap();
        assert!(stamp.verify().is_ok() && stamp.reopen().is_ok());

        let later = file.metadata().unwrap().modified().unwrap() + Duration::from_secs(5);
        File::options().write(true).open(&path).unwrap().set_modified(later).unwrap();
        assert!(matches!(stamp.verify(), Err(Error::Changed { .. })));

        let (_, stamp) = Stamp::open(&path).unwrap();
        std::fs::write(&path, "abcd").unwrap();
        assert!(matches!(stamp.reopen(), Err(Error::Changed { .. })));
    }

    #[test]
    fn a_folder_is_not_a_data_file() {
        let folder = tempfile::tempdir().unwrap();
        let message = Stamp::open(folder.path()).unwrap_err().to_string();
        assert!(message.ends_with("not a regular file"), "{message}");
    }
}
