//! The hub's journals: what was said, one line per entry, on the disk before anybody is told that it was heard.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::Error;

/// The open journal.
pub(crate) struct Journal<T> {
    file: File,
    path: PathBuf,
    end: u64,
    /// What is written and not in the store yet, each with the place after it.
    pub(crate) pending: Vec<(T, u64)>,
}

impl<T: Serialize + DeserializeOwned> Journal<T> {
    /// Opens it, and gives the entries from a place on, each with the place after it. What a crash left of the last
    /// line is cut off.
    pub(crate) fn open(path: &Path, from: u64) -> Result<(Self, Vec<(T, u64)>), Error> {
        let file =
            OpenOptions::new().create(true).truncate(false).read(true).write(true).open(path);
        let mut file = file.map_err(Error::io(path))?;
        let length = file.metadata().map_err(Error::io(path))?.len();
        // A store that has seen more than there is belongs to another journal.
        let from = if from <= length { from } else { 0 };
        let mut bytes = Vec::new();
        file.seek(SeekFrom::Start(from))
            .and_then(|_| file.read_to_end(&mut bytes))
            .map_err(Error::io(path))?;
        let (mut entries, mut end) = (Vec::new(), from);
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            let entry = line.strip_suffix(b"\n").map(serde_json::from_slice::<T>);
            match entry {
                Some(Ok(entry)) => {
                    end += line.len() as u64;
                    entries.push((entry, end));
                }
                None => break,
                Some(Err(error)) => {
                    let path = path.display();
                    let reason = format!("{path}: what begins at byte {end} is no entry: {error}");
                    return Err(Error::Invalid(reason));
                }
            }
        }
        file.set_len(end).map_err(Error::io(path))?;
        Ok((Self { file, path: path.to_path_buf(), end, pending: Vec::new() }, entries))
    }

    /// Where the next entry goes.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    /// Adds entries; when this returns they are on the disk, and when it fails none of them is. Gives the place after
    /// each.
    pub(crate) fn append(&mut self, entries: &[T]) -> Result<Vec<u64>, Error> {
        let (mut text, mut ends) = (Vec::new(), Vec::new());
        for entry in entries {
            let written = serde_json::to_writer(&mut text, entry);
            written
                .map_err(|error| Error::Invalid(format!("an entry cannot be written: {error}")))?;
            text.push(b'\n');
            ends.push(self.end + text.len() as u64);
        }
        let place = self.file.seek(SeekFrom::Start(self.end));
        let written =
            place.and_then(|_| self.file.write_all(&text)).and_then(|()| self.file.sync_data());
        if let Err(error) = written {
            // A part of it may be there; if it cannot be cut off now, the next entry is written over it.
            let _ = self.file.set_len(self.end);
            return Err(Error::io(&self.path)(error));
        }
        self.end += text.len() as u64;
        Ok(ends)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::ExperimentId;
    use crate::operation::{Entry, Operation, Wanted};

    fn entry(number: i64) -> Entry {
        let operation =
            Operation::Want { experiment: ExperimentId(number), wanted: Wanted::Paused };
        Entry { time: number, user: "ada".to_string(), operation }
    }

    #[test]
    fn entries_come_back_and_a_torn_one_is_cut_off() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("journal.jsonl");
        let (mut journal, before) = Journal::<Entry>::open(&path, 0).expect("new");
        assert!(before.is_empty());
        journal.append(&[entry(1), entry(2)]).expect("written");
        let seen = journal.end();
        journal.append(&[entry(3)]).expect("written");
        let whole = std::fs::read(&path).expect("read");
        std::fs::write(&path, &whole[..whole.len() - 3]).expect("torn");
        let (mut journal, entries) = Journal::open(&path, 0).expect("opened");
        let entries: Vec<Entry> = entries.into_iter().map(|(entry, _)| entry).collect();
        assert_eq!(entries, [entry(1), entry(2)]);
        assert_eq!(journal.end(), seen);
        journal.append(&[entry(4)]).expect("written");
        let (_, after) = Journal::open(&path, seen).expect("opened");
        assert_eq!(after, [(entry(4), journal.end())]);
        std::fs::write(&path, "something else\n").expect("written");
        let error = Journal::<Entry>::open(&path, 0).err().expect("foreign").to_string();
        assert!(error.contains("what begins at byte 0 is no entry"), "{error}");
    }
}
