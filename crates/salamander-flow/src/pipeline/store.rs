//! The folder of a pipeline: artifacts that are complete or absent, what was decided last, and who may write.

use std::collections::BTreeMap;
use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, test_kill_process};
use salamander_core::layout::{MANIFEST, PipelineLayout};
use salamander_core::yaml::{self, Node, Value};
use salamander_files::{Durability, real, replace, sync_folder_of, write_synced};
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use super::Error;
use super::digest::{Digester, Writers};
use super::key::{Components, Key};
use super::planner::World;

/// How long what a killed process has left may hold its lock, and how often that is looked at.
const SETTLED: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(10);

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
    lock: Option<File>,
}

impl ArtifactStore {
    /// A folder that need not be there; nothing is written to it.
    pub fn open(folder: &Path, remote: Remote) -> Result<Self, Error> {
        let folder = std::path::absolute(folder).map_err(Error::io(folder))?;
        let layout = PipelineLayout::new(folder);
        let digester = Digester::load(&layout.digests());
        Ok(Self { layout, digester, program: OnceLock::new(), remote, lock: None })
    }

    /// The folder by the names of what is in it.
    pub fn layout(&self) -> &PipelineLayout {
        &self.layout
    }

    /// Makes the folder, and makes sure that no other process runs a pipeline in it. Single steps share it.
    pub fn claim(&mut self, single_step: bool) -> Result<(), Error> {
        let layout = &self.layout;
        for folder in [layout.artifacts(), layout.unfinished(), layout.steps(), layout.logs()] {
            fs::create_dir_all(&folder).map_err(Error::io(&folder))?;
        }
        let path = layout.lock();
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(false);
        let mut file = options.open(&path).map_err(Error::io(&path))?;
        let begun = Instant::now();
        loop {
            match if single_step { file.try_lock_shared() } else { file.try_lock() } {
                Ok(()) => break,
                Err(TryLockError::WouldBlock) => {
                    let holder = holder(&path);
                    // A child that was not yet a program of its own when its parent was killed, or gave the lock up.
                    let is_own = holder == std::process::id().to_string();
                    if (is_gone(&holder) || is_own) && begun.elapsed() < SETTLED {
                        sleep(LOOK);
                        continue;
                    }
                    return Err(Error::Locked { folder: layout.folder().to_path_buf(), holder });
                }
                Err(TryLockError::Error(cause)) => return Err(Error::Io { path, cause }),
            }
        }
        let pid = std::process::id();
        let written = file.set_len(0).and_then(|()| writeln!(file, "{pid}"));
        written.map_err(Error::io(&path))?;
        self.lock = Some(file);
        Ok(())
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
        if place.contains("://") { (self.remote)(place) } else { self.digester.place(place) }
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

/// Who has said to hold a lock.
fn holder(path: &Path) -> String {
    match fs::read_to_string(path).unwrap_or_default().trim() {
        "" => "another".to_string(),
        pid => pid.to_string(),
    }
}

fn is_gone(holder: &str) -> bool {
    let pid = holder.parse().ok().and_then(Pid::from_raw);
    pid.is_some_and(|pid| test_kill_process(pid).is_err())
}

fn file_name(instance: &str) -> String {
    instance.replace('[', ".").replace(']', "")
}
