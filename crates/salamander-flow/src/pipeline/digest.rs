//! Hashes of contents, kept by path, size, time and number of the file, so that nothing is read twice.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use salamander_files::{Durability, replace};
use serde::{Deserialize, Serialize};

/// A file that changed so shortly ago may change again without another time; its hash is not kept.
const UNSETTLED: Duration = Duration::from_secs(2);
/// Folders below folders; links may lead in circles.
const DEEPEST: usize = 64;

/// What a hash was taken of.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct DigestEntry {
    bytes: u64,
    modified: u128,
    inode: u64,
    blake3: String,
}

/// Who else may write to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Writers {
    /// Anybody, at any time.
    Anybody,
    /// Nobody: it is of an artifact.
    Nobody,
}

/// Hashes files and keeps the hashes.
#[derive(Debug, Default)]
pub(crate) struct Digester {
    kept: Mutex<KeptDigests>,
}

#[derive(Debug, Default)]
struct KeptDigests {
    entries: BTreeMap<PathBuf, DigestEntry>,
    changed: bool,
}

impl Digester {
    /// With what was kept; a file that cannot be read only costs time.
    pub(crate) fn load(path: &Path) -> Self {
        let bytes = fs::read(path).unwrap_or_default();
        let entries = serde_json::from_slice(&bytes).unwrap_or_default();
        Self { kept: Mutex::new(KeptDigests { entries, changed: false }) }
    }

    /// Keeps what is known of files that are there.
    pub(crate) fn save(&self, path: &Path) -> io::Result<()> {
        let mut kept = self.lock();
        if !kept.changed {
            return Ok(());
        }
        kept.entries.retain(|path, _| path.exists());
        let bytes = serde_json::to_vec(&kept.entries).map_err(io::Error::other)?;
        replace(path, &bytes, Durability::Unsynced)?;
        kept.changed = false;
        Ok(())
    }

    /// The hash of a file.
    pub(crate) fn file(&self, path: &Path, writers: Writers) -> io::Result<String> {
        let before = fs::metadata(path)?;
        let stamp = |blake3: String| DigestEntry {
            bytes: before.len(),
            modified: nanoseconds(before.modified().ok()),
            inode: before.ino(),
            blake3,
        };
        if let Some(entry) = self.lock().entries.get(path)
            && *entry == stamp(entry.blake3.clone())
        {
            return Ok(entry.blake3.clone());
        }
        let mut hasher = blake3::Hasher::new();
        hasher.update_reader(fs::File::open(path)?)?;
        let digest = hasher.finalize().to_hex().to_string();
        let age =
            before.modified().ok().and_then(|time| SystemTime::now().duration_since(time).ok());
        if writers == Writers::Nobody || age.is_some_and(|age| age > UNSETTLED) {
            let mut kept = self.lock();
            kept.entries.insert(path.to_path_buf(), stamp(digest.clone()));
            kept.changed = true;
        }
        Ok(digest)
    }

    /// The hash of a file, or of all files of a folder with their names; hidden ones are left out.
    pub(crate) fn tree(&self, path: &Path, writers: Writers) -> io::Result<String> {
        if !path.is_dir() {
            return self.file(path, writers);
        }
        let mut hasher = blake3::Hasher::new();
        for file in files_below(path)? {
            let digest = self.file(&path.join(&file), writers)?;
            hasher.update(format!("{}\0{digest}\n", file.to_string_lossy()).as_bytes());
        }
        Ok(hasher.finalize().to_hex().to_string())
    }

    /// The hash of what a user names on this machine: a file, a folder, or the files of a pattern.
    pub(crate) fn place(&self, place: &str) -> Result<String, String> {
        let wrong = |error: io::Error| format!("{place}: {error}");
        // `shop.db?table=orders` is a database with settings, which the key has as text.
        let path = match place.split_once('?') {
            Some((path, settings)) if settings.contains('=') => Path::new(path),
            _ => Path::new(place),
        };
        if path.exists() || !place.contains(['*', '?', '[']) {
            return self.tree(path, Writers::Anybody).map_err(wrong);
        }
        let found =
            glob::glob(place).map_err(|error| format!("{place}: not a pattern: {error}"))?;
        let mut hasher = blake3::Hasher::new();
        let mut count = 0;
        for path in found {
            let path = path.map_err(|error| wrong(error.into()))?;
            let digest = self.tree(&path, Writers::Anybody).map_err(wrong)?;
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            hasher.update(format!("{name}\0{digest}\n").as_bytes());
            count += 1;
        }
        match count {
            0 => Err(format!("{place}: no file fits this pattern")),
            _ => Ok(hasher.finalize().to_hex().to_string()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, KeptDigests> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The files below a folder, in a fixed order; hidden ones are left out.
pub(crate) fn files_below(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    walk(folder, Path::new(""), 0, &mut files)?;
    files.sort();
    Ok(files)
}

fn walk(root: &Path, below: &Path, depth: usize, files: &mut Vec<PathBuf>) -> io::Result<()> {
    if depth > DEEPEST {
        return Err(io::Error::other("folders are nested too deeply"));
    }
    for entry in fs::read_dir(root.join(below))? {
        let name = entry?.file_name();
        if name.as_encoded_bytes().starts_with(b".") {
            continue;
        }
        let path = below.join(&name);
        if root.join(&path).is_dir() {
            walk(root, &path, depth + 1, files)?;
        } else {
            files.push(path);
        }
    }
    Ok(())
}

fn nanoseconds(time: Option<SystemTime>) -> u128 {
    let since = time.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    since.map_or(0, |since| since.as_nanos())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_are_their_files_with_names_and_patterns_are_what_fits() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        fs::create_dir_all(at("d/e")).expect("made");
        for (name, text) in [("d/a.csv", "1"), ("d/b.csv", "2"), ("d/e/c.csv", "3")] {
            fs::write(at(name), text).expect("written");
        }
        let digester = Digester::default();
        let place = |name: &str| digester.place(&at(name).to_string_lossy());
        let (whole, some) = (place("d").expect("read"), place("d/*.csv").expect("read"));
        assert_eq!(place("d/a.csv").expect("read"), blake3::hash(b"1").to_hex().to_string());
        fs::write(at("d/e/c.csv"), "4").expect("written");
        fs::write(at("d/.hidden"), "4").expect("written");
        assert_ne!(place("d").expect("read"), whole);
        assert_eq!(place("d/*.csv").expect("read"), some);
        fs::rename(at("d/b.csv"), at("d/c.csv")).expect("renamed");
        assert_ne!(place("d/*.csv").expect("read"), some, "names count");
        assert!(place("d/*.x").expect_err("none").ends_with("no file fits this pattern"));
        assert!(place("x").expect_err("none").contains("No such file"));
    }

    #[test]
    fn kept_hashes_are_those_of_files_that_stay() {
        let folder = tempfile::tempdir().expect("a folder");
        let (file, kept) = (folder.path().join("a"), folder.path().join("digests.json"));
        fs::write(&file, "one").expect("written");
        let digester = Digester::load(&kept);
        let first = digester.file(&file, Writers::Anybody).expect("read");
        digester.save(&kept).expect("saved");
        assert!(!kept.exists(), "it is too young to be kept");
        let first_again = digester.file(&file, Writers::Nobody).expect("read");
        digester.save(&kept).expect("saved");
        assert_eq!(first, first_again);
        let again = Digester::load(&kept);
        let (_, entry) = again.lock().entries.pop_first().expect("kept");
        assert_eq!(entry.blake3, first);
        fs::write(&file, "other").expect("written");
        let changed = Digester::load(&kept).file(&file, Writers::Anybody).expect("read");
        assert_eq!(changed, blake3::hash(b"other").to_hex().to_string());
    }
}
