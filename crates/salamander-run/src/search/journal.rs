//! What a search has heard, kept so that it can be killed at any moment.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use salamander_search::{EventLog, HeardEvent, JournaledSearch, Search, TrialAction};

use crate::Error;

/// A search with its journal on the disk.
pub(super) type DurableSearch = JournaledSearch<JournalFile>;

/// The file of a search's journal.
pub(super) struct JournalFile {
    file: File,
    path: PathBuf,
}

/// Opens the journal of a search that has not begun, comes to all decisions again, and gives all actions since the
/// beginning. A line that was cut short by a kill is taken away.
pub(super) fn open(
    search: Search,
    path: &Path,
) -> Result<(DurableSearch, Vec<TrialAction>), Error> {
    let (heard, whole) = read(path)?;
    let file = OpenOptions::new().create(true).truncate(false).write(true).open(path);
    let mut file = file.map_err(Error::io(path))?;
    file.set_len(whole)
        .and_then(|()| file.seek(SeekFrom::End(0)))
        // What was read counts from now on, also if the machine loses its power.
        .and_then(|_| file.sync_data())
        .map_err(Error::io(path))?;
    Ok(JournaledSearch::open(search, &heard, JournalFile { file, path: path.to_path_buf() }))
}

impl EventLog for JournalFile {
    type Error = Error;

    fn append(&mut self, lines: &str) -> Result<(), Error> {
        let written = self.file.write_all(lines.as_bytes()).and_then(|()| self.file.sync_data());
        written.map_err(Error::io(&self.path))
    }
}

/// What was heard, and how many bytes of the file that is: what a crash left of the last append, in any order of
/// sectors, does not count. One that is followed by whole lines is damage.
pub(super) fn read(path: &Path) -> Result<(Vec<HeardEvent>, u64), Error> {
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(Error::io(path)(error)),
    };
    let (mut heard, mut whole, mut broken) = (Vec::new(), 0, None);
    for (index, line) in bytes.split_inclusive(|byte| *byte == b'\n').enumerate() {
        let text = line.strip_suffix(b"\n").and_then(|line| std::str::from_utf8(line).ok());
        match (text.and_then(HeardEvent::from_line), broken) {
            (Some(event), None) => {
                heard.push(event);
                whole += line.len() as u64;
            }
            (Some(_), Some(number)) => {
                let reason = format!("line {number} is not one of a search's journal");
                return Err(Error::broken(path)(reason));
            }
            (None, _) => broken = broken.or(Some(index + 1)),
        }
    }
    Ok((heard, whole))
}

#[cfg(test)]
mod tests {
    use salamander_search::{SearchEvent, SearchFile, TrialId};

    use super::*;

    fn search() -> Search {
        let text = "searcher: {name: random, max_trials: 9, max_length: {batches: 4}}\n\
                    hyperparameters: {x: {uniform: [0, 1]}}";
        SearchFile::parse(text, &[]).and_then(|file| file.search(1)).expect("a search")
    }

    fn report(trial: u64) -> SearchEvent {
        SearchEvent::Report { trial: TrialId(trial), length: 4, metric: trial as f64 }
    }

    fn heard(path: &Path) -> Vec<SearchEvent> {
        read(path).expect("a journal").0.iter().map(|heard| heard.event).collect()
    }

    #[test]
    fn a_torn_line_is_forgotten_and_damage_is_an_error() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("search.jsonl");
        let open = || open(search(), &path).expect("a journal").0;
        let mut durable = open();
        let mut told = Vec::new();
        let each = |_: &Search, event: &SearchEvent, _| {
            told.push(*event);
            Ok(())
        };
        durable.hear(&[report(1), report(2)], 1.5, each).expect("written");
        assert_eq!(told, [report(1), report(2)]);
        let whole = fs::read(&path).expect("read");
        fs::write(&path, &whole[..whole.len() - 5]).expect("torn");
        let mut durable = open();
        assert_eq!((durable.seconds(), heard(&path)), (1.5, vec![report(1)]));
        durable.hear(&[report(3)], 2.5, |_, _, _| Ok(())).expect("written");
        assert_eq!(heard(&path), [report(1), report(3)]);
        let best = durable.search().best().map(|(trial, metric)| (trial.id, metric));
        assert_eq!(best, Some((TrialId(1), 1.0)));
        // Sectors of one append may reach the disk in any order.
        let hole = [&fs::read(&path).expect("read")[..], &[0; 30], b"\n\0\n"].concat();
        fs::write(&path, &hole).expect("written");
        assert_eq!(heard(&path), [report(1), report(3)]);
        fs::write(&path, [b"something else\n", &whole[..]].concat()).expect("written");
        let error = read(&path).expect_err("foreign").to_string();
        assert!(error.ends_with("line 1 is not one of a search's journal"), "{error}");
    }
}
