//! Blocks of objects in a folder of bounded size, so that a second epoch or a restarted job does not pay for
//! the same bytes again.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use salamander_core::environment;
use salamander_files::{Durability, replace_via};

/// Names the folder; without it nothing is kept on disk.
const FOLDER_VARIABLE: &str = environment::CACHE_DIR.name;
/// Names the most bytes the folder may have.
const LIMIT_VARIABLE: &str = environment::CACHE_BYTES.name;
const DEFAULT_LIMIT: u64 = 10 << 30;

const BLOCK: &str = "block";
const PARTIAL: &str = "partial";
const HASH_BYTES: usize = blake3::OUT_LEN;
/// A half-written file of this age belongs to a process that is gone.
const STALE: Duration = Duration::from_secs(3600);

/// A folder of blocks; several processes may share it.
#[derive(Debug)]
pub(super) struct Disk {
    folder: PathBuf,
    limit: u64,
    used: Mutex<u64>,
    written: AtomicU64,
}

struct DiskBlock {
    path: PathBuf,
    bytes: u64,
    used: SystemTime,
}

impl Disk {
    /// The folder that the environment names, if it names one.
    pub(super) fn from_environment() -> io::Result<Option<Disk>> {
        let Some(folder) = std::env::var_os(FOLDER_VARIABLE).filter(|name| !name.is_empty()) else {
            return Ok(None);
        };
        let limit = match std::env::var(LIMIT_VARIABLE) {
            Ok(text) => text.parse().map_err(|_| {
                io::Error::other(format!("{LIMIT_VARIABLE} is {text:?}: give a number of bytes"))
            })?,
            Err(_) => DEFAULT_LIMIT,
        };
        let folder = PathBuf::from(folder);
        Disk::new(&folder, limit).map(Some).map_err(|error| {
            io::Error::new(
                error.kind(),
                format!("{FOLDER_VARIABLE} is {}: {error}", folder.display()),
            )
        })
    }

    pub(super) fn new(folder: &Path, limit: u64) -> io::Result<Disk> {
        std::fs::create_dir_all(folder)?;
        let disk = Disk {
            folder: folder.to_owned(),
            limit,
            used: Mutex::default(),
            written: AtomicU64::new(0),
        };
        let kept = disk.kept()?;
        *disk.used.lock().unwrap_or_else(PoisonError::into_inner) =
            kept.iter().map(|kept| kept.bytes).sum();
        Ok(disk)
    }

    /// A block, if it is there and whole.
    pub(super) fn get(&self, name: &str) -> Option<Vec<u8>> {
        let path = self.path(name);
        let mut bytes = std::fs::read(&path).ok()?;
        let (hash, block) = bytes.split_first_chunk::<HASH_BYTES>()?;
        if blake3::hash(block).as_bytes() != hash {
            let _ = std::fs::remove_file(&path);
            return None;
        }
        // The time of the last use decides what goes first.
        let _ = File::options()
            .append(true)
            .open(&path)
            .and_then(|file| file.set_modified(SystemTime::now()));
        bytes.drain(..HASH_BYTES);
        Some(bytes)
    }

    /// Keeps a block. A full or broken disk only means that the block is fetched again.
    pub(super) fn put(&self, name: &str, block: &[u8]) {
        let _ = self.try_put(name, block);
    }

    fn try_put(&self, name: &str, block: &[u8]) -> io::Result<()> {
        let bytes = (block.len() + HASH_BYTES) as u64;
        if bytes > self.limit {
            return Ok(());
        }
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        if *used + bytes > self.limit {
            *used = self.make_room(bytes)?;
        }
        *used += bytes;
        drop(used);
        let turn = self.written.fetch_add(1, Ordering::Relaxed);
        let partial = self.folder.join(format!("{}-{turn}.{PARTIAL}", std::process::id()));
        replace_via(&partial, &self.path(name), Durability::Unsynced, |file| {
            file.write_all(blake3::hash(block).as_bytes())?;
            file.write_all(block)
        })
    }

    /// Removes what was used longest ago, and gives the bytes left. A tenth more than needed goes, so that
    /// not every block has to look through the folder.
    fn make_room(&self, bytes: u64) -> io::Result<u64> {
        let mut kept = self.kept()?;
        kept.sort_by_key(|kept| kept.used);
        let mut used: u64 = kept.iter().map(|kept| kept.bytes).sum();
        for oldest in kept {
            if used + bytes <= self.limit - self.limit / 10 {
                break;
            }
            let _ = std::fs::remove_file(&oldest.path);
            used -= oldest.bytes;
        }
        Ok(used)
    }

    /// The blocks in the folder; what else is there is not ours and left alone.
    fn kept(&self) -> io::Result<Vec<DiskBlock>> {
        let mut kept = Vec::new();
        for entry in std::fs::read_dir(&self.folder)? {
            let path = entry?.path();
            let extension = path.extension().and_then(|extension| extension.to_str());
            // Another process may have removed the file just now.
            let Ok(metadata) = std::fs::metadata(&path) else { continue };
            let used = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
            match extension {
                Some(BLOCK) => kept.push(DiskBlock { path, bytes: metadata.len(), used }),
                Some(PARTIAL) if used.elapsed().is_ok_and(|age| age > STALE) => {
                    let _ = std::fs::remove_file(&path);
                }
                _ => {}
            }
        }
        Ok(kept)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.{BLOCK}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_never_grows_past_its_limit() {
        let folder = tempfile::tempdir().unwrap();
        let disk = Disk::new(folder.path(), 1_000).unwrap();
        let start = SystemTime::now() - Duration::from_secs(1_000);
        for number in 0..20 {
            disk.put(&number.to_string(), &[number; 200]);
            let file = File::options().append(true).open(disk.path(&number.to_string())).unwrap();
            file.set_modified(start + Duration::from_secs(number.into())).unwrap();
            let bytes: u64 = disk.kept().unwrap().iter().map(|kept| kept.bytes).sum();
            assert!(bytes <= 1_000, "{bytes}");
        }
        assert_eq!(disk.get("19"), Some(vec![19; 200]));
        assert_eq!(disk.get("0"), None);
        disk.put("large", &[0; 1_000]);
        assert_eq!(disk.get("large"), None);

        let again = Disk::new(folder.path(), 1_000).unwrap();
        assert_eq!(*again.used.lock().unwrap(), *disk.used.lock().unwrap());
    }

    #[test]
    fn a_damaged_block_is_not_given() {
        let folder = tempfile::tempdir().unwrap();
        let disk = Disk::new(folder.path(), 1_000).unwrap();
        disk.put("a", b"block");
        std::fs::write(folder.path().join("b.block"), b"short").unwrap();
        let mut bytes = std::fs::read(disk.path("a")).unwrap();
        bytes[HASH_BYTES] ^= 1;
        std::fs::write(disk.path("a"), bytes).unwrap();
        assert_eq!((disk.get("a"), disk.get("b"), disk.get("c")), (None, None, None));
    }

    #[test]
    fn other_files_are_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let notes = folder.path().join("notes.txt");
        std::fs::write(&notes, [0; 5_000]).unwrap();
        let disk = Disk::new(folder.path(), 300).unwrap();
        disk.put("a", &[1; 200]);
        disk.put("b", &[2; 200]);
        assert!(notes.exists() && disk.get("b").is_some() && disk.get("a").is_none());
    }
}
