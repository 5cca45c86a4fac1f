//! What a step has left: files with their hashes, and values of the JSON that it ended with.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use salamander_core::layout::{ASSETS, CHECKPOINTS, COUNTED};
use serde_json::Value as Json;

use super::digest::{Digester, Writers, files_below};
use super::kind::Leaves;
use super::planner::Due;
use super::spec::PipelineStep;
use super::store::StepOutput;

/// What makes a run what it is; logs, times and caches beside it do not.
const LEARNED: [&str; 2] = [CHECKPOINTS, ASSETS];

/// Everything that a step has left.
#[derive(Debug, Default)]
pub(crate) struct Left {
    pub(crate) outputs: BTreeMap<String, StepOutput>,
    pub(crate) values: BTreeMap<String, Json>,
    pub(crate) files: BTreeMap<String, String>,
}

/// Where a step has written, and what it printed.
pub(crate) struct StepFiles<'a> {
    pub(crate) step: &'a PipelineStep,
    pub(crate) due: &'a Due,
    /// Where it has written,
    pub(crate) folder: &'a Path,
    /// and where that will be.
    pub(crate) artifact: &'a Path,
    pub(crate) json: Json,
    pub(crate) digester: &'a Digester,
}

impl StepFiles<'_> {
    /// Looks at all of it; what a step must leave and has not is told.
    pub(crate) fn collect(&self) -> Result<Left, String> {
        let mut left = Left::default();
        if self.due.kind.is_shell() {
            self.own(&mut left)?;
        } else {
            self.of_kind(&mut left)?;
        }
        Ok(left)
    }

    fn own(&self, left: &mut Left) -> Result<(), String> {
        for (name, file) in &self.step.outs {
            if !self.folder.join(file).exists() {
                return Err(format!("it ended well but has not written {file} (${{out.{name}}})"));
            }
            self.add(name, Path::new(file), false, left)?;
        }
        for name in &self.step.values {
            let value = self.json.get(name).ok_or_else(|| {
                format!("the last line that it printed is no JSON object with \"{name}\"")
            })?;
            left.values.insert(name.clone(), value.clone());
        }
        Ok(())
    }

    fn of_kind(&self, left: &mut Left) -> Result<(), String> {
        let kind = self.due.kind;
        if let Some(Json::Object(metrics)) = kind.metrics.and_then(|at| self.json.pointer(at)) {
            left.values.extend(metrics.clone());
        }
        for (name, leaves) in kind.outputs {
            match leaves {
                Leaves::File(place) => {
                    let place = kind.place(place, &self.due.fields);
                    if self.folder.join(&place).exists() {
                        self.add(name, Path::new(&place), false, left)?;
                    }
                }
                Leaves::FirstOf(names) => {
                    let found = names.iter().find(|name| self.folder.join(name).exists());
                    if let Some(place) = found {
                        self.add(name, Path::new(place), false, left)?;
                    }
                }
                Leaves::Named(at) => {
                    if let Some(place) = self.named(at)? {
                        self.add(name, &place, true, left)?;
                    }
                }
                Leaves::Within(at, file) => {
                    let place = self.named(at)?.map(|place| place.join(file));
                    if let Some(place) = place.filter(|place| self.folder.join(place).exists()) {
                        self.add(name, &place, false, left)?;
                    }
                }
                Leaves::Number(at) | Leaves::Value(at) => {
                    if let Some(value) = self.json.pointer(at).filter(|value| !value.is_null()) {
                        left.values.insert(name.to_string(), self.moved(value));
                    }
                }
            }
        }
        let main = self.step.main_output();
        match main.filter(|main| !left.outputs.contains_key(*main)) {
            Some(main) => Err(format!("it ended well but has left no {main}")),
            None => Ok(()),
        }
    }

    /// A place below the step's folder that the JSON names.
    fn named(&self, at: &str) -> Result<Option<PathBuf>, String> {
        let Some(text) = self.json.pointer(at).and_then(Json::as_str) else { return Ok(None) };
        let place = Path::new(text).strip_prefix(self.folder);
        let place = place.map_err(|_| format!("it has written to {text}, not to its folder"))?;
        Ok(Some(place.to_path_buf()))
    }

    /// Adds a file or folder; of a run only what was learned counts.
    fn add(&self, name: &str, place: &Path, is_run: bool, left: &mut Left) -> Result<(), String> {
        let whole = self.folder.join(place);
        let wrong = |error: io::Error| format!("{}: {error}", whole.display());
        let mut digests = Vec::new();
        if whole.is_dir() {
            for file in files_below(&whole).map_err(wrong)? {
                if is_run && !is_learned(place, &file) {
                    continue;
                }
                let digest = self.hash(&place.join(&file), left).map_err(wrong)?;
                digests.push(if is_run { digest } else { format!("{}\0{digest}", file.display()) });
            }
            // Folders of checkpoints may be named by what happened on the way.
            digests.sort();
        } else {
            digests.push(self.hash(place, left).map_err(wrong)?);
        }
        let digest = match digests.as_slice() {
            [digest] if !whole.is_dir() => digest.clone(),
            digests => blake3::hash(digests.join("\n").as_bytes()).to_hex().to_string(),
        };
        let path = place.to_string_lossy().into_owned();
        left.outputs.insert(name.to_string(), StepOutput { path, digest });
        Ok(())
    }

    fn hash(&self, place: &Path, left: &mut Left) -> io::Result<String> {
        let name = place.to_string_lossy().into_owned();
        if let Some(digest) = left.files.get(&name) {
            return Ok(digest.clone());
        }
        let digest = self.digester.file(&self.folder.join(place), Writers::Anybody)?;
        left.files.insert(name, digest.clone());
        Ok(digest)
    }

    /// A value whose paths are those of the artifact.
    fn moved(&self, value: &Json) -> Json {
        match value {
            Json::String(text) => match Path::new(text).strip_prefix(self.folder) {
                Ok(place) => self.artifact.join(place).to_string_lossy().into_owned().into(),
                Err(_) => value.clone(),
            },
            Json::Array(items) => items.iter().map(|item| self.moved(item)).collect(),
            Json::Object(map) => {
                let moved = map.iter().map(|(name, value)| (name.clone(), self.moved(value)));
                Json::Object(moved.collect())
            }
            _ => value.clone(),
        }
    }
}

/// Whether a file of a run, or of one of its checkpoints, holds something that was learned.
fn is_learned(place: &Path, file: &Path) -> bool {
    let within = |part: &str| {
        place.components().chain(file.components()).any(|found| found.as_os_str() == part)
    };
    let listed = file.extension().is_some_and(|ending| ending == "json" || ending == "yaml");
    let counted = file.file_name().is_some_and(|name| name == COUNTED);
    LEARNED.into_iter().any(within) && !counted && (!listed || within(ASSETS))
}
