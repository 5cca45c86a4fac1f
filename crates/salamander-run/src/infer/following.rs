//! A file that grows, line by line, and a file that answers are added to.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, BufWriter, Seek, SeekFrom};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::Error;

/// How often a file is looked at that has nothing new.
const LOOK: Duration = Duration::from_millis(100);

/// The lines of a file, as they come, until somebody stops it. A line counts when its end is written.
pub(super) struct GrowingFile {
    file: BufReader<File>,
    stop: Arc<AtomicBool>,
    /// The beginning of a line whose end is not written yet.
    begun: Vec<u8>,
    /// Bytes that were read.
    place: u64,
}

impl GrowingFile {
    pub(super) fn open(path: &Path, stop: Arc<AtomicBool>) -> io::Result<Self> {
        let file = BufReader::new(File::open(path)?);
        Ok(Self { file, stop, begun: Vec::new(), place: 0 })
    }

    /// Reads on; whether a line is whole.
    fn read_on(&mut self) -> io::Result<bool> {
        let read = self.file.read_until(b'\n', &mut self.begun)?;
        self.place += read as u64;
        if read == 0 && self.file.get_ref().metadata()?.len() < self.place {
            return Err(io::Error::other("the file was cut: what it was is not known any more"));
        }
        Ok(self.begun.last() == Some(&b'\n'))
    }
}

impl Iterator for GrowingFile {
    type Item = io::Result<String>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.read_on() {
                Err(error) => return Some(Err(error)),
                Ok(true) => {
                    let line = String::from_utf8(std::mem::take(&mut self.begun));
                    let line = line.map_err(|error| io::Error::other(error.to_string()));
                    return Some(line.map(|line| line.trim_end_matches(['\n', '\r']).to_string()));
                }
                Ok(false) if self.stop.load(Ordering::Relaxed) => return None,
                Ok(false) => std::thread::sleep(LOOK),
            }
        }
    }
}

/// Opens a file of answers, one line each, to be gone on with: also how many it has. What a kill left of a line goes.
pub(super) fn open_answers(path: &Path) -> Result<(BufWriter<File>, u64), Error> {
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).create(true).truncate(false).open(path);
    let mut file = file.map_err(Error::io(path))?;
    let (length, lines) = whole_lines(&file).map_err(Error::io(path))?;
    file.set_len(length).map_err(Error::io(path))?;
    file.seek(SeekFrom::End(0)).map_err(Error::io(path))?;
    Ok((BufWriter::new(file), lines))
}

/// Bytes up to the last whole line, and how many there are.
fn whole_lines(file: &File) -> io::Result<(u64, u64)> {
    let (mut read, mut line) = (BufReader::new(file), Vec::new());
    let (mut bytes, mut lines) = (0, 0);
    loop {
        line.clear();
        let length = read.read_until(b'\n', &mut line)?;
        if line.last() != Some(&b'\n') {
            return Ok((bytes, lines));
        }
        bytes += length as u64;
        lines += 1;
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn lines_come_when_their_end_is_written() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("events.jsonl");
        let mut writing = File::create(&path).expect("made");
        writing.write_all(b"one\ntw").expect("written");
        let stop = Arc::new(AtomicBool::new(false));
        let mut lines = GrowingFile::open(&path, Arc::clone(&stop)).expect("opened");
        assert_eq!(lines.next().expect("a line").expect("read"), "one");
        assert!(!lines.read_on().expect("read"), "it is not whole yet");
        writing.write_all(b"o\r\nthr").expect("written");
        assert_eq!(lines.next().expect("a line").expect("read"), "two");
        stop.store(true, Ordering::Relaxed);
        assert!(lines.next().is_none(), "a line without its end does not count");
        writing.set_len(1).expect("cut");
        assert!(lines.next().expect("an error").is_err());
    }

    #[test]
    fn answers_go_on_after_the_last_whole_line() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("answers.jsonl");
        for (before, whole, kept) in [("", 0, ""), ("a\nb", 1, "a\n"), ("a\nb\n", 2, "a\nb\n")] {
            std::fs::write(&path, before).expect("written");
            let (mut file, lines) = open_answers(&path).expect("opened");
            assert_eq!(lines, whole, "{before:?}");
            writeln!(file, "new").expect("written");
            drop(file);
            assert_eq!(std::fs::read_to_string(&path).expect("read"), format!("{kept}new\n"));
        }
    }
}
