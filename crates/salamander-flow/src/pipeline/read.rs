//! From YAML to a pipeline: what is wrong is told with its line and the nearest name.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use salamander_core::yaml::{self, Key, Node, SourcePosition, Value};
use serde_json::Value as Json;

use super::Error;
use super::condition::Condition;
use super::duration;
use super::kind::{FieldKind, KINDS, StepKind};
use super::scope::{PipelineNames, RESERVED, hint};
use super::spec::{Pipeline, PipelineStep, ordered};
use super::template::{Reference, Template, mark};

/// How long to wait before a second attempt, unless a step says it.
const BACKOFF: Duration = Duration::from_secs(5);
const MOST_RETRIES: i64 = 100;

/// Fields that steps of all kinds have.
const SHARED: [&str; 8] =
    ["in", "out", "needs", "when", "for_each", "retries", "backoff", "timeout"];
/// A field of steps with a command of the user's own.
const VALUES: &str = "values";
const TOP: [&str; 4] = ["name", "parameters", "parallel", "steps"];

/// The text of a pipeline file.
#[derive(Clone, Debug)]
pub struct PipelineText {
    file: PathBuf,
    folder: PathBuf,
    text: String,
}

impl PipelineText {
    /// Reads a file.
    pub fn of_file(file: &Path) -> Result<Self, Error> {
        let text = fs::read_to_string(file).map_err(Error::io(file))?;
        let whole = fs::canonicalize(file).map_err(Error::io(file))?;
        let folder = whole.parent().unwrap_or(Path::new("/")).to_path_buf();
        Ok(Self { file: file.to_path_buf(), folder, text })
    }

    /// A text that would have this name, with paths as they are.
    pub fn of_text(file: impl Into<PathBuf>, text: &str) -> Self {
        Self { file: file.into(), folder: PathBuf::new(), text: text.to_string() }
    }
}

impl Pipeline {
    /// Reads and checks a pipeline. `sets` are parameters as `--set` has them: `epochs=5`.
    pub fn read(source: &PipelineText, sets: &[String]) -> Result<Self, Error> {
        let file = || source.file.clone();
        read(source, sets).map_err(|error| Error::File { file: file(), error })
    }
}

fn read(source: &PipelineText, sets: &[String]) -> Result<Pipeline, yaml::Error> {
    let root = yaml::parse(&mark(&source.text))?;
    known(&root, &TOP)?;
    let stem = source.file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let name = match root.get("name") {
        Some(node) => text(node).map_err(|error| error.within("name"))?.to_string(),
        None => stem,
    };
    // Its folder has that name, too.
    if name.is_empty() || name.starts_with('.') || name.contains('/') {
        let place = root.get("name").map_or(SourcePosition::Line(1), |node| node.place.clone());
        let error = yaml::Error::at(&place, "a name has no / and does not begin with a dot");
        return Err(error.within("name"));
    }
    let parameters = parameters(root.get("parameters"), sets)?;
    let parallel = match root.get("parallel") {
        None => None,
        Some(node) => Some(whole(node, 1..=1024).map_err(|e| e.within("parallel"))? as usize),
    };
    let nodes = root.get("steps").map(Node::entries).unwrap_or_default();
    if nodes.is_empty() {
        let place = root.get("steps").map_or(SourcePosition::Line(1), |node| node.place.clone());
        return Err(yaml::Error::at(&place, "a pipeline needs steps: write steps: {NAME: {..}}"));
    }
    let mut steps = Vec::new();
    for (key, node) in nodes {
        steps.push(step(key, node).map_err(|error| error.or_at(&key.place).within(&key.name))?);
    }
    for at in 0..steps.len() {
        let names = PipelineNames { parameters: &parameters, steps: &steps };
        names.check(&steps[at])?;
        check_needs(&steps[at], &steps)?;
        let after = dependencies(&steps[at]);
        steps[at].after = after;
    }
    let steps = ordered(steps)?;
    let (file, folder) = (source.file.clone(), source.folder.clone());
    Ok(Pipeline { name, file, folder, parameters, parallel, steps })
}

/// The parameters of the file, with those that are set.
fn parameters(node: Option<&Node>, sets: &[String]) -> Result<Json, yaml::Error> {
    let mut root = node.cloned().unwrap_or_else(Node::empty_map);
    if root.value == Value::Null {
        root = Node::empty_map();
    }
    if !matches!(root.value, Value::Map(_)) {
        let advice = "write parameters: {name: value}";
        return Err(yaml::Error::at(&root.place, advice));
    }
    for set in sets {
        let place = SourcePosition::Argument(format!("--set {set}"));
        let name = set.split(['=', '.']).next().unwrap_or_default();
        let names: Vec<&str> = root.entries().iter().map(|(key, _)| key.name.as_str()).collect();
        if set.contains('=') && !names.contains(&name) {
            let message = format!("no parameter \"{name}\"{}", hint(name, &names));
            return Err(yaml::Error::at(&place, message));
        }
        root.set(set)?;
    }
    let template = Template::read(&root)?;
    if let Some(reference) = template.references().first() {
        return Err(reference.wrong("a parameter refers to nothing").within("parameters"));
    }
    // As templates are read, so that `$${HOME}` is the same everywhere.
    let plain = |_: &Reference| -> Result<_, yaml::Error> { Err(yaml::Error::anywhere("")) };
    template.render(super::template::Quoting::Plain, &plain).map(|known| known.real)
}

fn step(key: &Key, node: &Node) -> Result<PipelineStep, yaml::Error> {
    name_of_step(key)?;
    let Value::Map(entries) = &node.value else {
        let kinds: Vec<&str> = KINDS.iter().map(|kind| kind.name).collect();
        let message = format!("write what it does: {{KIND: ..}} with one of {}", kinds.join(", "));
        return Err(yaml::Error::at(&node.place, message));
    };
    let kind = kind_of(key, entries)?;
    let mut step = PipelineStep {
        name: key.name.clone(),
        place: key.place.clone(),
        kind,
        fields: Vec::new(),
        inputs: Vec::new(),
        outs: Vec::new(),
        values: Vec::new(),
        needs: Vec::new(),
        when: None,
        for_each: None,
        retries: 0,
        backoff: BACKOFF,
        timeout: None,
        after: BTreeSet::new(),
    };
    for (field, node) in entries {
        let read = entry(&mut step, field, node);
        read.map_err(|error| match kind.field(&field.name).is_some() || is_shared(&field.name) {
            true => error.or_at(&node.place).within(&field.name),
            false => error.or_at(&field.place),
        })?;
    }
    // The one that tells the kind comes first in a command.
    step.fields.sort_by_key(|(name, _)| name != kind.name);
    Ok(step)
}

fn is_shared(name: &str) -> bool {
    SHARED.contains(&name) || name == VALUES
}

fn name_of_step(key: &Key) -> Result<(), yaml::Error> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "_-".contains(c);
    let good = key.name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && key.name.chars().all(fits)
        && key.name.len() <= 50;
    if RESERVED.contains(&key.name.as_str()) {
        return Err(yaml::Error::at(&key.place, "this name has a meaning of its own"));
    }
    match good {
        true => Ok(()),
        false => {
            let advice = "a step's name has letters, digits, - and _, and begins with a letter";
            Err(yaml::Error::at(&key.place, advice))
        }
    }
}

/// What a step does is told by the one field that names a kind.
fn kind_of(key: &Key, entries: &[(Key, Node)]) -> Result<&'static StepKind, yaml::Error> {
    let told: Vec<&'static StepKind> =
        entries.iter().filter_map(|(field, _)| StepKind::named(&field.name)).collect();
    // A field of one kind may be the name of another: a flow has a `split`.
    let has_all = |kind: &StepKind| told.iter().all(|other| kind.field(other.name).is_some());
    if let Some(kind) = told.iter().copied().find(|kind| has_all(kind)) {
        return Ok(kind);
    }
    match told.as_slice() {
        [kind] => Ok(kind),
        [] => {
            let kinds: Vec<&str> = KINDS.iter().map(|kind| kind.name).collect();
            // A misspelt kind is most likely the field that is no other.
            let stray = entries.iter().find(|(field, _)| !is_shared(&field.name));
            let (place, hint) = match stray {
                Some((field, _)) => (&field.place, hint(&field.name, &kinds)),
                None => (&key.place, format!(" (known: {})", kinds.join(", "))),
            };
            let stray = stray.map_or(String::new(), |(field, _)| format!(" \"{}\"", field.name));
            Err(yaml::Error::at(place, format!("no kind of step{stray}{hint}")))
        }
        [one, other, ..] => {
            let message = format!("a step does one thing, not {} and {}", one.name, other.name);
            Err(yaml::Error::at(&key.place, message))
        }
    }
}

fn entry(step: &mut PipelineStep, key: &Key, node: &Node) -> Result<(), yaml::Error> {
    let kind = step.kind;
    match key.name.as_str() {
        "in" if kind.field("in").is_none() => step.inputs = inputs(node)?,
        "out" => step.outs = outs(node, kind)?,
        VALUES if kind.is_shell() => step.values = names(node)?,
        "needs" => step.needs = names(node)?,
        "when" => step.when = Some(Condition::read(node)?),
        "for_each" => {
            let template = Template::read(node)?;
            if matches!(template, Template::Plain(_) | Template::Map(_)) {
                return Err(yaml::Error::at(&node.place, "write a list, or ${..} of one"));
            }
            step.for_each = Some(template);
        }
        "retries" => step.retries = whole(node, 0..=MOST_RETRIES)? as u32,
        "backoff" => step.backoff = duration::read(node)?,
        "timeout" => step.timeout = Some(duration::read(node)?),
        name => match kind.field(name) {
            Some(field) => {
                literal(field, node)?;
                step.fields.push((name.to_string(), Template::read(node)?));
            }
            None => {
                let values = kind.is_shell().then_some(VALUES);
                let own = kind.fields.iter().map(|(name, _)| *name).chain(values);
                let all = std::iter::once(kind.name).chain(own).chain(SHARED);
                return Err(yaml::Error::unknown_field(name, all));
            }
        },
    }
    Ok(())
}

/// What is written in a field must be of its type; references are checked when all steps are known.
fn literal(field: FieldKind, node: &Node) -> Result<(), yaml::Error> {
    let is_text = matches!(&node.value, Value::Text(_));
    let has_reference = matches!(&node.value, Value::Text(text) if text.contains('\u{E000}'));
    let (fits, wanted) = match field {
        FieldKind::Number => (matches!(node.value, Value::Int(_) | Value::Float(_)), "a number"),
        FieldKind::Flag => (matches!(node.value, Value::Bool(_)), "true or false"),
        FieldKind::Sets => (matches!(node.value, Value::Map(_)), "fields: {a.b: value}"),
        FieldKind::Files => (is_text || matches!(node.value, Value::List(_)), "a file, or a list"),
        FieldKind::Source => (is_text, "a folder or an address"),
        FieldKind::Experiment => (is_text, "an experiment file"),
        FieldKind::Model => (is_text, "a run, as in ${fit}"),
        FieldKind::Shell => {
            let fits = match &node.value {
                Value::List(items) => !items.is_empty(),
                Value::Text(text) => !text.trim().is_empty(),
                _ => false,
            };
            (fits, "a command, or a list of words")
        }
        FieldKind::Texts => {
            (!matches!(node.value, Value::Map(_) | Value::Null), "a value or a list")
        }
        FieldKind::Text | FieldKind::Checkpoint | FieldKind::Ending(_) => {
            let scalar = !matches!(node.value, Value::Map(_) | Value::List(_) | Value::Null);
            (scalar, "a text")
        }
    };
    match fits || (has_reference && field != FieldKind::Sets) {
        true => Ok(()),
        false => Err(yaml::Error::at(&node.place, format!("write {wanted}"))),
    }
}

fn inputs(node: &Node) -> Result<Vec<(String, Template)>, yaml::Error> {
    match &node.value {
        Value::Map(entries) => entries
            .iter()
            .map(|(key, node)| Ok((key.name.clone(), Template::read(node)?)))
            .collect(),
        Value::List(items) => {
            let item = |(at, node): (usize, &Node)| Ok((at.to_string(), Template::read(node)?));
            items.iter().enumerate().map(item).collect()
        }
        _ => Ok(vec![("0".to_string(), Template::read(node)?)]),
    }
}

fn outs(node: &Node, kind: &StepKind) -> Result<Vec<(String, String)>, yaml::Error> {
    let named = match &node.value {
        Value::Map(entries) if kind.is_shell() => entries
            .iter()
            .map(|(key, node)| Ok((key.name.clone(), text(node)?.to_string(), &node.place)))
            .collect::<Result<Vec<_>, yaml::Error>>()?,
        Value::Text(file) => {
            let stem = Path::new(file).file_stem().unwrap_or_default().to_string_lossy();
            vec![(stem.into_owned(), file.clone(), &node.place)]
        }
        _ if kind.is_shell() => {
            return Err(yaml::Error::at(&node.place, "write a file, or {name: file, ..}"));
        }
        _ => return Err(yaml::Error::at(&node.place, "write another name for what it leaves")),
    };
    for (_, file, place) in &named {
        let inside = Path::new(file)
            .components()
            .all(|part| matches!(part, std::path::Component::Normal(_)));
        if !inside || file.is_empty() || file.contains('\u{E000}') {
            let advice = "write a plain file name: it is put into the step's own folder";
            return Err(yaml::Error::at(place, advice));
        }
    }
    Ok(named.into_iter().map(|(name, file, _)| (name, file)).collect())
}

fn names(node: &Node) -> Result<Vec<String>, yaml::Error> {
    match &node.value {
        Value::List(items) => items.iter().map(|item| text(item).map(str::to_string)).collect(),
        _ => text(node).map(|name| vec![name.to_string()]),
    }
}

fn text(node: &Node) -> Result<&str, yaml::Error> {
    match &node.value {
        Value::Text(text) => Ok(text),
        _ => Err(yaml::Error::at(&node.place, "write a text")),
    }
}

fn whole(node: &Node, range: std::ops::RangeInclusive<i64>) -> Result<i64, yaml::Error> {
    match node.value {
        Value::Int(value) if range.contains(&value) => Ok(value),
        _ => {
            let (from, to) = (range.start(), range.end());
            Err(yaml::Error::at(&node.place, format!("write a number from {from} to {to}")))
        }
    }
}

fn known(root: &Node, names: &[&str]) -> Result<(), yaml::Error> {
    let stray = root.entries().iter().find(|(key, _)| !names.contains(&key.name.as_str()));
    match stray {
        None => Ok(()),
        Some((key, _)) => {
            Err(yaml::Error::unknown_field(&key.name, names.iter().copied()).or_at(&key.place))
        }
    }
}

fn check_needs(step: &PipelineStep, steps: &[PipelineStep]) -> Result<(), yaml::Error> {
    for name in &step.needs {
        if !steps.iter().any(|other| other.name == *name) {
            let names: Vec<&str> = steps.iter().map(|other| other.name.as_str()).collect();
            let message = format!("no step \"{name}\"{}", hint(name, &names));
            let error = yaml::Error::at(&step.place, message);
            return Err(error.within("needs").within(&step.name));
        }
    }
    Ok(())
}

fn dependencies(step: &PipelineStep) -> BTreeSet<String> {
    let templates = step.fields.iter().chain(&step.inputs).map(|(_, template)| template);
    let templates = templates.chain(&step.for_each);
    let named = templates.flat_map(Template::references);
    let named = named.chain(step.when.iter().flat_map(Condition::references));
    let named = named.map(Reference::head).filter(|name| !RESERVED.contains(name));
    named.map(str::to_string).chain(step.needs.iter().cloned()).collect()
}
