//! The folder of a pipeline: artifacts that are complete or absent, what was decided last, and who may write.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};

use salamander_core::layout::{MANIFEST, PipelineLayout};
use salamander_core::yaml::{self, Node, Value};
use salamander_files::{Durability, real, replace, sync_folder_of, write_synced};
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use super::Error;
use super::digest::{Digester, Writers};
use super::key::{Components, Key};
use super::lock::{LockError, StepLock, hold, remove_locks};
use super::planner::World;

/// The hash of an address such as `s3://bucket/file`, or why it cannot be had.
pub type Remote = fn(&str) -> Result<String, String>;

/// What is kept under a key.
#[derive(Clone, Debug)]
pub enum Artifact {
    /// Nothing.
    Absent,
    /// Something that is not what it was.
    Damaged(String),
    /// All that the step has left.
    Whole(Box<ArtifactManifest>),
}

/// What an artifact says of itself; written last.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ArtifactManifest {
    /// Its name.
    pub key: Key,
    /// The step that made it.
    pub step: String,
    /// Files and folders by name.
    pub outputs: BTreeMap<String, StepOutput>,
    /// Values by name.
    pub values: BTreeMap<String, Json>,
    /// The hash of each file that must stay as it is, by its place in the artifact.
    pub files: BTreeMap<String, String>,
    /// How long the step took.
    pub seconds: f64,
    /// How often it was tried.
    pub attempts: u32,
    /// Where it is.
    #[serde(skip)]
    pub folder: PathBuf,
}

/// A file or folder that a step left.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepOutput {
    /// Its place in the artifact.
    pub path: String,
    /// The hash of its content.
    pub digest: String,
}

/// The folder of a pipeline.
#[derive(Debug)]
pub struct ArtifactStore {
    layout: PipelineLayout,
    digester: Digester,
    program: OnceLock<Result<(PathBuf, String), String>>,
    remote: Remote,
    /// What addresses hold, since a step has ended last.
    asked: Mutex<BTreeMap<String, String>>,
    lock: Option<File>,
}

impl ArtifactStore {
    /// A folder that need not be there; nothing is written to it.
    pub fn open(folder: &Path, remote: Remote) -> Result<Self, Error> {
        let whole = match folder.exists() {
            true => fs::canonicalize(folder),
            false => std::path::absolute(folder),
        };
        let layout = PipelineLayout::new(whole.map_err(Error::io(folder))?);
        let digester = Digester::load(&layout.digests());
        let (program, asked) = (OnceLock::new(), Mutex::default());
        Ok(Self { layout, digester, program, remote, asked, lock: None })
    }

    /// The folder by the names of what is in it.
    pub fn layout(&self) -> &PipelineLayout {
        &self.layout
    }

    /// Makes the folder, and makes sure that no other process runs a pipeline in it. Single steps share it.
    pub fn claim(&mut self, single_step: bool) -> Result<(), Error> {
        let folder = self.layout.folder();
        fs::create_dir_all(folder).map_err(Error::io(folder))?;
        // Without links and `..`: programs tell what they have written by such paths, and that must be below it.
        let whole = fs::canonicalize(folder).map_err(Error::io(folder))?;
        self.layout = PipelineLayout::new(whole);
        let layout = &self.layout;
        for folder in [layout.artifacts(), layout.unfinished(), layout.steps(), layout.logs()] {
            fs::create_dir_all(&folder).map_err(Error::io(&folder))?;
        }
        let path = layout.lock();
        let lock = hold(&path, single_step).map_err(|error| match error {
            LockError::Held(holder) => {
                Error::Locked { folder: layout.folder().to_path_buf(), holder }
            }
            LockError::Io(cause) => Error::Io { path, cause },
        })?;
        if !single_step {
            [layout.unfinished(), layout.logs()].iter().for_each(|folder| remove_locks(folder));
        }
        self.lock = Some(lock);
        Ok(())
    }

    /// Keeps other processes from a step: from its log, and from the folder that it writes to, which another step may
    /// have too.
    pub(crate) fn lock_step(&self, instance: &str, key: &Key) -> Result<StepLock, LockError> {
        let folder = self.layout.unfinished().join(format!("{}.lock", key.0));
        StepLock::of([self.log(instance, "lock"), folder])
    }

    /// Forgets what addresses were said to hold: a step that has ended may have written there.
    pub(crate) fn forget_addresses(&self) {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Keeps what was learned about contents.
    pub fn save_digests(&self) {
        // A cache: without it the next run takes longer.
        let _ = self.digester.save(&self.layout.digests());
    }

    pub(crate) fn digester(&self) -> &Digester {
        &self.digester
    }

    /// The log of a step, and what it printed where that is read.
    pub(crate) fn log(&self, instance: &str, ending: &str) -> PathBuf {
        self.layout.logs().join(format!("{}.{ending}", file_name(instance)))
    }

    /// Makes what lies in a step's folder an artifact: whole, or not at all.
    pub(crate) fn commit(&self, manifest: &mut ArtifactManifest) -> io::Result<()> {
        let (from, to) = (self.folder(&manifest.key), self.artifact_folder(&manifest.key));
        for file in manifest.files.keys() {
            File::open(from.join(file))?.sync_all()?;
        }
        let bytes = serde_json::to_vec_pretty(&*manifest).map_err(io::Error::other)?;
        write_synced(&*real(), &from.join(MANIFEST), &bytes)?;
        if to.exists() {
            fs::remove_dir_all(&to)?;
        }
        fs::rename(&from, &to)?;
        sync_folder_of(&*real(), &to)?;
        manifest.folder = to;
        Ok(())
    }

    /// Notes what decided about a step that is done.
    pub(crate) fn note(&self, instance: &str, components: &Components) -> io::Result<()> {
        if self.record(instance).as_ref() == Some(components) {
            return Ok(());
        }
        let bytes = serde_json::to_vec_pretty(components).map_err(io::Error::other)?;
        replace(&self.record_file(instance), &bytes, Durability::Unsynced)
    }

    pub(crate) fn artifact_folder(&self, key: &Key) -> PathBuf {
        self.layout.artifacts().join(&key.0)
    }

    fn record_file(&self, instance: &str) -> PathBuf {
        self.layout.steps().join(format!("{}.json", file_name(instance)))
    }

    fn read_manifest(&self, folder: &Path, key: &Key) -> Result<ArtifactManifest, String> {
        let bytes = fs::read(folder.join(MANIFEST)).map_err(|e| format!("{MANIFEST}: {e}"))?;
        let mut manifest: ArtifactManifest =
            serde_json::from_slice(&bytes).map_err(|e| format!("{MANIFEST}: {e}"))?;
        if manifest.key != *key {
            return Err(format!("{MANIFEST} is of another artifact"));
        }
        manifest.folder = folder.to_path_buf();
        for (file, digest) in &manifest.files {
            match self.digester.file(&folder.join(file), Writers::Nobody) {
                Ok(found) if found == *digest => {}
                Ok(_) => return Err(file.clone()),
                Err(error) => return Err(format!("{file}: {error}")),
            }
        }
        Ok(manifest)
    }
}

impl World for ArtifactStore {
    fn digest(&self, place: &str) -> Result<String, String> {
        if !place.contains("://") {
            return self.digester.place(place);
        }
        // Steps that wait are looked at again and again; a server is asked once meanwhile.
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(digest) = asked.get(place) {
            return Ok(digest.clone());
        }
        let digest = (self.remote)(place)?;
        asked.insert(place.to_string(), digest.clone());
        Ok(digest)
    }

    fn experiment(&self, file: &Path, sets: &[String]) -> Result<Vec<(String, String)>, String> {
        let text = fs::read_to_string(file).map_err(|e| format!("{}: {e}", file.display()))?;
        let wrong = |error: yaml::Error| format!("experiment {}: {error}", file.display());
        let mut root = yaml::parse(&text).map_err(wrong)?;
        sets.iter().try_for_each(|set| root.set(set)).map_err(wrong)?;
        Ok(named_data(&root, file.parent().unwrap_or(Path::new(""))))
    }

    fn program(&self) -> Result<(PathBuf, String), String> {
        let find = || {
            let path =
                std::env::current_exe().map_err(|e| format!("cannot find the program: {e}"))?;
            let digest = self.digester.file(&path, Writers::Anybody);
            digest.map_err(|e| format!("{}: {e}", path.display())).map(|digest| (path, digest))
        };
        self.program.get_or_init(find).clone()
    }

    fn artifact(&self, key: &Key) -> Artifact {
        let folder = self.artifact_folder(key);
        if !folder.exists() {
            return Artifact::Absent;
        }
        match self.read_manifest(&folder, key) {
            Ok(manifest) => Artifact::Whole(Box::new(manifest)),
            Err(what) => Artifact::Damaged(what),
        }
    }

    fn record(&self, instance: &str) -> Option<Components> {
        serde_json::from_slice(&fs::read(self.record_file(instance)).ok()?).ok()
    }

    fn folder(&self, key: &Key) -> PathBuf {
        self.layout.unfinished().join(&key.0)
    }
}

/// The data that an experiment names. Whether it is a good experiment is for who trains to say.
fn named_data(root: &Node, folder: &Path) -> Vec<(String, String)> {
    let data = root.get("data");
    let fields = ["training", "validation"]
        .map(|name| (format!("data.{name}"), data.and_then(|data| data.get(name))));
    let named = |label: &str, node: &Node| match &node.value {
        Value::Text(place) => vec![(label.to_string(), place.clone())],
        Value::List(items) => items
            .iter()
            .enumerate()
            .filter_map(|(at, item)| match &item.value {
                Value::Text(place) => Some((format!("{label}.{at}"), place.clone())),
                _ => None,
            })
            .collect(),
        _ => Vec::new(),
    };
    let start = ("start_from".to_string(), root.get("start_from"));
    let found = fields.iter().chain([&start]);
    let found = found.flat_map(|(label, node)| node.map_or(Vec::new(), |node| named(label, node)));
    let whole = |place: String| match place.contains("://") {
        true => place,
        false => folder.join(place).to_string_lossy().into_owned(),
    };
    found.map(|(label, place)| (label, whole(place))).collect()
}

fn file_name(instance: &str) -> String {
    instance.replace('[', ".").replace(']', "")
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn an_address_is_asked_once_until_a_step_has_ended() {
        static ASKED: AtomicUsize = AtomicUsize::new(0);
        let folder = tempfile::tempdir().expect("a folder");
        let remote = |_: &str| -> Result<String, String> {
            Ok(format!("version {}", ASKED.fetch_add(1, Ordering::Relaxed)))
        };
        let store = ArtifactStore::open(folder.path(), remote).expect("a store");
        let ask = || store.digest("s3://bucket/a").expect("an answer");
        assert_eq!([ask(), ask()], ["version 0", "version 0"]);
        store.forget_addresses();
        assert_eq!([ask(), ask()], ["version 1", "version 1"]);
    }
}
