//! A copy of an engine on its way to a file.

use std::path::Path;
use std::sync::Arc;

use salamander_files::{Disk, Durability, PendingFile, real};

use crate::image::{self, Header};
use crate::shard::Encoded;
use crate::{Error, Written};

/// A copy of all partitions of an engine, of one moment.
#[derive(Debug)]
pub struct Snapshot {
    pub(crate) header: Header,
    pub(crate) sections: Vec<Encoded>,
}

impl Snapshot {
    /// Rows in it.
    pub fn rows(&self) -> u64 {
        self.sections.iter().flat_map(|section| &section.rows).sum()
    }

    /// Writes it; a file of this name is a whole one.
    pub fn write(self, path: &Path) -> Result<Written, Error> {
        self.write_on(real(), path)
    }

    /// [`Snapshot::write`] on a given disk.
    pub fn write_on(self, disk: Arc<dyn Disk>, path: &Path) -> Result<Written, Error> {
        let rows = self.rows();
        let mut pending = PendingFile::create_on(disk, path, Durability::Synced)
            .map_err(|error| Error::file(path, error))?;
        let written = image::write(&mut pending, &self.header, self.sections);
        let committed = written.and_then(|written| pending.commit().map(|()| written));
        let (bytes, blake3) = committed.map_err(|error| Error::file(path, error))?;
        Ok(Written { bytes, rows, blake3 })
    }

    /// The same as bytes, to move partitions to another server.
    pub(crate) fn into_bytes(self) -> Result<Vec<u8>, Error> {
        let mut bytes = Vec::new();
        match image::write(&mut bytes, &self.header, self.sections) {
            Ok(_) => Ok(bytes),
            Err(error) => Err(Error::Request(format!("cannot encode partitions: {error}"))),
        }
    }
}
