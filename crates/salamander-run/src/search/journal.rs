//! What a search has heard, kept so that it can be killed at any moment.

use std::fs::{self, File, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use salamander_search::SearchEvent;

use crate::Error;

/// The journal of a search.
pub(super) struct SearchJournal {
    file: File,
    path: PathBuf,
}

impl SearchJournal {
    /// Opens it, and gives what was heard; a line that was cut short by a kill is taken away.
    pub(super) fn open(path: &Path) -> Result<(Self, Vec<SearchEvent>), Error> {
        let text = match fs::read(path) {
            Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(Error::io(path)(error)),
        };
        let (mut events, mut whole) = (Vec::new(), 0);
        for line in text.split_inclusive('\n') {
            let event = line.strip_suffix('\n').and_then(SearchEvent::from_line);
            match event {
                Some(event) => events.push(event),
                None if whole + line.len() == text.len() => break,
                None => {
                    let number = events.len() + 1;
                    let reason = format!("line {number} is not one of a search's journal");
                    return Err(Error::broken(path)(reason));
                }
            }
            whole += line.len();
        }
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(path);
        let mut file = file.map_err(Error::io(path))?;
        file.set_len(whole as u64)
            .and_then(|()| file.seek(SeekFrom::End(0)))
            .map_err(Error::io(path))?;
        Ok((Self { file, path: path.to_path_buf() }, events))
    }

    /// Adds an event; when this returns it is on the disk.
    pub(super) fn append(&mut self, event: &SearchEvent) -> Result<(), Error> {
        let line = format!("{}\n", event.to_line());
        let written = self.file.write_all(line.as_bytes()).and_then(|()| self.file.sync_data());
        written.map_err(Error::io(&self.path))
    }
}

#[cfg(test)]
mod tests {
    use salamander_search::TrialId;

    use super::*;

    #[test]
    fn a_torn_line_is_forgotten_and_a_foreign_one_is_an_error() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("search.jsonl");
        let event = |length| SearchEvent::Report { trial: TrialId(1), length, metric: 0.5 };
        let (mut journal, heard) = SearchJournal::open(&path).expect("new");
        assert!(heard.is_empty());
        journal.append(&event(1)).expect("written");
        journal.append(&event(2)).expect("written");
        let whole = fs::read(&path).expect("read");
        fs::write(&path, &whole[..whole.len() - 5]).expect("torn");
        let (mut journal, heard) = SearchJournal::open(&path).expect("torn");
        assert_eq!(heard, [event(1)]);
        journal.append(&event(3)).expect("written");
        let (_, heard) = SearchJournal::open(&path).expect("whole");
        assert_eq!(heard, [event(1), event(3)]);
        fs::write(&path, "something else\n{}\n").expect("written");
        let error = SearchJournal::open(&path).err().expect("foreign").to_string();
        assert!(error.ends_with("line 1 is not one of a search's journal"), "{error}");
    }
}
