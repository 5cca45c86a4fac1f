//! Which report was taken last: 16 bytes that are written over with each one. In the journal it would be most of it.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use tracing::warn;

/// Version, part, checksum.
const LENGTH: usize = 16;

/// The file, and what is in it. It survives the master, and mostly the machine; without it a report can be told twice.
#[derive(Debug)]
pub(crate) struct SentReports {
    file: File,
    place: Option<(u64, u32)>,
}

impl SentReports {
    /// Opens the file.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(false).open(path)?;
        let mut bytes = [0; LENGTH];
        let place = file.read_exact_at(&mut bytes, 0).ok().and_then(|()| decode(&bytes));
        Ok(Self { file, place })
    }

    /// The (version, part) that was taken last.
    pub(crate) fn place(&self) -> Option<(u64, u32)> {
        self.place
    }

    /// In one write, so that a master that is killed leaves the old or the new place.
    pub(crate) fn set(&mut self, place: Option<(u64, u32)>) {
        self.place = place;
        // Zeros have another checksum than zero.
        let written = self.file.write_all_at(&place.map_or([0; LENGTH], encode), 0);
        if let Err(error) = written {
            warn!(%error, "cannot note which report was taken");
        }
    }
}

fn encode((version, part): (u64, u32)) -> [u8; LENGTH] {
    let mut bytes = [0; LENGTH];
    bytes[..8].copy_from_slice(&version.to_le_bytes());
    bytes[8..12].copy_from_slice(&part.to_le_bytes());
    let sum = crc32c::crc32c(&bytes[..12]);
    bytes[12..].copy_from_slice(&sum.to_le_bytes());
    bytes
}

fn decode(bytes: &[u8; LENGTH]) -> Option<(u64, u32)> {
    let version = u64::from_le_bytes(bytes[..8].try_into().ok()?);
    let part = u32::from_le_bytes(bytes[8..12].try_into().ok()?);
    (encode((version, part)) == *bytes).then_some((version, part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_place_comes_back_and_a_damaged_one_is_none() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("reported");
        let mut sent_reports = SentReports::open(&path).expect("new");
        assert_eq!(sent_reports.place(), None);
        for place in [Some((1, 0)), None, Some((7, 2))] {
            sent_reports.set(place);
            assert_eq!(SentReports::open(&path).expect("there").place(), place);
        }
        sent_reports.file.write_all_at(&[9], 3).expect("written");
        assert_eq!(SentReports::open(&path).expect("there").place(), None);
    }
}
