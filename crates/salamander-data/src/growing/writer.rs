//! Adds partitions to a folder that others read meanwhile.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use salamander_files::{real, sync_folder_of};
use serde_json::Value;

use super::heartbeat::Heartbeats;
use super::list::{LIST, LOCK, ListLine, PartFile, PartList};
use crate::Error;

/// Readers hold the lock for a moment when they look whether somebody does.
const TRIES: u32 = 50;
const BETWEEN: Duration = Duration::from_millis(20);

/// Adds partitions to a folder, each of which counts once it is named; goes on where another has ended.
///
/// ```
/// use salamander_data::{GrowingFolder, OpenOptions, PartFile, PartsWriter};
///
/// # let place = tempfile::tempdir()?;
/// # let (folder, staged) = (place.path().join("parts"), place.path().join("rows.csv"));
/// let mut writer = PartsWriter::open(&folder, &"a doctest".into())?;
/// std::fs::write(&staged, "x,y\n1,2\n3,4\n")?;
/// let part = PartFile { file: "part-0.csv".into(), records: 2, blake3: None, task: None };
/// writer.add(&staged, part)?;
///
/// let mut seen = GrowingFolder::new(&folder, None);
/// seen.look(&OpenOptions::default())?;
/// assert_eq!((seen.records(), seen.total()), (2, None));
/// writer.end()?;
/// seen.look(&OpenOptions::default())?;
/// assert_eq!(seen.total(), Some(2));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct PartsWriter {
    folder: PathBuf,
    file: File,
    list: PartList,
    /// Told until the lock is free.
    _beats: Heartbeats,
    /// Held as long as this writes.
    _lock: File,
}

impl PartsWriter {
    /// Makes the folder, or goes on with one that was made by the same.
    pub fn open(folder: &Path, made_by: &Value) -> Result<Self, Error> {
        fs::create_dir_all(folder).map_err(Error::io(folder))?;
        let lock = lock(&folder.join(LOCK))?;
        let beats = Heartbeats::begin(folder);
        let path = folder.join(LIST);
        let mut options = OpenOptions::new();
        let file = options.create(true).append(true).open(&path).map_err(Error::io(&path))?;
        let text = fs::read(&path).map_err(Error::io(&path))?;
        let list = PartList::parse(&path, &text)?;
        // A line that a killed process has begun.
        file.set_len(list.length as u64).map_err(Error::io(&path))?;
        let folder_path = folder.to_path_buf();
        let mut writer = Self { folder: folder_path, file, list, _beats: beats, _lock: lock };
        if writer.list.length == 0 {
            writer.append(&ListLine::MadeBy(made_by.clone()))?;
            writer.list.made_by = Some(made_by.clone());
            sync_folder_of(&*real(), &path).map_err(Error::io(folder))?;
        }
        if writer.list.made_by.as_ref() != Some(made_by) {
            let reason = "its partitions are made by something else: write to another folder";
            return Err(Error::form(path, reason));
        }
        Ok(writer)
    }

    /// The partitions that are there.
    pub fn parts(&self) -> &[PartFile] {
        &self.list.parts
    }

    /// Whether the end is marked.
    pub fn is_ended(&self) -> bool {
        self.list.ended
    }

    /// Moves a file to its place, which must be on the same disk, and names it.
    pub fn add(&mut self, from: &Path, part: PartFile) -> Result<(), Error> {
        let to = self.folder.join(&part.file);
        fs::rename(from, &to).map_err(Error::io(from))?;
        // Whole before it is named, also when the machine dies.
        let synced = File::open(&to).and_then(|file| file.sync_all());
        synced.and_then(|()| sync_folder_of(&*real(), &to)).map_err(Error::io(&to))?;
        self.append(&ListLine::Part(part.clone()))?;
        self.list.parts.push(part);
        Ok(())
    }

    /// Marks the end.
    pub fn end(&mut self) -> Result<(), Error> {
        if !self.list.ended {
            self.append(&ListLine::End(self.list.totals()))?;
            self.list.ended = true;
        }
        Ok(())
    }

    fn append(&mut self, line: &ListLine) -> Result<(), Error> {
        let path = self.folder.join(LIST);
        let mut text = serde_json::to_string(line).map_err(|error| Error::form(&path, error))?;
        text.push('\n');
        let written = self.file.write_all(text.as_bytes()).and_then(|()| self.file.sync_data());
        written.map_err(Error::io(&path))
    }
}

fn lock(path: &Path) -> Result<File, Error> {
    let mut options = OpenOptions::new();
    let file = options.create(true).append(true).open(path).map_err(Error::io(path))?;
    for _ in 0..TRIES {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) => sleep(BETWEEN),
            Err(TryLockError::Error(error)) => return Err(Error::io(path)(error)),
        }
    }
    let held = io::Error::new(io::ErrorKind::WouldBlock, "another process writes partitions here");
    Err(Error::io(path)(held))
}
