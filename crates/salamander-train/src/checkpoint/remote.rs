//! A run's place in an object store: checkpoints that are there completely or do not count.
//!
//! `checkpoints/<id>/<file>`, the manifest put last and removed first: whatever is cut short leaves a folder without a
//! manifest, which is not a checkpoint. In a distributed run `counted` lists those that the master has journaled.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use salamander_core::experiment::CheckpointStorage;
use salamander_core::layout::{CHECKPOINTS, COUNTED, TRIALS};
use salamander_data::{Bucket, Listing, ObjectVersion};
use salamander_files::{Durability, PendingFolder, real, write_synced};

use super::store::oldest_first;
use super::{
    Checkpoint, Counted, Keeping, MANIFEST, Manifest, parse_manifest, read, read_manifest,
};
use crate::Error;

/// What a store can do; tests have one that fails when it is told to.
pub(crate) trait Objects: Send + Sync {
    /// Makes or replaces an object, in one step.
    fn put(&self, name: &str, bytes: Vec<u8>) -> Result<(), Error>;
    /// Makes or replaces an object with a file's content, in one step.
    fn put_file(&self, name: &str, file: &Path) -> Result<(), Error>;
    /// An object's content, if it is there.
    fn get(&self, name: &str) -> Result<Option<Vec<u8>>, Error>;
    /// An object's content and version, if it is there.
    fn get_versioned(&self, name: &str) -> Result<Option<(Vec<u8>, ObjectVersion)>, Error>;
    /// Makes or replaces an object in one request, if it is still what was seen.
    fn put_if(
        &self,
        name: &str,
        bytes: Vec<u8>,
        seen: Option<&ObjectVersion>,
    ) -> Result<Option<ObjectVersion>, Error>;
    /// Writes an object of this size to a file, which is on disk when this returns.
    fn get_file(&self, name: &str, size: u64, file: &Path) -> Result<(), Error>;
    /// What is right under a name.
    fn list(&self, under: &str) -> Result<Listing, Error>;
    /// Removes an object; one that is not there is fine.
    fn remove(&self, name: &str) -> Result<(), Error>;
}

impl Objects for Bucket {
    fn put(&self, name: &str, bytes: Vec<u8>) -> Result<(), Error> {
        Ok(Bucket::put(self, name, bytes)?)
    }

    fn put_file(&self, name: &str, file: &Path) -> Result<(), Error> {
        Ok(Bucket::put_file(self, name, file)?)
    }

    fn get(&self, name: &str) -> Result<Option<Vec<u8>>, Error> {
        Ok(Bucket::get(self, name)?)
    }

    fn get_versioned(&self, name: &str) -> Result<Option<(Vec<u8>, ObjectVersion)>, Error> {
        Ok(Bucket::get_versioned(self, name)?)
    }

    fn put_if(
        &self,
        name: &str,
        bytes: Vec<u8>,
        seen: Option<&ObjectVersion>,
    ) -> Result<Option<ObjectVersion>, Error> {
        Ok(Bucket::put_if(self, name, bytes, seen)?)
    }

    fn get_file(&self, name: &str, size: u64, file: &Path) -> Result<(), Error> {
        Ok(Bucket::get_file(self, name, size, file)?)
    }

    fn list(&self, under: &str) -> Result<Listing, Error> {
        Ok(Bucket::list(self, under)?)
    }

    fn remove(&self, name: &str) -> Result<(), Error> {
        Ok(Bucket::remove(self, name)?)
    }
}

/// The name of a run's place below its store: the folder's. A trial is below its search, whose trials are numbered like
/// those of any other.
fn place_of(folder: &Path) -> String {
    let names: Vec<_> = folder.iter().rev().take(3).map(|name| name.to_string_lossy()).collect();
    match names.as_slice() {
        [trial, trials, search] if trials == TRIALS => format!("{search}/{trials}/{trial}"),
        [run, ..] => run.to_string(),
        [] => String::new(),
    }
}

/// A run's place in a store.
pub struct RemoteCheckpoints {
    objects: Box<dyn Objects>,
    url: String,
}

impl RemoteCheckpoints {
    /// The place of a run below a url; nothing is asked of it yet.
    pub fn open(url: &str, run: &str) -> Result<Self, Error> {
        let bucket = Bucket::open(&format!("{}/{run}", url.trim_end_matches('/')))?;
        let url = bucket.url().to_string();
        Ok(Self { objects: Box::new(bucket), url })
    }

    /// The place of the run in this folder, if its experiment names a store.
    pub fn of_run(storage: &CheckpointStorage, folder: &Path) -> Result<Option<Self>, Error> {
        storage.store.as_deref().map(|url| Self::open(url, &place_of(folder))).transpose()
    }

    #[cfg(test)]
    pub(super) fn with(objects: impl Objects + 'static) -> Self {
        Self { objects: Box::new(objects), url: "test://".to_string() }
    }

    /// Where it is.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// A file of the run beside its checkpoints, if it is there.
    pub fn get(&self, name: &str) -> Result<Option<Vec<u8>>, Error> {
        self.objects.get(name)
    }

    /// Puts a file of the run, if it has one of this name.
    pub fn put(&self, folder: &Path, name: &str) -> Result<(), Error> {
        match fs::read(folder.join(name)) {
            Ok(bytes) => self.put_bytes(name, bytes),
            Err(_) => Ok(()),
        }
    }

    /// Puts what a file of the run had in it when it was read.
    pub fn put_bytes(&self, name: &str, bytes: Vec<u8>) -> Result<(), Error> {
        self.objects.put(name, bytes)
    }

    /// A file of the run and its version in the store, if it is there.
    pub fn get_versioned(&self, name: &str) -> Result<Option<(Vec<u8>, ObjectVersion)>, Error> {
        self.objects.get_versioned(name)
    }

    /// Puts a file of the run in one request if it is not there, or still the version that was seen. None: it is not,
    /// or it is what was just put, and the answer was lost.
    pub fn put_if(
        &self,
        name: &str,
        bytes: Vec<u8>,
        seen: Option<&ObjectVersion>,
    ) -> Result<Option<ObjectVersion>, Error> {
        self.objects.put_if(name, bytes, seen)
    }

    /// Refuses a store that puts whatever the condition: two masters could lead one run. `name` is of an object that
    /// nobody else uses, and is gone afterwards.
    pub fn check_conditions(&self, name: &str) -> Result<(), Error> {
        let put = |text: &str, seen| self.put_if(name, text.as_bytes().to_vec(), seen);
        let first = put("1", None)?;
        let again = put("2", None)?;
        let second = first.as_ref().map(|first| put("3", Some(first))).transpose()?.flatten();
        let late = first.as_ref().map(|first| put("4", Some(first))).transpose()?.flatten();
        self.objects.remove(name)?;
        match (second, again, late) {
            (Some(_), None, None) => Ok(()),
            _ => Err(Error::Invalid(format!(
                "{}: it does not keep the conditions of a write (If-Match, If-None-Match), so two masters could lead \
                 one run: use a store that does, or leave checkpoint_storage.store out",
                self.url
            ))),
        }
    }

    /// The same, unless it is there.
    pub(super) fn put_once(&self, folder: &Path, name: &str) -> Result<(), Error> {
        match self.objects.get(name)? {
            Some(_) => Ok(()),
            None => self.put(folder, name),
        }
    }

    /// The complete checkpoints, oldest first.
    pub fn complete(&self) -> Result<Vec<Manifest>, Error> {
        let mut manifests = Vec::new();
        for id in self.objects.list(CHECKPOINTS)?.folders {
            let text = self.objects.get(&format!("{CHECKPOINTS}/{id}/{MANIFEST}"))?;
            let place = PathBuf::from(format!("{}/{CHECKPOINTS}/{id}", self.url));
            // One that cannot be read is as good as none: the checkpoint before it is used.
            manifests.extend(text.and_then(|text| parse_manifest(&place, &text).ok()));
        }
        Ok(oldest_first(manifests.into_iter()))
    }

    /// The checkpoints that a run can go on from, oldest first.
    pub fn counting(&self) -> Result<Vec<Manifest>, Error> {
        let (mut complete, counted) = (self.complete()?, self.get(COUNTED)?);
        if let Some(counted) = counted {
            let damaged = |reason| Error::Invalid(format!("{}/{COUNTED}: {reason}", self.url));
            let counted = Counted::parse(&counted).map_err(damaged)?;
            complete.retain(|manifest| counted.has(&manifest.id));
        }
        Ok(complete)
    }

    /// Puts a checkpoint; it is complete there when this returns.
    pub fn upload(&self, checkpoint: &Path) -> Result<(), Error> {
        let manifest = read_manifest(checkpoint)?;
        let path = checkpoint.join(MANIFEST);
        let text = fs::read(&path).map_err(Error::io(&path))?;
        let under = format!("{CHECKPOINTS}/{}", manifest.id);
        let last = format!("{under}/{MANIFEST}");
        match self.objects.get(&last)? {
            Some(known) if known == text => return Ok(()),
            // Another one of the same version: it must not look complete while its files are replaced.
            Some(_) => self.objects.remove(&last)?,
            None => {}
        }
        for name in sizes(&manifest).keys() {
            self.objects.put_file(&format!("{under}/{name}"), &checkpoint.join(name))?;
        }
        if let Some(name) = self.missing(&under, &manifest)? {
            let reason = format!("{name} is not in {}/{under} as it was put there", self.url);
            return Err(Error::checkpoint(checkpoint, reason));
        }
        self.objects.put(&last, text)
    }

    /// A file that is not there, or not as long as its manifest says.
    fn missing(&self, under: &str, manifest: &Manifest) -> Result<Option<String>, Error> {
        let there: BTreeMap<String, u64> = self.objects.list(under)?.files.into_iter().collect();
        let mut needed = sizes(manifest).into_iter();
        Ok(needed.find(|(name, size)| there.get(name) != Some(size)).map(|(name, _)| name))
    }

    /// Removes what the policy does not keep, and what was cut short. Only called by whoever puts checkpoints, after
    /// `last`, which will count in a moment.
    pub(super) fn tidy(&self, keeping: &Keeping, last: &str) -> Result<(), Error> {
        let counting = self.counting()?;
        let Some(newest) = counting.last().map(|manifest| manifest.id.clone()) else {
            return Ok(());
        };
        let removed = keeping.superfluous(&counting);
        let counts = |id: &String| counting.iter().any(|manifest| manifest.id == *id);
        for id in self.objects.list(CHECKPOINTS)?.folders.into_iter().filter(|id| id != last) {
            // Something newer may still be on its way to count.
            if removed.contains(&id) || (!counts(&id) && id < newest) {
                self.remove(&id)?;
            }
        }
        Ok(())
    }

    fn remove(&self, id: &str) -> Result<(), Error> {
        let under = format!("{CHECKPOINTS}/{id}");
        self.objects.remove(&format!("{under}/{MANIFEST}"))?;
        for (name, _) in self.objects.list(&under)?.files {
            self.objects.remove(&format!("{under}/{name}"))?;
        }
        Ok(())
    }

    /// Brings the newest checkpoint that counts and is whole; tells `refused` about newer ones that are not.
    pub fn newest(
        &self,
        folder: &Path,
        refused: &mut dyn FnMut(&Error),
    ) -> Result<Option<String>, Error> {
        for manifest in self.counting()?.into_iter().rev() {
            match self.download(&manifest.id, folder) {
                Ok(_) => return Ok(Some(manifest.id)),
                Err(error @ Error::Checkpoint { .. }) => refused(&error),
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    /// Brings a checkpoint into a folder of checkpoints, where it appears when all of it is there, verified and on
    /// disk, in place of a damaged one.
    pub fn download(&self, id: &str, folder: &Path) -> Result<Checkpoint, Error> {
        let place = PathBuf::from(format!("{}/{CHECKPOINTS}/{id}", self.url));
        let under = format!("{CHECKPOINTS}/{id}");
        let text = self.objects.get(&format!("{under}/{MANIFEST}"))?;
        let text = text.ok_or_else(|| Error::checkpoint(&place, "it has no manifest"))?;
        let manifest = parse_manifest(&place, &text)?;
        if let Some(name) = self.missing(&under, &manifest)? {
            let reason = format!("{name} is missing, or not as long as its manifest says");
            return Err(Error::checkpoint(&place, reason));
        }
        // Several processes may bring the same one.
        let beside = folder.join(format!(".{id}.{}.tmp", std::process::id()));
        let pending = PendingFolder::create(&beside).map_err(Error::io(&beside))?;
        let target = folder.join(id);
        for (name, size) in sizes(&manifest) {
            self.objects.get_file(&format!("{under}/{name}"), size, &beside.join(&name))?;
        }
        let disk = real();
        write_synced(&*disk, &beside.join(MANIFEST), &text).map_err(Error::io(&beside))?;
        disk.sync_folder(&beside).map_err(Error::io(&beside))?;
        let brought = read(&beside).map_err(|error| at(&place, error))?;
        // Another process may have brought it meanwhile.
        let there = read(&target).ok().filter(|there| there.manifest == brought.manifest);
        if there.is_none() {
            pending.replace(&target, Durability::Synced).map_err(Error::io(&target))?;
        }
        Ok(Checkpoint { path: target, ..brought })
    }
}

/// What is wrong with a copy is wrong with its original.
fn at(place: &Path, error: Error) -> Error {
    match error {
        Error::Checkpoint { reason, .. } => Error::checkpoint(place, reason),
        other => other,
    }
}

/// The files of a checkpoint and their sizes.
fn sizes(manifest: &Manifest) -> BTreeMap<String, u64> {
    let files = manifest.files.iter().map(|(name, entry)| (name.clone(), entry.bytes));
    files.chain(manifest.tables.clone()).collect()
}

#[cfg(test)]
#[path = "remote_tests.rs"]
mod tests;
