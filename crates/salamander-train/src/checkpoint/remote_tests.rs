//! A store that breaks at any request: what counts there can always be had again, and nothing stays behind.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};

use salamander_core::experiment::CheckpointPolicy;
use salamander_core::progress::StepCount;

use super::super::uploader::{UploadCommand, Uploader};
use super::super::{Snapshot, write};
use super::*;

/// Objects in memory. After so many requests every further one fails, as for a process that was killed.
#[derive(Clone, Default)]
struct Shelf {
    objects: Arc<Mutex<BTreeMap<String, Vec<u8>>>>,
    left: Arc<AtomicUsize>,
    /// Whether it puts whatever the condition.
    careless: bool,
}

impl Shelf {
    fn new(requests: usize) -> Self {
        Self { left: Arc::new(requests.into()), ..Self::default() }
    }

    fn request(&self) -> Result<std::sync::MutexGuard<'_, BTreeMap<String, Vec<u8>>>, Error> {
        let left = self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1));
        left.map_err(|_| Error::Invalid("the store does not answer".to_string()))?;
        Ok(self.objects.lock().expect("not poisoned"))
    }

    fn mend(&self, requests: usize) {
        self.left.store(requests, Ordering::SeqCst);
    }

    /// Flips a bit of an object.
    fn damage(&self, name: &str) {
        let mut objects = self.objects.lock().expect("not poisoned");
        *objects.get_mut(name).and_then(|bytes| bytes.last_mut()).expect("there") ^= 1;
    }

    fn names(&self) -> Vec<String> {
        self.objects.lock().expect("not poisoned").keys().cloned().collect()
    }
}

impl Objects for Shelf {
    fn put(&self, name: &str, bytes: Vec<u8>) -> Result<(), Error> {
        self.request()?.insert(name.to_string(), bytes);
        Ok(())
    }

    fn put_file(&self, name: &str, file: &Path) -> Result<(), Error> {
        self.put(name, fs::read(file).map_err(Error::io(file))?)
    }

    fn get(&self, name: &str) -> Result<Option<Vec<u8>>, Error> {
        Ok(self.request()?.get(name).cloned())
    }

    fn get_versioned(&self, name: &str) -> Result<Option<(Vec<u8>, ObjectVersion)>, Error> {
        let found = self.request()?.get(name).cloned();
        Ok(found.map(|bytes| (bytes.clone(), version(&bytes))))
    }

    fn put_if(
        &self,
        name: &str,
        bytes: Vec<u8>,
        seen: Option<&ObjectVersion>,
    ) -> Result<Option<ObjectVersion>, Error> {
        let mut objects = self.request()?;
        let is_same = objects.get(name).map(|found| version(found)).as_ref() == seen;
        if !is_same && !self.careless {
            return Ok(None);
        }
        let put = version(&bytes);
        objects.insert(name.to_string(), bytes);
        Ok(Some(put))
    }

    fn get_file(&self, name: &str, _size: u64, file: &Path) -> Result<(), Error> {
        let bytes = self.request()?.get(name).cloned();
        let bytes = bytes.ok_or_else(|| Error::Invalid(format!("{name} is not there")))?;
        fs::write(file, bytes).map_err(Error::io(file))
    }

    fn list(&self, under: &str) -> Result<Listing, Error> {
        let mut listing = Listing::default();
        for (name, bytes) in self.request()?.iter() {
            let Some(rest) = name.strip_prefix(&format!("{under}/")) else { continue };
            match rest.split_once('/') {
                Some((folder, _)) => listing.folders.push(folder.to_string()),
                None => listing.files.push((rest.to_string(), bytes.len() as u64)),
            }
        }
        listing.folders.dedup();
        Ok(listing)
    }

    fn remove(&self, name: &str) -> Result<(), Error> {
        self.request()?.remove(name);
        Ok(())
    }
}

/// As S3 does: two objects with the same content are the same version.
fn version(bytes: &[u8]) -> ObjectVersion {
    ObjectVersion::tagged(blake3::hash(bytes).to_hex().to_string())
}

/// Writes the checkpoint of a version on disk.
fn checkpoint(folder: &Path, steps: u64) -> PathBuf {
    write(folder, &Snapshot::sample(steps), None).expect("written")
}

/// Versions that can be had again from a store.
fn usable(shelf: &Shelf) -> Vec<u64> {
    shelf.mend(usize::MAX);
    let remote = RemoteCheckpoints::with(shelf.clone());
    let fresh = tempfile::tempdir().expect("a folder");
    let counting = remote.counting().expect("listed");
    for manifest in &counting {
        remote.download(&manifest.id, fresh.path()).expect("what counts is whole");
    }
    counting.iter().map(|manifest| manifest.steps.0).collect()
}

fn keeping(folder: &Path, patience: u64) -> Keeping {
    let storage = CheckpointStorage { store_patience: patience, ..CheckpointStorage::default() };
    Keeping { folder: folder.to_path_buf(), policy: CheckpointPolicy::Best, storage }
}

#[test]
fn a_kill_at_any_request_leaves_what_counted_before() {
    let folder = tempfile::tempdir().expect("a folder");
    let paths: Vec<PathBuf> = (1..=5).map(|steps| checkpoint(folder.path(), steps)).collect();
    let complete = std::cell::Cell::new(0);
    let keep = |remote: &RemoteCheckpoints| {
        for (path, steps) in paths.iter().zip(1..) {
            remote.upload(path)?;
            complete.set(steps);
            remote.tidy(&keeping(folder.path(), 0), &super::super::id(StepCount(steps)))?;
        }
        Ok::<(), Error>(())
    };
    let mut cut = 0;
    loop {
        let shelf = Shelf::new(cut);
        complete.set(0);
        let whole = keep(&RemoteCheckpoints::with(shelf.clone())).is_ok();
        let (left, newest) = (usable(&shelf), complete.get());
        assert!(left.last().copied().unwrap_or(0) >= newest, "{left:?} after {cut} requests");
        // The next process begins with the same checkpoints.
        keep(&RemoteCheckpoints::with(shelf.clone())).expect("the store is well again");
        assert_eq!(usable(&shelf), [4, 5], "cut after {cut} requests");
        assert!(
            shelf
                .names()
                .iter()
                .all(|name| name.contains("step-00000004") || name.contains("step-00000005"))
        );
        assert!(left.len() <= 3, "superfluous ones go with the next: {left:?}");
        if whole {
            break;
        }
        cut += 1;
    }
    assert!(cut > 60, "every request was cut once: {cut}");
}

#[test]
fn a_broken_object_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let shelf = Shelf::new(usize::MAX);
    let remote = RemoteCheckpoints::with(shelf.clone());
    remote.upload(&checkpoint(folder.path(), 7)).expect("put");
    shelf.damage("checkpoints/step-00000007/model.safetensors");
    let fresh = tempfile::tempdir().expect("a folder");
    let error = remote.download("step-00000007", fresh.path()).expect_err("broken").to_string();
    assert!(error.contains("test:///checkpoints/step-00000007"), "{error}");
    assert!(error.contains("model.safetensors: its checksum is wrong"), "{error}");
    assert_eq!(fs::read_dir(fresh.path()).expect("a folder").count(), 0, "nothing is left of it");
}

#[test]
fn an_intact_copy_takes_the_place_of_a_damaged_folder() {
    let folder = tempfile::tempdir().expect("a folder");
    let here: Vec<PathBuf> = [4, 5].map(|steps| checkpoint(folder.path(), steps)).into();
    let shelf = Shelf::new(usize::MAX);
    let remote = RemoteCheckpoints::with(shelf.clone());
    remote.upload(&here[1]).expect("put");
    let spoil = || {
        let file = here[1].join("model.safetensors");
        let mut bytes = fs::read(&file).expect("there");
        *bytes.last_mut().expect("not empty") ^= 1;
        fs::write(&file, bytes).expect("written");
        assert!(read(&here[1]).is_err());
    };
    let keeping = keeping(folder.path(), 0);
    let found = |id: &str| keeping.intact_in(Some(&remote), id).expect("found").manifest.steps.0;
    spoil();
    assert_eq!(found("step-00000005"), 5);
    read(&here[1]).expect("it was brought");
    // Damaged here and there: the one before it.
    spoil();
    shelf.damage("checkpoints/step-00000005/model.safetensors");
    assert_eq!(found("step-00000005"), 4);
    assert_eq!(fs::read_dir(folder.path()).expect("there").count(), 2, "nothing stays beside");
}

#[test]
fn a_store_that_ignores_conditions_is_refused() {
    let shelf = Shelf::new(usize::MAX);
    RemoteCheckpoints::with(shelf.clone()).check_conditions("probe").expect("it keeps them");
    assert!(shelf.names().is_empty(), "nothing is left of the probe");
    let careless = Shelf { careless: true, ..Shelf::new(usize::MAX) };
    let error = RemoteCheckpoints::with(careless).check_conditions("probe").expect_err("refused");
    assert!(error.to_string().contains("two masters could lead one run"), "{error}");
}

#[test]
fn only_what_the_master_counted_counts() {
    let folder = tempfile::tempdir().expect("a folder");
    let shelf = Shelf::new(usize::MAX);
    let remote = RemoteCheckpoints::with(shelf.clone());
    for steps in [1, 2, 3] {
        remote.upload(&checkpoint(folder.path(), steps)).expect("put");
    }
    remote.objects.put(COUNTED, b"step-00000001\nstep-00000002\n".to_vec()).expect("put");
    assert_eq!(usable(&shelf), [1, 2]);
    // The third may count in a moment.
    remote.tidy(&keeping(folder.path(), 0), "step-00000003").expect("tidied");
    assert_eq!(remote.complete().expect("listed").len(), 3);
}

#[test]
fn who_goes_on_from_before_a_broken_checkpoint_keeps_what_it_puts() {
    let folder = tempfile::tempdir().expect("a folder");
    let shelf = Shelf::new(usize::MAX);
    let remote = RemoteCheckpoints::with(shelf.clone());
    for steps in [1, 3] {
        remote.upload(&checkpoint(folder.path(), steps)).expect("put");
    }
    remote.objects.put(COUNTED, b"step-00000001\nstep-00000003\n".to_vec()).expect("put");
    remote.objects.remove("checkpoints/step-00000003/model.safetensors").expect("removed");
    let (fresh, mut refused) = (tempfile::tempdir().expect("a folder"), Vec::new());
    let newest = remote.newest(fresh.path(), &mut |error| refused.push(error.to_string()));
    assert_eq!(newest.expect("found").as_deref(), Some("step-00000001"));
    assert!(refused[0].contains("model.safetensors is missing"), "{refused:?}");
    // It does not count yet, and there is a later one that does.
    remote.upload(&checkpoint(folder.path(), 2)).expect("put");
    remote.tidy(&keeping(folder.path(), 0), "step-00000002").expect("tidied");
    remote.download("step-00000002", fresh.path()).expect("it is still there");
}

#[test]
fn a_store_that_is_down_is_tried_again_and_loses_nothing() {
    let run = tempfile::tempdir().expect("a folder");
    let folder = run.path().join("checkpoints");
    let shelf = Shelf::new(0);
    let (sender, results) = channel();
    let keeping = |patience| keeping(&folder, patience);
    let uploader = Uploader::start(RemoteCheckpoints::with(shelf.clone()), keeping(600), sender)
        .expect("started");
    for steps in 1..=3 {
        uploader.send(UploadCommand::Put(checkpoint(&folder, steps)));
    }
    shelf.mend(usize::MAX);
    let (done, wait) = channel();
    uploader.send(UploadCommand::Flush(done));
    wait.recv().expect("flushed");
    let stored = results.try_iter().last().expect("told").expect("stored");
    assert_eq!(stored, folder.join("step-00000003"));
    assert_eq!(usable(&shelf).last(), Some(&3));
    drop(uploader);

    shelf.mend(0);
    let (sender, results) = channel();
    let uploader = Uploader::start(RemoteCheckpoints::with(shelf.clone()), keeping(0), sender)
        .expect("started");
    uploader.send(UploadCommand::Put(checkpoint(&folder, 4)));
    drop(uploader);
    let error = results.try_iter().last().expect("told").expect_err("given up").to_string();
    assert!(error.contains("the store does not answer; it is in"), "{error}");
    assert!(folder.join("step-00000004").exists(), "the local copy stays");
    // Another process puts it there, without being asked.
    shelf.mend(usize::MAX);
    let (sender, _results) = channel();
    drop(
        Uploader::start(RemoteCheckpoints::with(shelf.clone()), keeping(600), sender)
            .expect("started"),
    );
    assert_eq!(usable(&shelf).last(), Some(&4));
}
