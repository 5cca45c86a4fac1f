//! What the master must not forget, in a file that only grows: each append is on disk before it returns.
//!
//! The file is a magic number and then frames: the payload's length, a checksum of that length, a checksum of the
//! payload (each 4 bytes, little endian, CRC-32C), the payload as JSON. The length has a checksum of its own
//! because a length with a flipped bit would look like a torn tail and silently cut off everything after it.
//!
//! After each append that reached the disk a *mark* follows, which is written but not waited for: everything before it
//! is on disk. So bytes that do not fit are damage where a mark says that they were whole, and otherwise what a crash
//! has left of an append that never returned, its sectors in any order, which is cut off.

use std::fs::TryLockError;
use std::io;
use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::time::Duration;

use salamander_files::{Access, Disk, DiskFile, real, sync_folder_of};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tracing::warn;

const MAGIC: &[u8; 8] = b"SALAJRN1";
const HEADER: usize = 12;
/// How the payload of a mark begins, which JSON never does; the place that it vouches for follows, 8 bytes.
const MARK: u8 = 0;
const MARK_LENGTH: usize = 9;
/// How that of a signature begins; 16 bytes of whoever put the journal elsewhere follow.
const SIGNATURE: u8 = 1;
/// Longer payloads are never written; a length beyond is a damaged one.
const LONGEST: usize = 16 << 20;

/// The pause before a full disk is tried again.
const FULL: Duration = Duration::from_millis(100);

/// What goes wrong with a journal.
#[derive(Debug, thiserror::Error)]
#[error("journal {path}: {problem}")]
pub struct Error {
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it.
    pub problem: Problem,
}

/// What can be wrong with a journal.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// The file cannot be read or written.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// Another process has it.
    #[error("another master is using it; end that one first")]
    Locked,
    /// It is another kind of file.
    #[error("this is no journal")]
    Foreign,
    /// What was written is not what is there.
    #[error("damaged at byte {offset}: {what}; restore the file or start a new run")]
    Damaged {
        /// Where.
        offset: u64,
        /// What is wrong there.
        what: String,
    },
    /// Somebody else leads.
    #[error("this master does not lead any more: {0}")]
    Deposed(String),
    /// It cannot know whether somebody else leads.
    #[error("this master stops leading: {0}")]
    CutOff(String),
    /// A record is too long.
    #[error("a record of {0} bytes is too long")]
    TooLong(usize),
}

impl Error {
    /// Whether another master leads, so that starting this one again would only disturb it.
    pub fn is_deposed(&self) -> bool {
        matches!(self.problem, Problem::Deposed(_))
    }

    /// Whether it is only a matter of room, and the same can be tried again.
    pub fn is_full(&self) -> bool {
        use io::ErrorKind::{QuotaExceeded, StorageFull};
        matches!(&self.problem, Problem::Io(e) if matches!(e.kind(), StorageFull | QuotaExceeded))
    }

    /// For `map_err`, with the file.
    pub(crate) fn of<P: Into<Problem>>(path: &Path) -> impl FnOnce(P) -> Self {
        |problem| Self { path: path.to_path_buf(), problem: problem.into() }
    }
}

/// An open journal of records of one type. No other process can have it open.
///
/// ```
/// use salamander_master::journal::Journal;
///
/// let folder = tempfile::tempdir()?;
/// let path = folder.path().join("journal");
/// let (mut journal, records) = Journal::<u64>::open(&path)?;
/// assert!(records.is_empty());
/// journal.append(&[1, 2])?;
/// drop(journal);
/// assert_eq!(Journal::<u64>::open(&path)?.1, [1, 2]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Journal<T> {
    file: Box<dyn DiskFile>,
    path: PathBuf,
    /// So many bytes are on disk for certain.
    synced: u64,
    /// What follows them: written, but not waited for. It is written again with what comes next, since a sync that
    /// fails may have forgotten it.
    unsynced: Vec<u8>,
    records: PhantomData<fn() -> T>,
}

impl<T: Serialize + DeserializeOwned> Journal<T> {
    /// Opens or makes the journal, and reads what is in it. A tail that a crash has torn is cut off: nobody can
    /// depend on it, since its append never returned. Everything that is read is on disk when this returns, even if the
    /// master before could not write it.
    pub fn open(path: &Path) -> Result<(Self, Vec<T>), Error> {
        Self::open_on(&*real(), path)
    }

    /// [`Journal::open`] on a given disk.
    pub fn open_on(disk: &dyn Disk, path: &Path) -> Result<(Self, Vec<T>), Error> {
        Self::open_file(disk, path).map_err(Error::of(path))
    }

    fn open_file(disk: &dyn Disk, path: &Path) -> Result<(Self, Vec<T>), Problem> {
        let file = disk.open(path, Access::Keep)?;
        file.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => Problem::Locked,
            TryLockError::Error(error) => Problem::Io(error),
        })?;
        let mut bytes = vec![0; usize::try_from(file.length()?).map_err(io::Error::other)?];
        file.read_exact_at(&mut bytes, 0)?;
        let Content { records, good, is_marked } = read(&bytes)?;
        if good < bytes.len() {
            let cut = bytes.len() - good;
            warn!(path = %path.display(), offset = good, cut, "cut a torn tail off the journal");
        }
        bytes.truncate(good);
        let (path, unsynced) = (path.to_path_buf(), Vec::new());
        let mut journal = Self { file, path, synced: 0, unsynced, records: PhantomData };
        if bytes.is_empty() {
            bytes.extend_from_slice(MAGIC);
            bytes.extend(mark(MAGIC.len() as u64));
        }
        journal.settle(bytes)?;
        sync_folder_of(disk, &journal.path)?;
        if !is_marked && good > 0 {
            journal.add_mark();
        }
        Ok((journal, records))
    }

    /// Appends records; they are on disk when this returns. After an error they are not in the journal, and the same
    /// can be tried again.
    pub fn append(&mut self, records: &[T]) -> Result<(), Error> {
        let appended = frames(records).and_then(|frames| {
            let tail = [self.unsynced.as_slice(), &frames].concat();
            self.settle(tail)
        });
        appended.map_err(Error::of(&self.path))?;
        self.add_mark();
        Ok(())
    }

    /// [`Journal::append`], as often as it takes while the disk is full and somebody wants it.
    pub(crate) fn append_patiently(
        &mut self,
        records: &[T],
        is_wanted: &dyn Fn() -> bool,
    ) -> Result<(), Error> {
        let mut is_told = false;
        loop {
            match self.append(records) {
                Err(error) if error.is_full() && is_wanted() => {
                    if !std::mem::replace(&mut is_told, true) {
                        warn!(%error, "waiting for room");
                    }
                    std::thread::sleep(FULL);
                }
                appended => return appended,
            }
        }
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Appends records that may be lost with the machine, but not with the process.
    pub fn append_lazily(&mut self, records: &[T]) -> Result<(), Error> {
        let written = frames(records).and_then(|frames| self.write_lazily(frames));
        written.map_err(Error::of(&self.path))
    }

    /// Brings what follows the synced bytes to the disk, or takes back what was not there before.
    fn settle(&mut self, tail: Vec<u8>) -> Result<(), Problem> {
        let end = self.synced + tail.len() as u64;
        let written = self.file.write_all_at(&tail, self.synced);
        let written = written.and_then(|()| self.file.set_length(end));
        if let Err(error) = written.and_then(|()| self.file.sync()) {
            // The next master must not find what nobody has heard of.
            self.take_back();
            return Err(error.into());
        }
        self.synced = end;
        self.unsynced.clear();
        Ok(())
    }

    fn write_lazily(&mut self, frames: Vec<u8>) -> Result<(), Problem> {
        let at = self.synced + self.unsynced.len() as u64;
        if let Err(error) = self.file.write_all_at(&frames, at) {
            self.take_back();
            return Err(error.into());
        }
        self.unsynced.extend(frames);
        Ok(())
    }

    fn take_back(&mut self) {
        let end = self.synced + self.unsynced.len() as u64;
        if let Err(error) = self.file.set_length(end) {
            warn!(path = %self.path.display(), %error, "cannot take back an append");
        }
    }

    /// Notes that everything so far is on disk. Without room for it there is a mark after the next append.
    fn add_mark(&mut self) {
        if let Err(problem) = self.write_lazily(mark(self.synced)) {
            warn!(path = %self.path.display(), %problem, "the journal has no mark");
        }
    }
}

/// Records as they are written.
fn frames<T: Serialize>(records: &[T]) -> Result<Vec<u8>, Problem> {
    let mut bytes = Vec::new();
    for record in records {
        let payload = serde_json::to_vec(record).map_err(io::Error::from)?;
        if payload.len() > LONGEST {
            return Err(Problem::TooLong(payload.len()));
        }
        push_frame(&mut bytes, &payload);
    }
    Ok(bytes)
}

fn mark(synced: u64) -> Vec<u8> {
    let mut payload = vec![MARK];
    payload.extend(synced.to_le_bytes());
    let mut bytes = Vec::new();
    push_frame(&mut bytes, &payload);
    bytes
}

fn push_frame(bytes: &mut Vec<u8>, payload: &[u8]) {
    let length = (payload.len() as u32).to_le_bytes();
    bytes.extend_from_slice(&length);
    bytes.extend_from_slice(&crc32c::crc32c(&length).to_le_bytes());
    bytes.extend_from_slice(&crc32c::crc32c(payload).to_le_bytes());
    bytes.extend_from_slice(payload);
}

/// A copy of a journal with the signature of whoever puts it somewhere.
pub fn sign(journal: &[u8], nonce: [u8; 16]) -> Vec<u8> {
    let mut signed = journal.to_vec();
    push_frame(&mut signed, &[[SIGNATURE].as_slice(), &nonce].concat());
    signed
}

/// Who put a copy, if it was signed.
pub fn signature(copy: &[u8]) -> Option<[u8; 16]> {
    let start = copy.len().checked_sub(HEADER + 1 + 16)?;
    match frame(&copy[start..]) {
        JournalFrame::Whole([SIGNATURE, nonce @ ..]) => nonce.try_into().ok(),
        _ => None,
    }
}

/// The records of a copy.
pub fn records_of<T: DeserializeOwned>(copy: &[u8]) -> Result<Vec<T>, Problem> {
    Ok(read(copy)?.records)
}

/// What is in a file.
struct Content<T> {
    records: Vec<T>,
    /// So many of its bytes are good.
    good: usize,
    /// Whether they end with a mark that vouches for all of them.
    is_marked: bool,
}

fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<Content<T>, Problem> {
    let mut content = Content { records: Vec::new(), good: 0, is_marked: false };
    if !bytes.starts_with(MAGIC) {
        // The first write can be torn, too.
        let torn = MAGIC.starts_with(bytes) || bytes.iter().all(|byte| *byte == 0);
        return if torn { Ok(content) } else { Err(Problem::Foreign) };
    }
    content.good = MAGIC.len();
    // Journals of earlier releases have no marks; there all that is not blank is damage.
    let mut has_marks = false;
    loop {
        let at = content.good;
        let damaged = |what: String| Problem::Damaged { offset: at as u64, what };
        match frame(&bytes[at..]) {
            JournalFrame::Whole(payload) => {
                content.is_marked = marked(payload) == Some(at as u64);
                match payload.first() {
                    Some(&MARK) => has_marks = true,
                    Some(&SIGNATURE) => {}
                    _ => {
                        let record = serde_json::from_slice(payload);
                        content.records.push(record.map_err(|error| damaged(error.to_string()))?);
                    }
                }
                content.good += HEADER + payload.len();
            }
            JournalFrame::Torn => return Ok(content),
            JournalFrame::Damaged(what) => {
                let vouched = vouched(&bytes[at..]);
                let was_whole = vouched.is_some_and(|vouched| vouched > at as u64);
                if was_whole || (!has_marks && vouched.is_none()) {
                    return Err(damaged(what.to_string()));
                }
                return Ok(content);
            }
        }
    }
}

/// The place that a mark vouches for.
fn marked(payload: &[u8]) -> Option<u64> {
    let rest = payload.strip_prefix(&[MARK])?;
    rest.try_into().ok().map(u64::from_le_bytes)
}

/// The furthest place that any mark in these bytes vouches for, wherever it begins.
fn vouched(bytes: &[u8]) -> Option<u64> {
    let length = (MARK_LENGTH as u32).to_le_bytes();
    let begins = [length, crc32c::crc32c(&length).to_le_bytes()].concat();
    let starts = bytes.windows(begins.len()).enumerate().filter(|(_, window)| *window == begins);
    let marks = starts.filter_map(|(at, _)| match frame(&bytes[at..]) {
        JournalFrame::Whole(payload) => marked(payload),
        _ => None,
    });
    marks.max()
}

enum JournalFrame<'a> {
    Whole(&'a [u8]),
    /// The file ends within it, or it was never written out.
    Torn,
    Damaged(&'static str),
}

fn frame(rest: &[u8]) -> JournalFrame<'_> {
    let word = |at: usize| {
        let bytes = rest.get(at..at + 4)?;
        bytes.try_into().ok().map(u32::from_le_bytes)
    };
    let (Some(length), Some(length_sum), Some(sum)) = (word(0), word(4), word(8)) else {
        return JournalFrame::Torn;
    };
    if crc32c::crc32c(&length.to_le_bytes()) != length_sum || length as usize > LONGEST {
        // A machine's crash can leave blocks of zeros that were never written.
        let blank = rest.iter().all(|byte| *byte == 0);
        return if blank {
            JournalFrame::Torn
        } else {
            JournalFrame::Damaged("the length's checksum is wrong")
        };
    }
    let end = HEADER + length as usize;
    let Some(payload) = rest.get(HEADER..end) else { return JournalFrame::Torn };
    if crc32c::crc32c(payload) == sum {
        return JournalFrame::Whole(payload);
    }
    // JSON never ends with a zero.
    let blank = end == rest.len() && payload.last() == Some(&0);
    if blank { JournalFrame::Torn } else { JournalFrame::Damaged("the checksum is wrong") }
}

#[cfg(test)]
#[path = "journal_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "journal_simulation.rs"]
mod simulation;
