//! A copy of an engine on its way to a file.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

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
    /// Optimizer steps that were applied.
    pub fn version(&self) -> u64 {
        self.header.version
    }

    /// Rows in it.
    pub fn rows(&self) -> u64 {
        self.sections.iter().flat_map(|section| &section.rows).sum()
    }

    /// Writes it: beside first, synced, then renamed, so that a file of this name is a whole one.
    pub fn write(self, path: &Path) -> Result<Written, Error> {
        let rows = self.rows();
        let beside = beside(path);
        let written = self.write_beside(&beside).and_then(|written| {
            fs::rename(&beside, path)?;
            sync_folder(path)?;
            Ok(written)
        });
        match written {
            Ok((bytes, blake3)) => Ok(Written { bytes, rows, blake3 }),
            Err(error) => {
                // What is left of the attempt is of no use; the first error is the one to report.
                fs::remove_file(&beside).ok();
                Err(Error::file(path, error))
            }
        }
    }

    fn write_beside(self, beside: &Path) -> io::Result<(u64, String)> {
        let mut out = BufWriter::with_capacity(1 << 20, File::create(beside)?);
        let written = image::write(&mut out, &self.header, self.sections)?;
        out.flush()?;
        out.get_ref().sync_all()?;
        Ok(written)
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

fn beside(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(".partial");
    path.with_file_name(name)
}

/// Makes the new name durable.
fn sync_folder(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}
