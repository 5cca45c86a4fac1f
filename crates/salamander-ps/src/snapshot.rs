//! A copy of an engine on its way to a file.

use std::path::Path;
use std::sync::Arc;

use salamander_files::{Disk, Durability, PendingFile, real};

use crate::image::{self, Header};
use crate::shard::Encoded;
use crate::{Engine, Error, Written};

/// A copy of all partitions of an engine, of one moment. It is made while it is written.
#[derive(Debug)]
pub struct Snapshot {
    pub(crate) engine: Engine,
    /// Which copy of the engine it is.
    pub(crate) copy: u64,
    pub(crate) header: Header,
    pub(crate) partitions: Vec<u16>,
}

impl Snapshot {
    /// Writes it; a file of this name is a whole one. It fails if everything was replaced since the copy was asked for.
    pub fn write(self, path: &Path) -> Result<Written, Error> {
        self.write_on(real(), path)
    }

    /// [`Snapshot::write`] on a given disk.
    pub fn write_on(self, disk: Arc<dyn Disk>, path: &Path) -> Result<Written, Error> {
        let mut pending = PendingFile::create_on(disk, path, Durability::Synced)
            .map_err(|error| Error::file(path, error))?;
        let (mut rows, mut failed) = (0, None);
        let sections = self.sections().map_while(|section| match section {
            Ok(section) => {
                rows += section.rows.iter().sum::<u64>();
                Some(section)
            }
            Err(error) => {
                failed = Some(error);
                None
            }
        });
        let written = image::write(&mut pending, &self.header, sections);
        if let Some(error) = failed {
            return Err(error);
        }
        let committed = written.and_then(|written| pending.commit().map(|()| written));
        let (bytes, blake3) = committed.map_err(|error| Error::file(path, error))?;
        Ok(Written { bytes, rows, blake3 })
    }

    /// Its partitions, each of which is copied when it is asked for.
    pub(crate) fn sections(&self) -> impl Iterator<Item = Result<Encoded, Error>> + '_ {
        self.partitions.iter().map(|partition| self.engine.section(self.copy, *partition))
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        self.engine.end_copy(self.copy);
    }
}
