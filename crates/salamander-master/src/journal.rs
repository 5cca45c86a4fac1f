//! What the master must not forget, in a file that only grows: each append is on disk before it returns.
//!
//! The file is a magic number and then frames: the payload's length, a checksum of that length, a checksum of the
//! payload (each 4 bytes, little endian, CRC-32C), the payload as JSON. The length has a checksum of its own
//! because a length with a flipped bit would look like a torn tail and silently cut off everything after it.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::marker::PhantomData;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;
use tracing::warn;

const MAGIC: &[u8; 8] = b"SALAJRN1";
const HEADER: usize = 12;
/// Longer payloads are never written; a length beyond is a damaged one.
const LONGEST: usize = 16 << 20;

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
    /// A record is too long.
    #[error("a record of {0} bytes is too long")]
    TooLong(usize),
}

impl Error {
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
    file: File,
    path: PathBuf,
    length: u64,
    records: PhantomData<fn() -> T>,
}

impl<T: Serialize + DeserializeOwned> Journal<T> {
    /// Opens or makes the journal, and reads what is in it. A tail that a crash has torn is cut off: nobody can
    /// depend on it, since its append never returned.
    pub fn open(path: &Path) -> Result<(Self, Vec<T>), Error> {
        Self::open_file(path).map_err(Error::of(path))
    }

    fn open_file(path: &Path) -> Result<(Self, Vec<T>), Problem> {
        let mut options = OpenOptions::new();
        let mut file = options.read(true).write(true).create(true).truncate(false).open(path)?;
        file.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => Problem::Locked,
            TryLockError::Error(error) => Problem::Io(error),
        })?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        let (records, good) = read(&bytes)?;
        let mut journal =
            Self { file, path: path.to_path_buf(), length: good, records: PhantomData };
        if good < bytes.len() as u64 {
            let cut = bytes.len() as u64 - good;
            warn!(path = %path.display(), offset = good, cut, "cut a torn tail off the journal");
        }
        journal.prepare()?;
        Ok((journal, records))
    }

    /// Appends records; they are on disk when this returns.
    pub fn append(&mut self, records: &[T]) -> Result<(), Error> {
        self.append_lazily(records)?;
        self.file.sync_data().map_err(Error::of(&self.path))
    }

    /// Appends records that may be lost with the machine, but not with the process.
    pub fn append_lazily(&mut self, records: &[T]) -> Result<(), Error> {
        self.write(records).map_err(Error::of(&self.path))
    }

    fn write(&mut self, records: &[T]) -> Result<(), Problem> {
        let mut bytes = Vec::new();
        for record in records {
            let payload = serde_json::to_vec(record).map_err(io::Error::from)?;
            if payload.len() > LONGEST {
                return Err(Problem::TooLong(payload.len()));
            }
            let length = (payload.len() as u32).to_le_bytes();
            bytes.extend_from_slice(&length);
            bytes.extend_from_slice(&crc32c::crc32c(&length).to_le_bytes());
            bytes.extend_from_slice(&crc32c::crc32c(&payload).to_le_bytes());
            bytes.extend_from_slice(&payload);
        }
        if let Err(error) = self.file.write_all(&bytes) {
            // Half a frame must not be in the way of a later one.
            let back = self.file.set_len(self.length);
            let back = back.and_then(|()| self.file.seek(SeekFrom::Start(self.length)));
            if let Err(error) = back {
                warn!(path = %self.path.display(), %error, "cannot take back half an append");
            }
            return Err(error.into());
        }
        self.length += bytes.len() as u64;
        Ok(())
    }

    /// Makes the file end where the next frame begins, and its name last.
    fn prepare(&mut self) -> io::Result<()> {
        if self.length == 0 {
            self.file.set_len(0)?;
            self.file.seek(SeekFrom::Start(0))?;
            self.file.write_all(MAGIC)?;
            self.length = MAGIC.len() as u64;
        }
        self.file.set_len(self.length)?;
        self.file.seek(SeekFrom::Start(self.length))?;
        self.file.sync_all()?;
        match self.path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => File::open(folder)?.sync_all(),
            _ => Ok(()),
        }
    }
}

/// The records of a file, and how many of its bytes are good.
fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<(Vec<T>, u64), Problem> {
    if !bytes.starts_with(MAGIC) {
        // The first write can be torn, too.
        let torn = MAGIC.starts_with(bytes) || bytes.iter().all(|byte| *byte == 0);
        return if torn { Ok((Vec::new(), 0)) } else { Err(Problem::Foreign) };
    }
    let mut records = Vec::new();
    let mut at = MAGIC.len();
    loop {
        let damaged = |what: String| Problem::Damaged { offset: at as u64, what };
        match frame(&bytes[at..]) {
            JournalFrame::Whole(payload) => {
                let record = serde_json::from_slice(payload);
                records.push(record.map_err(|error| damaged(error.to_string()))?);
                at += HEADER + payload.len();
            }
            JournalFrame::Torn => return Ok((records, at as u64)),
            JournalFrame::Damaged(what) => return Err(damaged(what.to_string())),
        }
    }
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
