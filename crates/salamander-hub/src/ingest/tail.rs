//! What is new in a file that others append to, or replace.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use crate::Error;
use crate::ids::RunId;
use crate::store::db::params;
use crate::store::{Store, Tx};

/// The most bytes of one transaction.
const PORTION: u64 = 8 << 20;
/// The bytes before a place by which it is known again.
const MARKED: usize = 512;

/// How far a file was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cursor {
    /// What tells the place from the same one in another file.
    pub(crate) mark: u64,
    pub(crate) offset: u64,
    pub(crate) lines: i64,
}

/// New whole lines of a file.
pub(crate) struct Portion {
    pub(crate) bytes: Vec<u8>,
    /// Where they begin: at the beginning if the file was replaced or cut.
    pub(crate) from: Cursor,
    /// Where they end; the lines are counted by whoever reads them.
    pub(crate) offset: u64,
    pub(crate) mark: u64,
    /// Whether what was read before is to be forgotten.
    pub(crate) again: bool,
    /// Whether there is more.
    pub(crate) more: bool,
}

impl Cursor {
    /// Reads on; `None`: there is nothing new.
    pub(crate) fn read(self, path: &Path) -> Result<Option<Portion>, Error> {
        let mut file = match File::open(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            file => file.map_err(Error::io(path))?,
        };
        let about = file.metadata().map_err(Error::io(path))?;
        let (inode, length) = (about.ino(), about.len());
        let is_same = || mark(&file, inode, self.offset).map(|mark| mark == self.mark);
        let again =
            self.offset > 0 && (length < self.offset || !is_same().map_err(Error::io(path))?);
        let from = if again { Cursor::default() } else { self };
        if length <= from.offset && !again {
            return Ok(None);
        }
        let mut bytes = Vec::new();
        file.seek(SeekFrom::Start(from.offset))
            .and_then(|_| (&file).take(PORTION).read_to_end(&mut bytes))
            .map_err(Error::io(path))?;
        let read = bytes.len() as u64;
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        // A line that is longer than a portion is no line of ours: it is passed over.
        let passed = if whole == 0 && read == PORTION { bytes.len() } else { whole };
        bytes.truncate(passed);
        if passed == 0 && !again {
            return Ok(None);
        }
        let offset = from.offset + passed as u64;
        let more = offset < length && passed > 0;
        let mark = mark(&file, inode, offset).map_err(Error::io(path))?;
        Ok(Some(Portion { bytes, from, offset, mark, again, more }))
    }

    /// How far the files of a run were read.
    pub(crate) fn all(store: &Store, run: RunId) -> Result<Vec<(String, Self)>, Error> {
        store.read(|db| {
            let sql = "SELECT path, mark, \"offset\", lines FROM files WHERE run = ?1";
            let mut query = db.prepare_cached(sql)?;
            let rows = query.query_map([run.number()], |row| {
                let (mark, offset): (i64, i64) = (row.get(1)?, row.get(2)?);
                let cursor =
                    Cursor { mark: mark as u64, offset: offset as u64, lines: row.get(3)? };
                Ok((row.get(0)?, cursor))
            })?;
            Ok(rows.collect::<Result<_, _>>()?)
        })
    }

    /// Keeps it, together with what was read.
    pub(crate) fn keep(self, tx: &Tx<'_>, run: RunId, path: &str) -> Result<(), Error> {
        let sql = "INSERT INTO files (run, path, mark, \"offset\", lines) VALUES (?1, ?2, ?3, ?4, ?5) \
                   ON CONFLICT (run, path) DO UPDATE SET mark = ?3, \"offset\" = ?4, lines = ?5";
        let (mark, offset) = (self.mark as i64, self.offset as i64);
        tx.prepare_cached(sql)?.execute(params![run.number(), path, mark, offset, self.lines])?;
        Ok(())
    }
}

/// A hash of a file's number and of what is before a place in it. The number alone does not tell files apart: one that
/// takes the place of another may get the number of the one before.
fn mark(file: &File, inode: u64, offset: u64) -> io::Result<u64> {
    let length = offset.min(MARKED as u64);
    let mut before = vec![0; length as usize];
    file.read_exact_at(&mut before, offset - length)?;
    let mut hasher = blake3::Hasher::new();
    hasher.update(&inode.to_le_bytes()).update(&before);
    let mut mark = [0; 8];
    hasher.finalize_xof().fill(&mut mark);
    Ok(u64::from_le_bytes(mark))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn only_whole_new_lines_are_read_and_a_replaced_file_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("log");
        assert!(Cursor::default().read(&path).expect("absent").is_none());
        fs::write(&path, "one\ntw").expect("written");
        let portion = Cursor::default().read(&path).expect("read").expect("new");
        assert_eq!((portion.bytes.as_slice(), portion.offset), (b"one\n".as_slice(), 4));
        let cursor = Cursor { mark: portion.mark, offset: 4, lines: 1 };
        assert!(cursor.read(&path).expect("read").is_none());
        fs::write(&path, "one\ntwo\n").expect("written");
        let portion = cursor.read(&path).expect("read").expect("new");
        assert_eq!((portion.bytes.as_slice(), portion.again), (b"two\n".as_slice(), false));
        let cursor = Cursor { mark: portion.mark, offset: 8, lines: 2 };
        fs::write(folder.path().join("other"), "one\n").expect("written");
        fs::rename(folder.path().join("other"), &path).expect("replaced");
        let portion = cursor.read(&path).expect("read").expect("new");
        assert_eq!((portion.bytes.as_slice(), portion.again), (b"one\n".as_slice(), true));
    }

    #[test]
    fn a_file_with_the_number_of_the_one_before_is_read_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("log");
        fs::write(&path, "one\ntwo\n").expect("written");
        let portion = Cursor::default().read(&path).expect("read").expect("new");
        let cursor = Cursor { mark: portion.mark, offset: portion.offset, lines: 2 };
        // Cut and written anew, it has its number and has grown.
        fs::write(&path, "six\ntwo\nten\n").expect("written");
        let portion = cursor.read(&path).expect("read").expect("new");
        assert_eq!(
            (portion.bytes.as_slice(), portion.again),
            (b"six\ntwo\nten\n".as_slice(), true)
        );
        let cursor = Cursor { mark: portion.mark, offset: portion.offset, lines: 3 };
        assert!(cursor.read(&path).expect("read").is_none());
    }
}
