//! The planner: what is known of the steps in, decisions with reasons out. It reads no file and knows no time; the
//! run, the dry run and a single step ask it, and so take the same decisions.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde_json::{Map, Value as Json};

use super::key::{Components, Key, changes, is_digest};
use super::kind::{FieldKind, StepKind};
use super::spec::{Pipeline, PipelineStep};
use super::store::{Artifact, ArtifactManifest};
use super::template::{Known, Quoting, Reference, Template};

mod lookup;

use lookup::Scope;

/// What the planner asks of the world.
pub trait World {
    /// The hash of what is at a path, a pattern or an address.
    fn digest(&self, place: &str) -> Result<String, String>;
    /// The data that an experiment names, each with a label.
    fn experiment(&self, file: &Path, sets: &[String]) -> Result<Vec<(String, String)>, String>;
    /// This program and its hash.
    fn program(&self) -> Result<(PathBuf, String), String>;
    /// What is kept under a key.
    fn artifact(&self, key: &Key) -> Artifact;
    /// What decided about a step when it was done last.
    fn record(&self, instance: &str) -> Option<Components>;
    /// Where the step with this key writes.
    fn folder(&self, key: &Key) -> PathBuf;
}

/// What has become of steps since the run began, by instance.
#[derive(Debug, Default)]
pub struct PipelineProgress {
    pub(crate) outcomes: BTreeMap<String, StepOutcome>,
    /// The only step, or the only one of a fan-out, that is meant.
    pub(crate) only: Option<String>,
}

impl PipelineProgress {
    pub(crate) fn is_meant(&self, step: &str, instance: &str) -> bool {
        self.only.as_deref().is_none_or(|only| only == step || only == instance)
    }
}

/// What has become of one.
#[derive(Clone, Debug)]
pub(crate) enum StepOutcome {
    Running(Key),
    Done(Box<ArtifactManifest>),
    Failed,
}

/// What is to be done about a step, or about one of a fan-out.
#[derive(Clone, Debug)]
pub enum Decision {
    /// It is due.
    Run(Box<Due>),
    /// Its artifact is there.
    Unchanged(Box<ArtifactManifest>, Box<Components>),
    /// It has run in this run.
    Done(Box<ArtifactManifest>),
    /// It runs.
    Running,
    /// It waits for others.
    Wait,
    /// Its condition does not hold, or it needs a step that was skipped.
    Skip,
    /// It has failed.
    Failed,
    /// It needs one that has failed.
    Blocked,
    /// It cannot be begun.
    Refused,
}

/// A decision and its reason.
#[derive(Clone, Debug)]
pub struct Status {
    /// The step.
    pub step: String,
    /// The step, or one of a fan-out: `fit[2]`.
    pub instance: String,
    /// What is to be done.
    pub decision: Decision,
    /// Why.
    pub why: String,
}

/// A step that is due, with all that is needed to carry it out.
#[derive(Clone, Debug)]
pub struct Due {
    pub(crate) step: String,
    pub(crate) instance: String,
    pub(crate) kind: &'static StepKind,
    /// What names what it will leave.
    pub key: Key,
    /// What the key is made of.
    pub components: Components,
    /// The fields as a command gets them.
    pub(crate) fields: Json,
}

/// What a step's dependents can know of it.
pub(crate) enum StepState {
    Ready(Vec<ArtifactManifest>),
    Later,
    Skipped,
    Failed,
}

/// Looks at every step.
pub fn look(pipeline: &Pipeline, world: &dyn World, progress: &PipelineProgress) -> Vec<Status> {
    let mut states = BTreeMap::new();
    let mut statuses = Vec::new();
    let running = progress.outcomes.values().filter_map(|outcome| match outcome {
        StepOutcome::Running(key) => Some(key.clone()),
        _ => None,
    });
    let mut busy: BTreeSet<Key> = running.collect();
    for step in &pipeline.steps {
        let look = Look { pipeline, world, progress, states: &states };
        let found = look.step(step, &mut busy);
        states.insert(step.name.clone(), state_of(step, &found));
        statuses.extend(found);
    }
    statuses
}

/// What others can know of a step, from what is to be done about its instances.
fn state_of(step: &PipelineStep, statuses: &[Status]) -> StepState {
    let mut manifests = Vec::new();
    let (mut later, mut skipped) = (false, false);
    for status in statuses {
        match &status.decision {
            Decision::Unchanged(manifest, _) | Decision::Done(manifest) => {
                manifests.push((**manifest).clone());
            }
            Decision::Failed | Decision::Blocked | Decision::Refused => return StepState::Failed,
            // One item of a list that is left out leaves the others.
            Decision::Skip => skipped = step.for_each.is_none() || status.instance == step.name,
            Decision::Run(_) | Decision::Running | Decision::Wait => later = true,
        }
    }
    match (skipped, later) {
        (true, _) => StepState::Skipped,
        (false, true) => StepState::Later,
        (false, false) => StepState::Ready(manifests),
    }
}

struct Look<'a> {
    pipeline: &'a Pipeline,
    world: &'a dyn World,
    progress: &'a PipelineProgress,
    states: &'a BTreeMap<String, StepState>,
}

impl Look<'_> {
    fn step(&self, step: &PipelineStep, busy: &mut BTreeSet<Key>) -> Vec<Status> {
        if let Some((decision, why)) = self.dependencies(step) {
            return vec![status(step, None, decision, why)];
        }
        let items = match self.items(step) {
            Ok(items) => items,
            Err((decision, why)) => return vec![status(step, None, decision, why)],
        };
        let one = |(at, item): (usize, Option<Known>)| {
            let number = step.for_each.is_some().then_some(at);
            self.instance(step, number, item, busy)
        };
        items.into_iter().enumerate().map(one).collect()
    }

    /// What those that it needs say about a step, unless all of them are over.
    fn dependencies(&self, step: &PipelineStep) -> Option<(Decision, String)> {
        let of = |wanted: fn(&StepState) -> bool| -> Vec<&str> {
            let states = step.after.iter().filter_map(|name| Some((name, self.states.get(name)?)));
            states.filter(|(_, state)| wanted(state)).map(|(name, _)| name.as_str()).collect()
        };
        if let Some(name) = of(|state| matches!(state, StepState::Failed)).first() {
            return Some((Decision::Blocked, format!("{name} failed")));
        }
        if let Some(name) = of(|state| matches!(state, StepState::Skipped)).first() {
            return Some((Decision::Skip, format!("{name} was skipped")));
        }
        let later = of(|state| matches!(state, StepState::Later));
        (!later.is_empty()).then(|| (Decision::Wait, format!("after {}", later.join(", "))))
    }

    /// What a step is done for: once, or once for each item; unless its condition forbids it.
    fn items(&self, step: &PipelineStep) -> Result<Vec<Option<Known>>, (Decision, String)> {
        let refused = |why: String| (Decision::Refused, why);
        let scope = self.scope(step, None);
        if !uses_item(step) {
            self.condition(step, &scope)?;
        }
        let Some(template) = &step.for_each else { return Ok(vec![None]) };
        let list =
            template.render(Quoting::Plain, &|reference| scope.find(reference)).map_err(refused)?;
        let (Json::Array(real), Json::Array(key)) = (list.real, list.key) else {
            return Err(refused("for_each: not a list".to_string()));
        };
        Ok(real.into_iter().zip(key).map(|(real, key)| Some(Known { real, key })).collect())
    }

    fn condition(&self, step: &PipelineStep, scope: &Scope<'_>) -> Result<(), (Decision, String)> {
        let Some(condition) = &step.when else { return Ok(()) };
        match condition.judge(&|reference| scope.find(reference)) {
            Ok(verdict) if verdict.holds => Ok(()),
            Ok(verdict) => Err((Decision::Skip, format!("when: {}", verdict.because))),
            Err(error) => Err((Decision::Refused, format!("when: {error}"))),
        }
    }

    fn instance(
        &self,
        step: &PipelineStep,
        number: Option<usize>,
        item: Option<Known>,
        busy: &mut BTreeSet<Key>,
    ) -> Status {
        let name = instance_name(step, number);
        let told = |decision, why: &str| status(step, number, decision, why.to_string());
        match self.progress.outcomes.get(&name) {
            Some(StepOutcome::Running(_)) => return told(Decision::Running, "runs"),
            Some(StepOutcome::Done(manifest)) => {
                return told(Decision::Done(manifest.clone()), "done");
            }
            Some(StepOutcome::Failed) => return told(Decision::Failed, "failed"),
            None => {}
        }
        let scope = self.scope(step, item);
        if uses_item(step)
            && let Err((decision, why)) = self.condition(step, &scope)
        {
            return told(decision, &why);
        }
        let due = match self.prepare(step, &name, &scope) {
            Ok(due) => due,
            Err(why) => return told(Decision::Refused, &why),
        };
        if busy.contains(&due.key) {
            return told(Decision::Wait, "another step does just the same");
        }
        let why = match self.world.artifact(&due.key) {
            Artifact::Whole(manifest) => {
                let decision = Decision::Unchanged(manifest, Box::new(due.components));
                return told(decision, "nothing changed");
            }
            Artifact::Damaged(what) => format!("its artifact was changed: {what}"),
            Artifact::Absent => match self.world.record(&name) {
                None => "it has not run yet".to_string(),
                Some(before) if before == due.components => "its artifact is gone".to_string(),
                Some(before) => changes(&before, &due.components),
            },
        };
        if self.progress.is_meant(&step.name, &name) {
            busy.insert(due.key.clone());
        }
        told(Decision::Run(Box::new(due)), &why)
    }

    fn scope(&self, step: &PipelineStep, item: Option<Known>) -> Scope<'_> {
        let (folder, outs) = (None, step.outs.clone());
        Scope {
            pipeline: self.pipeline,
            world: self.world,
            states: self.states,
            item,
            folder,
            outs,
            inputs: Vec::new(),
        }
    }

    /// Everything that is needed to carry a step out.
    fn prepare(&self, step: &PipelineStep, name: &str, scope: &Scope<'_>) -> Result<Due, String> {
        let mut scope = scope.clone();
        scope.inputs = rendered(&step.inputs, &scope, |_| Quoting::Plain)?;
        let quoting = |template: &Template| match (step.kind.is_shell(), template) {
            (true, Template::List(_)) | (false, _) => Quoting::Plain,
            (true, _) => Quoting::Shell,
        };
        let fields = rendered(&step.fields, &scope, quoting)?;
        let mut contents = self.contents(step, &fields)?;
        for (label, input) in &scope.inputs {
            self.files(&format!("in.{label}"), input, &mut contents)?;
        }
        let uses_program = step
            .fields
            .iter()
            .flat_map(|(_, template)| template.references())
            .any(|reference| reference.head() == "program");
        let program = match !step.kind.is_shell() || uses_program {
            true => Some(self.world.program()?.1),
            false => None,
        };
        let mut key_fields: Map<String, Json> =
            fields.iter().map(|(name, known)| (name.clone(), known.key.clone())).collect();
        if !scope.inputs.is_empty() {
            let inputs = scope.inputs.iter();
            let inputs = inputs.map(|(name, known)| (name.clone(), known.key.clone()));
            key_fields.insert("in".into(), Json::Object(inputs.collect()));
        }
        if step.kind.is_shell() {
            let outs = step.outs.iter().map(|(name, file)| (name.clone(), file.as_str().into()));
            key_fields.insert("out".into(), Json::Object(outs.collect()));
            key_fields.insert("values".into(), step.values.clone().into());
        }
        let components = Components {
            kind: step.kind.name.to_string(),
            fields: key_fields.into(),
            inputs: contents,
            program,
        };
        let key = components.key();
        // Where it writes is named by the key, so that it is known only now.
        scope.folder = Some(self.world.folder(&key));
        let fields = rendered(&step.fields, &scope, quoting)?;
        let fields = fields.into_iter().map(|(name, known)| (name, known.real)).collect();
        let (step, instance, kind) = (step.name.clone(), name.to_string(), step.kind);
        Ok(Due { step, instance, kind, key, components, fields: Json::Object(fields) })
    }

    /// The contents of the files that a step's fields name.
    fn contents(
        &self,
        step: &PipelineStep,
        fields: &[(String, Known)],
    ) -> Result<BTreeMap<String, String>, String> {
        let mut contents = BTreeMap::new();
        for (name, known) in fields {
            match step.kind.field(name) {
                Some(FieldKind::Source) if is_address(&known.real) => {}
                Some(FieldKind::Files | FieldKind::Source | FieldKind::Model) => {
                    self.files(name, known, &mut contents)?
                }
                Some(FieldKind::Experiment) => {
                    self.files(name, known, &mut contents)?;
                    let file = self.pipeline.folder.join(known.real.as_str().unwrap_or_default());
                    let sets = super::command::sets(fields.iter().find(|(name, _)| name == "set"));
                    for (label, place) in self.world.experiment(&file, &sets)? {
                        contents.insert(label, self.world.digest(&place)?);
                    }
                }
                _ => {}
            }
        }
        Ok(contents)
    }

    /// The contents of files that are named by place; of others the key has the content already.
    fn files(
        &self,
        label: &str,
        known: &Known,
        contents: &mut BTreeMap<String, String>,
    ) -> Result<(), String> {
        match (&known.real, &known.key) {
            (Json::Array(reals), Json::Array(keys)) => {
                for (real, key) in reals.iter().zip(keys) {
                    let known = Known { real: real.clone(), key: key.clone() };
                    self.files(label, &known, contents)?;
                }
                Ok(())
            }
            (Json::String(_), Json::String(key)) if is_digest(key) => Ok(()),
            (Json::String(place), _) => {
                let whole = match place.contains("://") {
                    true => place.clone(),
                    false => self.pipeline.folder.join(place).to_string_lossy().into_owned(),
                };
                let digest = self.world.digest(&whole);
                contents.insert(place.clone(), digest.map_err(|why| format!("{label}: {why}"))?);
                Ok(())
            }
            (other, _) => Err(format!("{label}: {other} is no file or folder")),
        }
    }
}

fn rendered(
    templates: &[(String, Template)],
    scope: &Scope<'_>,
    quoting: impl Fn(&Template) -> Quoting,
) -> Result<Vec<(String, Known)>, String> {
    let one = |(name, template): &(String, Template)| {
        let find = |reference: &Reference| scope.find(reference);
        Ok((name.clone(), template.render(quoting(template), &find)?))
    };
    templates.iter().map(one).collect()
}

/// Of an address that files are below, the key has the text.
fn is_address(value: &Json) -> bool {
    value.as_str().is_some_and(|text| text.contains("://"))
}

fn uses_item(step: &PipelineStep) -> bool {
    let references = step.when.iter().flat_map(|condition| condition.references());
    references.into_iter().any(|reference| reference.head() == "item")
}

fn instance_name(step: &PipelineStep, number: Option<usize>) -> String {
    number.map_or(step.name.clone(), |number| format!("{}[{number}]", step.name))
}

fn status(step: &PipelineStep, number: Option<usize>, decision: Decision, why: String) -> Status {
    Status { step: step.name.clone(), instance: instance_name(step, number), decision, why }
}

#[cfg(test)]
mod tests;
