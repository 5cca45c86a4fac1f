//! From the file's tree to a space.

use salamander_core::yaml::{Error, Key, Node, Value, nearest};
use serde_json::{Map, Value as Json};

use super::kinds::{DETERMINED, DistributionKind, OTHERS};
use super::{Condition, Distribution, Leaf, LeafKind, Space, is_same};

/// The field that makes a hyperparameter depend on others.
const WHEN: &str = "when";

/// Reads all hyperparameters.
pub(super) fn space(node: &Node) -> Result<Space, Error> {
    let mut found = Vec::new();
    for (key, child) in node.entries() {
        walk(std::slice::from_ref(&key.name), child, &[], &mut found)?;
    }
    let known: Vec<(Vec<String>, Option<Vec<Json>>)> =
        found.iter().map(|found| (found.path.clone(), listed(&found.kind))).collect();
    let leaves = found
        .into_iter()
        .map(|found| {
            let mut when = Vec::new();
            for (key, values) in &found.when {
                when.push(condition(key, values, &known).map_err(|error| {
                    error.or_at(&key.place).within(WHEN).within(&found.path.join("."))
                })?);
            }
            Ok(Leaf { path: found.path, kind: found.kind, when, place: found.node.place.clone() })
        })
        .collect::<Result<Vec<Leaf>, Error>>()?;
    let space = Space { leaves };
    match circle(&space) {
        Some(leaf) => {
            let leaf = &space.leaves[leaf];
            let path = leaf.path.join(".");
            Err(Error::at(&leaf.place, "it depends on itself").within(WHEN).within(&path))
        }
        None => Ok(space),
    }
}

/// A hyperparameter whose conditions are not resolved yet.
struct FoundLeaf<'a> {
    path: Vec<String>,
    node: &'a Node,
    kind: LeafKind,
    when: Vec<(&'a Key, &'a Node)>,
}

fn walk<'a>(
    path: &[String],
    node: &'a Node,
    outer: &[(&'a Key, &'a Node)],
    found: &mut Vec<FoundLeaf<'a>>,
) -> Result<(), Error> {
    let within = |error: Error| error.or_at(&node.place).within(&path.join("."));
    let mut when = outer.to_vec();
    let own = node.get(WHEN).filter(|when| matches!(when.value, Value::Map(_)));
    when.extend(own.into_iter().flat_map(Node::entries).map(|(key, node)| (key, node)));
    if let Some(kind) = leaf(node).map_err(within)? {
        found.push(FoundLeaf { path: path.to_vec(), node, kind, when });
        return Ok(());
    }
    for (key, child) in node.entries() {
        if key.name == WHEN && own.is_some() {
            continue;
        }
        let path: Vec<String> = path.iter().chain([&key.name]).cloned().collect();
        walk(&path, child, &when, found)?;
    }
    Ok(())
}

/// What a node is, unless it is a mapping of further hyperparameters.
fn leaf(node: &Node) -> Result<Option<LeafKind>, Error> {
    let Value::Map(entries) = &node.value else {
        return Ok(Some(LeafKind::Constant(node.to_json())));
    };
    if entries.is_empty() {
        return Ok(Some(LeafKind::Constant(Json::Object(Map::new()))));
    }
    if let Some(Value::Text(kind)) = node.get("type").map(|node| &node.value) {
        return typed(kind, node);
    }
    let own: Vec<_> = entries.iter().filter(|(key, _)| key.name != WHEN).collect();
    let [(key, arguments)] = own[..] else { return Ok(None) };
    // A distribution has arguments; `choice: 3` is a hyperparameter of that name.
    if !matches!(arguments.value, Value::Map(_) | Value::List(_)) {
        return Ok(None);
    }
    if key.name == "sample_from" {
        return Err(Error::at(&key.place, "code cannot be drawn from; write the range itself"));
    }
    match OTHERS.iter().find(|kind| kind.name == key.name) {
        Some(kind) => kind.read(arguments, &[]).map(LeafKind::Drawn).map(Some),
        None => Ok(None),
    }
}

/// A node with a `type`: a distribution, a constant, or hyperparameters of which one has that name.
fn typed(name: &str, node: &Node) -> Result<Option<LeafKind>, Error> {
    let besides = ["type", WHEN];
    if name == "const" {
        let value = node.get("val").ok_or_else(|| Error::anywhere("a const needs a \"val\""))?;
        return Ok(Some(LeafKind::Constant(value.to_json())));
    }
    let known = || DETERMINED.iter().chain(OTHERS.iter());
    if let Some(kind) = known().find(|kind| kind.name == name) {
        return kind.read(node, &besides).map(LeafKind::Drawn).map(Some);
    }
    // A misspelt kind would otherwise become a mapping of constants.
    let ranged = ["minval", "maxval", "vals", "lower", "upper", "low", "high", "categories"];
    if ranged.iter().any(|argument| node.get(argument).is_some()) {
        let names = known().map(|kind: &DistributionKind| kind.name).chain(["const"]);
        let hint = match nearest(name, names.clone()) {
            Some(near) => format!("did you mean \"{near}\"?"),
            None => format!("one of: {}", names.collect::<Vec<_>>().join(", ")),
        };
        return Err(Error::anywhere(format!("type \"{name}\" is not known ({hint})")));
    }
    Ok(None)
}

/// The values of a hyperparameter that is one of a list.
fn listed(kind: &LeafKind) -> Option<Vec<Json>> {
    match kind {
        LeafKind::Drawn(Distribution::Choice(values)) => Some(values.clone()),
        LeafKind::Drawn(_) | LeafKind::Constant(_) => None,
    }
}

/// A condition on one of the hyperparameters that are `known`, by their paths and, of lists, their values.
fn condition(
    key: &Key,
    values: &Node,
    known: &[(Vec<String>, Option<Vec<Json>>)],
) -> Result<Condition, Error> {
    let wanted: Vec<String> = key.name.split('.').map(str::to_string).collect();
    let leaf = known.iter().position(|(path, _)| *path == wanted).ok_or_else(|| {
        let names: Vec<String> = known.iter().map(|(path, _)| path.join(".")).collect();
        Error::unknown_field(&key.name, names.iter().map(String::as_str))
    })?;
    let place = &values.place;
    let values: Vec<Json> = match &values.value {
        Value::List(items) => items.iter().map(Node::to_json).collect(),
        _ => vec![values.to_json()],
    };
    // A misspelt value would leave the hyperparameter out for ever, without a word.
    if let Some(all) = &known[leaf].1
        && !values.iter().any(|value| all.iter().any(|known| is_same(known, value)))
    {
        let shown = |values: &[Json]| {
            values.iter().map(Json::to_string).collect::<Vec<String>>().join(", ")
        };
        let message =
            format!("{} is never {}: it is one of {}", key.name, shown(&values), shown(all));
        return Err(Error::at(place, message));
    }
    Ok(Condition { leaf, values })
}

/// A leaf that depends on itself.
fn circle(space: &Space) -> Option<usize> {
    (0..space.leaves.len()).find(|start| {
        let mut seen = vec![false; space.leaves.len()];
        let mut open = vec![*start];
        while let Some(leaf) = open.pop() {
            for condition in &space.leaves[leaf].when {
                if condition.leaf == *start {
                    return true;
                }
                if !std::mem::replace(&mut seen[condition.leaf], true) {
                    open.push(condition.leaf);
                }
            }
        }
        false
    })
}
