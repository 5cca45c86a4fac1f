//! Which report was taken last: 24 bytes that are written over with each one. In the journal it would be most of it.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use salamander_core::elastic::{Generation, ReportPlace, TakenReports, Version};
use tracing::warn;

/// Line, version, part, checksum.
const LENGTH: usize = 24;

/// The file, and what is in it. It survives the master, and mostly the machine; without it a report can be told twice.
#[derive(Debug)]
pub(crate) struct SentReports {
    file: File,
    taken: TakenReports,
}

impl SentReports {
    /// Opens the file.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(false).open(path)?;
        let mut bytes = [0; LENGTH];
        let taken = file.read_exact_at(&mut bytes, 0).ok().and_then(|()| decode(&bytes));
        Ok(Self { file, taken: taken.unwrap_or_default() })
    }

    /// What was taken last.
    pub(crate) fn taken(&self) -> TakenReports {
        self.taken
    }

    /// In one write, so that a master that is killed leaves the old or the new place.
    pub(crate) fn set(&mut self, taken: TakenReports) {
        self.taken = taken;
        let place = taken.newest.map(|place| encode(taken.line, place));
        // Zeros have another checksum than zero.
        let written = self.file.write_all_at(&place.unwrap_or([0; LENGTH]), 0);
        if let Err(error) = written {
            warn!(%error, "cannot note which report was taken");
        }
    }
}

fn encode(line: Generation, place: ReportPlace) -> [u8; LENGTH] {
    let mut bytes = [0; LENGTH];
    bytes[..8].copy_from_slice(&line.to_u64().to_le_bytes());
    bytes[8..16].copy_from_slice(&place.version.0.to_le_bytes());
    bytes[16..20].copy_from_slice(&place.part.to_le_bytes());
    let sum = crc32c::crc32c(&bytes[..20]);
    bytes[20..].copy_from_slice(&sum.to_le_bytes());
    bytes
}

fn decode(bytes: &[u8; LENGTH]) -> Option<TakenReports> {
    let line = Generation::from_u64(u64::from_le_bytes(bytes[..8].try_into().ok()?));
    let version = u64::from_le_bytes(bytes[8..16].try_into().ok()?);
    let part = u32::from_le_bytes(bytes[16..20].try_into().ok()?);
    let place = ReportPlace { version: Version(version), part };
    (encode(line, place) == *bytes).then_some(TakenReports { line, newest: Some(place) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_place_comes_back_and_a_damaged_one_is_none() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("reported");
        let mut sent_reports = SentReports::open(&path).expect("new");
        assert_eq!(sent_reports.taken(), TakenReports::default());
        let line = Generation::from_u64(1 << 32 | 9);
        for (version, part) in [(1, 0), (7, 2)] {
            let place = ReportPlace { version: Version(version), part };
            let taken = TakenReports { line, newest: Some(place) };
            sent_reports.set(taken);
            assert_eq!(SentReports::open(&path).expect("there").taken(), taken);
        }
        sent_reports.file.write_all_at(&[9], 3).expect("written");
        assert_eq!(SentReports::open(&path).expect("there").taken(), TakenReports::default());
    }
}
