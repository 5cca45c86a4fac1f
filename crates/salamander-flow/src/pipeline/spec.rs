//! A pipeline as its file says it, checked: every reference names something, and there is an order.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use salamander_core::yaml::{Error, SourcePosition};
use serde_json::Value as Json;

use super::condition::Condition;
use super::kind::{Leaves, StepKind};
use super::template::Template;

/// A pipeline.
#[derive(Debug)]
pub struct Pipeline {
    pub(crate) name: String,
    pub(crate) file: PathBuf,
    /// What relative paths are relative to.
    pub(crate) folder: PathBuf,
    pub(crate) parameters: Json,
    pub(crate) parallel: Option<usize>,
    /// In an order in which each comes after what it needs.
    pub(crate) steps: Vec<PipelineStep>,
}

/// A step.
#[derive(Debug)]
pub struct PipelineStep {
    pub(crate) name: String,
    pub(crate) place: SourcePosition,
    pub(crate) kind: &'static StepKind,
    /// By name, the one that tells the kind first.
    pub(crate) fields: Vec<(String, Template)>,
    pub(crate) inputs: Vec<(String, Template)>,
    /// Files that a command of the user's own writes, by name; or the main output's other name.
    pub(crate) outs: Vec<(String, String)>,
    /// Values in the last line of what a command of the user's own prints.
    pub(crate) values: Vec<String>,
    pub(crate) needs: Vec<String>,
    pub(crate) when: Option<Condition>,
    pub(crate) for_each: Option<Template>,
    pub(crate) retries: u32,
    pub(crate) backoff: Duration,
    pub(crate) timeout: Option<Duration>,
    /// All steps that must be over first.
    pub(crate) after: BTreeSet<String>,
}

impl Pipeline {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its file.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// How many steps it would run at a time, if it says so.
    pub fn parallel(&self) -> Option<usize> {
        self.parallel
    }

    /// Its steps, each after those that it needs.
    pub fn steps(&self) -> &[PipelineStep] {
        &self.steps
    }

    /// A step by its name.
    pub fn step(&self, name: &str) -> Option<&PipelineStep> {
        self.steps.iter().find(|step| step.name == name)
    }

    pub(crate) fn hint(&self, name: &str) -> String {
        let names: Vec<&str> = self.steps.iter().map(|step| step.name.as_str()).collect();
        super::scope::hint(name, &names)
    }
}

impl PipelineStep {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it does.
    pub fn kind(&self) -> &'static StepKind {
        self.kind
    }

    /// The steps that must be over first.
    pub fn after(&self) -> impl Iterator<Item = &str> {
        self.after.iter().map(String::as_str)
    }

    /// Whether it is done once for each of a list.
    pub fn is_fan_out(&self) -> bool {
        self.for_each.is_some()
    }

    /// The output that is meant where the step is named alone: a file or folder.
    pub(crate) fn main_output(&self) -> Option<&str> {
        if self.kind.is_shell() {
            return match self.outs.as_slice() {
                [(name, _)] => Some(name),
                _ => None,
            };
        }
        let (name, leaves) = self.kind.outputs.first()?;
        matches!(leaves, Leaves::File(_) | Leaves::Named(_)).then_some(name)
    }

    /// The name by which the kind knows an output.
    pub(crate) fn own_name<'a>(&'a self, name: &'a str) -> &'a str {
        let renamed = !self.kind.is_shell() && self.outs.iter().any(|(other, _)| other == name);
        if renamed { self.main_output().unwrap_or(name) } else { name }
    }
}

/// Puts each step after those that it needs, otherwise in the order of the file.
pub(crate) fn ordered(mut steps: Vec<PipelineStep>) -> Result<Vec<PipelineStep>, Error> {
    let mut ordered: Vec<PipelineStep> = Vec::with_capacity(steps.len());
    while !steps.is_empty() {
        let is_done = |name: &String| ordered.iter().any(|step| step.name == *name);
        let Some(at) = steps.iter().position(|step| step.after.iter().all(is_done)) else {
            return Err(circle(&steps));
        };
        ordered.push(steps.remove(at));
    }
    Ok(ordered)
}

/// Names the steps that wait for each other.
fn circle(steps: &[PipelineStep]) -> Error {
    let mut path: Vec<&PipelineStep> = vec![&steps[0]];
    loop {
        let last = path[path.len() - 1];
        // Each of these waits for another of these, or it would have been taken.
        let Some(next) = steps.iter().find(|step| last.after.contains(&step.name)) else {
            return Error::at(&last.place, "steps wait for each other");
        };
        if let Some(start) = path.iter().position(|step| step.name == next.name) {
            let names: Vec<&str> =
                path[start..].iter().chain([&next]).map(|step| step.name.as_str()).collect();
            let message = format!("steps wait for each other: {}", names.join(" <- "));
            return Error::at(&next.place, message);
        }
        path.push(next);
    }
}
