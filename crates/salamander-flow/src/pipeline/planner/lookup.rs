//! What a reference stands for while steps are prepared.

use std::collections::BTreeMap;
use std::path::PathBuf;

use salamander_core::yaml::nearest;
use serde_json::Value as Json;

use super::super::key::DIGEST;
use super::super::scope::parameter;
use super::super::spec::{Pipeline, PipelineStep};
use super::super::store::ArtifactManifest;
use super::super::template::{Known, Reference};
use super::{StepState, World};

/// What is known where a step is prepared.
#[derive(Clone)]
pub(super) struct Scope<'a> {
    pub(super) pipeline: &'a Pipeline,
    pub(super) world: &'a dyn World,
    pub(super) states: &'a BTreeMap<String, StepState>,
    pub(super) item: Option<Known>,
    /// Where the step writes, once that is known.
    pub(super) folder: Option<PathBuf>,
    pub(super) outs: Vec<(String, String)>,
    pub(super) inputs: Vec<(String, Known)>,
}

impl Scope<'_> {
    /// The value of a reference; the file was checked, so that only what steps leave can be missing.
    pub(super) fn find(&self, reference: &Reference) -> Result<Known, String> {
        let found = match reference.head() {
            "params" | "parameters" => parameter(&self.pipeline.parameters, reference)
                .map(|value| Known::plain(value.clone()))
                .map_err(|error| error.to_string()),
            "item" => match &self.item {
                Some(item) => below(item, &reference.path[1..]),
                None => Err("there is no item".to_string()),
            },
            "program" => self.world.program().map(|(path, digest)| Known {
                real: path.to_string_lossy().into_owned().into(),
                key: format!("{DIGEST}{digest}").into(),
            }),
            "in" => {
                let named = reference.path.get(1);
                let input = self.inputs.iter().find(|(name, _)| named.is_none_or(|n| n == name));
                input.map(|(_, known)| known.clone()).ok_or_else(|| "no such input".to_string())
            }
            "out" => self.out(reference),
            name => match (self.states.get(name), self.pipeline.step(name)) {
                (Some(StepState::Ready(manifests)), Some(step)) => {
                    output(step, manifests, reference)
                }
                _ => Err(format!("step {name} is not over")),
            },
        };
        found.map_err(|why| match why.starts_with("line ") {
            true => why,
            false => format!("{}: {}: {why}", reference.place, reference.text()),
        })
    }

    fn out(&self, reference: &Reference) -> Result<Known, String> {
        let named = reference.path.get(1);
        let (name, file) = self
            .outs
            .iter()
            .find(|(name, _)| named.is_none_or(|named| named == name))
            .ok_or_else(|| "no such output".to_string())?;
        let path = self.folder.as_ref().map(|folder| folder.join(file));
        let real = path.map(|path| path.to_string_lossy().into_owned()).unwrap_or_default();
        Ok(Known { real: real.into(), key: format!("out:{name}").into() })
    }
}

fn output(
    step: &PipelineStep,
    manifests: &[ArtifactManifest],
    reference: &Reference,
) -> Result<Known, String> {
    let each = |manifest: &ArtifactManifest| one_output(step, manifest, &reference.path[1..]);
    if step.for_each.is_none() {
        let manifest = manifests.first().ok_or_else(|| "it left nothing".to_string())?;
        return each(manifest);
    }
    let all: Vec<Known> = manifests.iter().map(each).collect::<Result<_, _>>()?;
    let (real, key) = all.into_iter().map(|known| (known.real, known.key)).unzip();
    Ok(Known { real: Json::Array(real), key: Json::Array(key) })
}

fn one_output(
    step: &PipelineStep,
    manifest: &ArtifactManifest,
    path: &[String],
) -> Result<Known, String> {
    let name = match path.first() {
        Some(name) => step.own_name(name),
        None => step.main_output().ok_or_else(|| "it leaves no file".to_string())?,
    };
    if let Some(output) = manifest.outputs.get(name) {
        let path = manifest.folder.join(&output.path);
        return Ok(Known {
            real: path.to_string_lossy().into_owned().into(),
            key: format!("{DIGEST}{}", output.digest).into(),
        });
    }
    match manifest.values.get(name) {
        Some(value) => below(&Known::plain(value.clone()), path.get(1..).unwrap_or_default()),
        None => {
            let names = manifest.outputs.keys().chain(manifest.values.keys());
            let hint = match nearest(name, names.map(String::as_str)) {
                Some(near) => format!(" (did you mean \"{near}\"?)"),
                None => String::new(),
            };
            Err(format!("step {} has left no \"{name}\"{hint}", step.name))
        }
    }
}

/// A part of a value.
fn below(known: &Known, path: &[String]) -> Result<Known, String> {
    let mut known = known.clone();
    for part in path {
        let get = |value: &Json| match (value, part.parse::<usize>()) {
            (Json::Array(items), Ok(at)) => items.get(at).cloned(),
            _ => value.get(part).cloned(),
        };
        match (get(&known.real), get(&known.key)) {
            (Some(real), Some(key)) => known = Known { real, key },
            _ => return Err(format!("there is no \"{part}\" in it")),
        }
    }
    Ok(known)
}
