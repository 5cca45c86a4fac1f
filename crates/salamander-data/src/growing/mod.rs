//! A folder of partitions that is written while others read it: whoever produces records and whoever trains on them
//! share nothing but its files.
//!
//! `salamander-parts.jsonl` in it names the partitions in their order, each with its records, and says when it was the
//! last one. A partition is whole before it is named, so readers need to know nothing else. Who writes holds the lock
//! of `salamander-parts.lock` meanwhile, and changes `salamander-parts.alive` every few seconds for those on other
//! hosts; if nobody does, and the end is not marked, nothing more will come.
//!
//! # Layout
//! - [`GrowingFolder`]: what is there so far, as a [`Dataset`]
//! - [`PartsWriter`] (`writer`): adds partitions, and goes on where a killed process has ended
//! - `list`: the lines of `salamander-parts.jsonl`; `heartbeat`: `salamander-parts.alive`

mod heartbeat;
mod list;
#[cfg(test)]
mod tests;
mod writer;

use std::fs::{File, TryLockError};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

pub use list::PartFile;
pub(crate) use list::{LIST, finished_parts};
pub use writer::PartsWriter;

use crate::reader::Each;
use crate::{ColumnInfo, Dataset, Error, Format, OpenOptions, Reader, Shard, open_indexed};
use heartbeat::{Heard, HeardBeats};
use list::{LOCK, PartList, read_list};

/// Whether somebody writes partitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Producer {
    /// Nothing tells: there is no lock, or its holder was not heard for a while.
    Unknown,
    /// Somebody holds the lock, or is heard from another host.
    AtWork,
    /// Nobody holds the lock any more.
    Gone,
}

/// The lock of who writes.
enum WriteLock {
    Absent,
    Held,
    Free,
}

/// A folder of partitions, as far as it was written when it was last looked at.
pub struct GrowingFolder {
    folder: PathBuf,
    format: Option<Format>,
    list: PartList,
    /// What a partition is read by: a reader of all that were opened together, and its number there.
    parts: Vec<(Arc<dyn Reader>, usize)>,
    shards: Vec<Shard>,
    heard: HeardBeats,
}

impl GrowingFolder {
    /// A folder that was not looked at yet, and need not be there.
    pub fn new(folder: &Path, format: Option<Format>) -> Self {
        Self {
            folder: folder.to_path_buf(),
            format,
            list: PartList::default(),
            parts: Vec::new(),
            shards: Vec::new(),
            heard: HeardBeats::default(),
        }
    }

    /// Whether the end of a folder's partitions is marked, for who does not read them.
    pub fn is_ended(folder: &Path) -> Result<bool, Error> {
        Ok(read_list(folder)?.ended)
    }

    /// Where it is.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Takes in what was written since the last look; whether there was anything. What was there must still be.
    pub fn look(&mut self, options: &OpenOptions<'_>) -> Result<bool, Error> {
        let path = self.folder.join(LIST);
        let found = read_list(&self.folder)?;
        let known = self.list.parts.len();
        let stays = found.parts.starts_with(&self.list.parts);
        if !stays || (self.list.ended && !found.ended) {
            let reason = "it no longer names the partitions that it has named: whoever goes on with it must \
                          add to it";
            return Err(Error::form(path, reason));
        }
        let grown = found.parts.len() > known || found.ended != self.list.ended;
        self.open(&found.parts[known..], options)?;
        self.list = found;
        Ok(grown)
    }

    fn open(&mut self, new: &[PartFile], options: &OpenOptions<'_>) -> Result<(), Error> {
        if new.is_empty() {
            return Ok(());
        }
        let paths: Vec<PathBuf> = new.iter().map(|part| self.folder.join(&part.file)).collect();
        let reader: Arc<dyn Reader> = Arc::from(open_indexed(&paths, self.format, options)?);
        let shards = reader.shards()?;
        if shards.len() != new.len() {
            let reason = format!("{LIST} names what is no partition in one file");
            return Err(Error::form(&self.folder, reason));
        }
        for (part, (path, shard)) in new.iter().zip(paths.iter().zip(&shards)) {
            if part.records != shard.records {
                let (found, told) = (shard.records, part.records);
                let reason = format!("it has {found} records, and {LIST} says {told}");
                return Err(Error::form(path, reason));
            }
        }
        self.parts.extend((0..new.len()).map(|at| (Arc::clone(&reader), at)));
        self.shards.extend(shards);
        Ok(())
    }

    /// Records that are there.
    pub fn records(&self) -> u64 {
        self.shards.iter().map(|shard| shard.records).sum()
    }

    /// Whether somebody has written anything to it.
    pub fn has_begun(&self) -> bool {
        self.list.length > 0
    }

    /// Partitions that are there.
    pub fn parts(&self) -> usize {
        self.parts.len()
    }

    /// The number of all records, once the end is marked.
    pub fn total(&self) -> Option<u64> {
        self.list.ended.then(|| self.records())
    }

    /// Whether somebody is at work on it. The lock tells on one host; from others there are heartbeats.
    pub fn producer(&mut self, now: Instant) -> Result<Producer, Error> {
        let heard = self.heard.listen(&self.folder, now);
        Ok(match (self.write_lock()?, heard) {
            // Its lock may not be seen here.
            (_, Heard::Beats { from_here: false }) => Producer::AtWork,
            // It may hang, or has died where nobody sees that.
            (WriteLock::Held, Heard::Silence { .. }) => Producer::Unknown,
            (WriteLock::Free, Heard::Silence { from_here: false }) => Producer::Unknown,
            (WriteLock::Held, _) => Producer::AtWork,
            (WriteLock::Free, _) => Producer::Gone,
            (WriteLock::Absent, Heard::Beats { .. }) => Producer::AtWork,
            (WriteLock::Absent, _) => Producer::Unknown,
        })
    }

    fn write_lock(&self) -> Result<WriteLock, Error> {
        let path = self.folder.join(LOCK);
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Ok(WriteLock::Absent);
            }
            Err(error) => return Err(Error::io(&path)(error)),
        };
        // Shared, so that those who ask do not see each other; it goes with the file.
        match file.try_lock_shared() {
            Ok(()) => Ok(WriteLock::Free),
            Err(TryLockError::WouldBlock) => Ok(WriteLock::Held),
            Err(TryLockError::Error(error)) => Err(Error::io(&path)(error)),
        }
    }

    /// The records that are there.
    pub fn dataset(&self) -> Result<Dataset, Error> {
        self.first_parts(self.parts.len())
    }

    /// A hash that is the same however far it was written: that of its first partition.
    pub fn identity(&self) -> Result<u64, Error> {
        Ok(self.first_parts(1)?.identity())
    }

    fn first_parts(&self, parts: usize) -> Result<Dataset, Error> {
        let parts = parts.min(self.parts.len());
        let (readers, shards) = (self.parts[..parts].to_vec(), self.shards[..parts].to_vec());
        Dataset::new(Arc::new(PartReaders { readers, shards }))
    }
}

impl std::fmt::Debug for GrowingFolder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GrowingFolder").field("list", &self.list).finish_non_exhaustive()
    }
}

/// Partitions as one reader.
struct PartReaders {
    readers: Vec<(Arc<dyn Reader>, usize)>,
    shards: Vec<Shard>,
}

impl Reader for PartReaders {
    fn shards(&self) -> Result<Vec<Shard>, Error> {
        Ok(self.shards.clone())
    }

    /// Those of the first partition: the others have the same, or training will say where they do not.
    fn columns(&self) -> Option<Vec<ColumnInfo>> {
        self.readers.first().and_then(|(reader, _)| reader.columns())
    }

    fn columns_of(&self, shard: usize) -> Option<Vec<ColumnInfo>> {
        let (reader, own) = self.readers.get(shard)?;
        reader.columns_of(*own)
    }

    fn read(&self, shard: usize, records: Range<u64>, each: &mut Each<'_>) -> Result<(), Error> {
        let shards = self.readers.len();
        let (reader, own) = self.readers.get(shard).ok_or(Error::NoShard { shard, shards })?;
        reader.read(*own, records, each)
    }
}
