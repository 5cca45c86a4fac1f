//! Runs of other machines: their files are written into a folder of their own below the runs, and from there on they
//! are runs like any other. The folder says which run it is of, so that a store can be made again.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use salamander_core::layout::{RunLayout, is_told_file};
use salamander_files::{Durability, replace};
use serde::{Deserialize, Serialize};

use crate::Error;
use crate::hub::Hub;

/// A run that wants to be told of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RemoteRun {
    /// A random name that only this run has.
    pub uid: String,
    /// Its folder's name there.
    pub id: String,
    /// The machine that it is on.
    #[serde(default)]
    pub host: String,
}

/// What the hub has of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoteStanding {
    /// Its folder below the hub's runs.
    pub folder: String,
    /// Whether the hub sees the run's own folder, and needs nothing else.
    pub sees: bool,
    /// Its files.
    pub files: BTreeMap<String, RemoteFile>,
}

/// A file of a run that the hub has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoteFile {
    /// Which file of this name it is: another one begins anew.
    pub stamp: String,
    /// How much of it is here.
    pub length: u64,
}

/// A part of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RemotePart {
    /// The file, below the run's folder.
    pub path: String,
    /// Which file of this name it is.
    pub stamp: String,
    /// Where the part begins.
    pub offset: u64,
}

/// Which parts of a run are alive.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RemoteLife {
    /// Folders below the run's in which a process trains; the empty one is the run's own.
    pub live: Vec<String>,
}

/// What a folder of such a run says of itself.
#[derive(Default, Serialize, Deserialize)]
struct RemoteRecord {
    uid: String,
    host: String,
    stamps: BTreeMap<String, String>,
}

impl Hub {
    /// Begins to be told of a run, or goes on.
    pub fn begin_remote(&self, run: &RemoteRun) -> Result<RemoteStanding, Error> {
        let is_hex = |c: char| c.is_ascii_hexdigit();
        if run.uid.len() != 32 || !run.uid.chars().all(is_hex) {
            return Err(Error::Invalid("uid: 32 hexadecimal digits".to_string()));
        }
        if self.sees(run) {
            let folder = run.id.clone();
            return Ok(RemoteStanding { folder, sees: true, ..RemoteStanding::default() });
        }
        let layout = match self.remote_folder(&run.uid) {
            Ok(layout) => layout,
            Err(Error::NotFound(_)) => self.make_remote(run)?,
            Err(error) => return Err(error),
        };
        let kept = read(&layout)?;
        let length = |path: &String| fs::metadata(layout.file(path)).map_or(0, |about| about.len());
        let file = |(path, stamp): (&String, &String)| {
            (path.clone(), RemoteFile { stamp: stamp.clone(), length: length(path) })
        };
        let files = kept.stamps.iter().map(file).collect();
        Ok(RemoteStanding { folder: layout.id(), sees: false, files })
    }

    /// Whether the run's own folder is one of this hub's.
    fn sees(&self, run: &RemoteRun) -> bool {
        let fits = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if run.id.is_empty() || run.id.starts_with('.') || !run.id.chars().all(fits) {
            return false;
        }
        let told = fs::read(RunLayout::new(self.runs().join(&run.id)).told_hub()).ok();
        let told: Option<serde_json::Value> = told.and_then(|t| serde_json::from_slice(&t).ok());
        told.is_some_and(|told| told["uid"] == run.uid.as_str())
    }

    fn make_remote(&self, run: &RemoteRun) -> Result<RunLayout, Error> {
        let safe = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '-' };
        let name: String = run.id.chars().map(safe).take(80).collect();
        let name = name.trim_start_matches('.');
        let mut folder = if name.is_empty() { "run".to_string() } else { name.to_string() };
        loop {
            let layout = RunLayout::new(self.runs().join(&folder));
            match fs::create_dir(layout.folder()) {
                Ok(()) => {
                    let host: String =
                        run.host.chars().filter(|c| !c.is_control()).take(80).collect();
                    let kept = RemoteRecord { uid: run.uid.clone(), host, stamps: BTreeMap::new() };
                    keep(&layout, &kept)?;
                    // By this a folder is known to be a run's; nobody ever holds it.
                    fs::write(layout.lock(), "").map_err(Error::io(&layout.lock()))?;
                    return Ok(layout);
                }
                Err(error) if error.kind() == ErrorKind::AlreadyExists => folder.push_str("-x"),
                Err(error) => return Err(Error::io(layout.folder())(error)),
            }
        }
    }

    fn remote_folder(&self, uid: &str) -> Result<RunLayout, Error> {
        let known = self.remotes().get(uid).map(|folder| RunLayout::new(self.runs().join(folder)));
        if let Some(known) = known.filter(|layout| layout.remote().is_file()) {
            return Ok(known);
        }
        let entries = fs::read_dir(self.runs()).map_err(Error::io(self.runs()))?;
        let mut layouts = entries.flatten().map(|entry| RunLayout::new(entry.path()));
        let is_it = |layout: &RunLayout| {
            layout.remote().is_file() && read(layout).is_ok_and(|kept| kept.uid == uid)
        };
        let found = layouts.find(is_it);
        let found = found.ok_or_else(|| Error::NotFound("this run is not known".to_string()))?;
        self.remotes().insert(uid.to_string(), found.id());
        Ok(found)
    }

    /// Keeps a part of a file; gives its length. What does not follow on what is here is refused.
    pub fn write_remote(&self, uid: &str, part: &RemotePart, bytes: &[u8]) -> Result<u64, Error> {
        if !is_told_file(&part.path) {
            return Err(Error::Invalid(format!("path: {:?} is no file that is told", part.path)));
        }
        let layout = self.remote_folder(uid)?;
        let mut kept = read(&layout)?;
        let path = layout.file(&part.path);
        let folder = path.parent().unwrap_or(layout.folder());
        fs::create_dir_all(folder).map_err(Error::io(folder))?;
        if kept.stamps.get(&part.path) != Some(&part.stamp) {
            if part.offset != 0 || part.stamp.len() > 100 {
                let reason = format!("{}: another file begins at 0", part.path);
                return Err(Error::Conflict(reason));
            }
            replace(&path, bytes, Durability::Synced).map_err(Error::io(&path))?;
            kept.stamps.insert(part.path.clone(), part.stamp.clone());
            keep(&layout, &kept)?;
            return Ok(bytes.len() as u64);
        }
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(&path);
        let mut file = file.map_err(Error::io(&path))?;
        let length = file.metadata().map_err(Error::io(&path))?.len();
        if length != part.offset {
            let reason = format!("{}: it ends at {length}, not at {}", part.path, part.offset);
            return Err(Error::Conflict(reason));
        }
        let written = file
            .seek(SeekFrom::Start(part.offset))
            .and_then(|_| file.write_all(bytes))
            .and_then(|()| file.sync_data());
        written.map_err(Error::io(&path))?;
        Ok(length + bytes.len() as u64)
    }

    /// Hears which parts of a run are alive.
    pub fn hear_remote(&self, uid: &str, life: &RemoteLife) -> Result<(), Error> {
        let layout = self.remote_folder(uid)?;
        let trials = fs::read_dir(layout.trials()).into_iter().flatten().flatten();
        let known: Vec<PathBuf> = std::iter::once(layout.folder().to_path_buf())
            .chain(trials.map(|entry| entry.path()))
            .collect();
        for folder in known {
            let below = folder.strip_prefix(layout.folder()).unwrap_or(&folder);
            let is_live = life.live.iter().any(|live| below == Path::new(live));
            let path = RunLayout::new(&folder).remote_live();
            let done = match is_live {
                true => fs::write(&path, ""),
                false => match fs::remove_file(&path) {
                    Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
                    other => other,
                },
            };
            done.map_err(Error::io(&path))?;
        }
        Ok(())
    }
}

fn read(layout: &RunLayout) -> Result<RemoteRecord, Error> {
    let path = layout.remote();
    let bytes = fs::read(&path).map_err(Error::io(&path))?;
    let wrong = |error| Error::Conflict(format!("{}: {error}", path.display()));
    serde_json::from_slice(&bytes).map_err(wrong)
}

fn keep(layout: &RunLayout, kept: &RemoteRecord) -> Result<(), Error> {
    let path = layout.remote();
    let bytes = serde_json::to_vec(kept).unwrap_or_default();
    replace(&path, &bytes, Durability::Synced).map_err(Error::io(&path))
}
