//! A disk in memory that fails as disks do, from a seed: what was written since the last sync is lost or comes out of
//! order when the machine stops, a sync can fail and forget what it was for, room runs out, bits flip.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::TryLockError;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::disk::{Access, Disk, DiskFile};

/// What reaches the disk whole or not at all.
const SECTOR: usize = 512;

/// A disk with faults. Clones are the same disk.
#[derive(Clone, Debug)]
pub struct FaultyDisk(Arc<Mutex<DiskContents>>);

#[derive(Debug)]
struct DiskContents {
    random: u64,
    /// Names as processes see them, and as they would be found after a crash.
    names: BTreeMap<PathBuf, DiskEntry>,
    durable_names: BTreeMap<PathBuf, DiskEntry>,
    /// What happened to names since a folder was synced, in order.
    pending: Vec<NameChange>,
    files: Vec<FileState>,
    /// Of a thousand syncs so many fail,
    sync_errors: u32,
    /// and so many writes find no room.
    full: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DiskEntry {
    Folder,
    File(usize),
}

#[derive(Clone, Debug)]
enum NameChange {
    Set(PathBuf, DiskEntry),
    Remove(PathBuf),
    Rename(PathBuf, PathBuf),
    Exchange(PathBuf, PathBuf),
}

#[derive(Debug, Default)]
struct FileState {
    seen: Vec<u8>,
    durable: Vec<u8>,
    /// Sectors that were written since the last sync, and whether the length was changed.
    dirty: BTreeSet<usize>,
    resized: bool,
    locked: bool,
}

impl FaultyDisk {
    /// An empty disk without faults; a seed gives the same faults again.
    pub fn new(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(DiskContents {
            random: seed,
            names: BTreeMap::new(),
            durable_names: BTreeMap::new(),
            pending: Vec::new(),
            files: Vec::new(),
            sync_errors: 0,
            full: 0,
        })))
    }

    /// For what takes any disk.
    pub fn shared(&self) -> Arc<dyn Disk> {
        Arc::new(self.clone())
    }

    /// From now on so many of a thousand syncs fail, and so many writes find no room.
    pub fn fail(&self, sync_errors: u32, full: u32) {
        let mut state = self.lock();
        (state.sync_errors, state.full) = (sync_errors, full);
    }

    /// The machine stops and comes back: what was not synced is there, lost, or there in part.
    pub fn crash(&self) {
        let mut state = self.lock();
        let state = &mut *state;
        let kept = (next(&mut state.random) as usize) % (state.pending.len() + 1);
        for change in state.pending.drain(..).take(kept) {
            change.apply(&mut state.durable_names);
        }
        state.names = state.durable_names.clone();
        for file in &mut state.files {
            file.crash(&mut state.random);
        }
    }

    /// Flips a bit of a file.
    pub fn flip_a_bit(&self, path: &Path) {
        let mut state = self.lock();
        let random = next(&mut state.random) as usize;
        let Some(DiskEntry::File(at)) = state.names.get(path).copied() else { return };
        let file = &mut state.files[at];
        let bits = file.durable.len().min(file.seen.len()) * 8;
        if bits > 0 {
            let (byte, bit) = (random % bits / 8, random % 8);
            file.durable[byte] ^= 1 << bit;
            file.seen[byte] ^= 1 << bit;
        }
    }

    fn lock(&self) -> MutexGuard<'_, DiskContents> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The next number of a seed (SplitMix64).
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

impl FileState {
    fn crash(&mut self, random: &mut u64) {
        if self.resized && next(random).is_multiple_of(2) {
            self.durable.resize(self.seen.len(), 0);
        }
        for sector in std::mem::take(&mut self.dirty) {
            let range = sector * SECTOR..((sector + 1) * SECTOR).min(self.seen.len());
            if next(random).is_multiple_of(2) && range.start < range.end {
                if self.durable.len() < range.end {
                    self.durable.resize(range.end, 0);
                }
                self.durable[range.clone()].copy_from_slice(&self.seen[range]);
            }
        }
        (self.resized, self.locked) = (false, false);
        self.seen = self.durable.clone();
    }
}

impl NameChange {
    fn apply(self, names: &mut BTreeMap<PathBuf, DiskEntry>) {
        match self {
            NameChange::Set(path, entry) => drop(names.insert(path, entry)),
            NameChange::Remove(path) => names.retain(|name, _| !name.starts_with(&path)),
            NameChange::Rename(from, to) => {
                NameChange::Remove(to.clone()).apply(names);
                rename(names, &from, &to);
            }
            NameChange::Exchange(one, other) => {
                let aside = Path::new("\0aside");
                rename(names, &one, aside);
                rename(names, &other, &one);
                rename(names, aside, &other);
            }
        }
    }
}

fn rename(names: &mut BTreeMap<PathBuf, DiskEntry>, from: &Path, to: &Path) {
    let moved: Vec<PathBuf> = names.keys().filter(|name| name.starts_with(from)).cloned().collect();
    for name in moved {
        let rest = name.strip_prefix(from).map(Path::to_path_buf).unwrap_or_default();
        let place = if rest.as_os_str().is_empty() { to.to_path_buf() } else { to.join(rest) };
        if let Some(entry) = names.remove(&name) {
            names.insert(place, entry);
        }
    }
}

impl DiskContents {
    fn change(&mut self, change: NameChange) {
        change.clone().apply(&mut self.names);
        self.pending.push(change);
    }

    fn there(&self, path: &Path) -> io::Result<DiskEntry> {
        self.names.get(path).copied().ok_or_else(|| ErrorKind::NotFound.into())
    }

    fn strikes(&mut self, of_a_thousand: u32) -> bool {
        of_a_thousand > 0 && next(&mut self.random) % 1000 < u64::from(of_a_thousand)
    }
}

impl Disk for FaultyDisk {
    fn open(&self, path: &Path, access: Access) -> io::Result<Box<dyn DiskFile>> {
        let mut state = self.lock();
        let at = match (state.names.get(path).copied(), access) {
            (Some(DiskEntry::Folder), _) => return Err(ErrorKind::IsADirectory.into()),
            (None, Access::Read) => return Err(ErrorKind::NotFound.into()),
            (Some(DiskEntry::File(at)), _) => at,
            (None, _) => {
                state.files.push(FileState::default());
                let at = state.files.len() - 1;
                state.change(NameChange::Set(path.to_path_buf(), DiskEntry::File(at)));
                at
            }
        };
        let file = FaultyFile { disk: self.clone(), at, locks: AtomicBool::new(false) };
        drop(state);
        if access == Access::Empty {
            file.set_length(0)?;
        }
        Ok(Box::new(file))
    }

    fn create_folder(&self, path: &Path) -> io::Result<()> {
        self.lock().change(NameChange::Set(path.to_path_buf(), DiskEntry::Folder));
        Ok(())
    }

    fn names(&self, folder: &Path) -> io::Result<Vec<String>> {
        let state = self.lock();
        state.there(folder)?;
        let inside = state.names.keys().filter(|name| name.parent() == Some(folder));
        let name = |path: &PathBuf| path.file_name().unwrap_or_default().to_string_lossy().into();
        Ok(inside.map(name).collect())
    }

    fn exists(&self, path: &Path) -> bool {
        self.lock().names.contains_key(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.lock();
        state.there(from)?;
        if state.names.keys().any(|name| name.parent() == Some(to)) {
            return Err(ErrorKind::DirectoryNotEmpty.into());
        }
        state.change(NameChange::Rename(from.to_path_buf(), to.to_path_buf()));
        Ok(())
    }

    fn exchange(&self, one: &Path, other: &Path) -> io::Result<()> {
        let mut state = self.lock();
        state.there(one).and_then(|_| state.there(other))?;
        state.change(NameChange::Exchange(one.to_path_buf(), other.to_path_buf()));
        Ok(())
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.remove_folder(path)
    }

    fn remove_folder(&self, path: &Path) -> io::Result<()> {
        let mut state = self.lock();
        state.there(path)?;
        state.change(NameChange::Remove(path.to_path_buf()));
        Ok(())
    }

    fn sync_folder(&self, _path: &Path) -> io::Result<()> {
        // As with journaling file systems: names reach the disk in order, those of all folders together.
        let mut state = self.lock();
        let failing = state.sync_errors;
        if state.strikes(failing) {
            return Err(io::Error::other("the disk could not write names"));
        }
        let state = &mut *state;
        state.pending.drain(..).for_each(|change| change.apply(&mut state.durable_names));
        Ok(())
    }
}

#[derive(Debug)]
struct FaultyFile {
    disk: FaultyDisk,
    at: usize,
    locks: AtomicBool,
}

impl FaultyFile {
    fn with<R>(&self, work: impl FnOnce(&mut FileState) -> R) -> R {
        work(&mut self.disk.lock().files[self.at])
    }
}

impl DiskFile for FaultyFile {
    fn length(&self) -> io::Result<u64> {
        Ok(self.with(|file| file.seen.len() as u64))
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.with(|file| {
            let range = offset as usize..offset as usize + buffer.len();
            let found = file.seen.get(range).ok_or(ErrorKind::UnexpectedEof)?;
            buffer.copy_from_slice(found);
            Ok(())
        })
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut state = self.disk.lock();
        let full = state.full;
        let is_full = state.strikes(full);
        // A disk that is full takes a part.
        let room = if is_full {
            next(&mut state.random) as usize % (bytes.len() + 1)
        } else {
            bytes.len()
        };
        let file = &mut state.files[self.at];
        let (start, end) = (offset as usize, offset as usize + room);
        if file.seen.len() < end {
            file.seen.resize(end, 0);
            file.resized = true;
        }
        if room > 0 {
            file.seen[start..end].copy_from_slice(&bytes[..room]);
            file.dirty.extend(start / SECTOR..=(end - 1) / SECTOR);
        }
        if is_full { Err(ErrorKind::StorageFull.into()) } else { Ok(()) }
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        self.with(|file| {
            let (old, new) = (file.seen.len(), length as usize);
            file.seen.resize(new, 0);
            file.resized |= old != new;
            if old != new {
                file.dirty.insert(old.min(new) / SECTOR);
            }
        });
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.disk.lock();
        let failing = state.sync_errors;
        if state.strikes(failing) {
            // A part was written; the rest is clean in the cache and will not be tried again.
            let state = &mut *state;
            let file = &mut state.files[self.at];
            let seen = file.seen.clone();
            file.crash(&mut state.random);
            file.seen = seen;
            return Err(io::Error::other("the disk could not write"));
        }
        let file = &mut state.files[self.at];
        file.dirty.clear();
        file.resized = false;
        file.durable = file.seen.clone();
        Ok(())
    }

    fn try_lock(&self) -> Result<(), TryLockError> {
        self.with(|file| match std::mem::replace(&mut file.locked, true) {
            true => Err(TryLockError::WouldBlock),
            false => {
                self.locks.store(true, Ordering::Relaxed);
                Ok(())
            }
        })
    }
}

impl Drop for FaultyFile {
    fn drop(&mut self) {
        if self.locks.load(Ordering::Relaxed) {
            self.with(|file| file.locked = false);
        }
    }
}
