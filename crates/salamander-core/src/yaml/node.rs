//! The tree of a YAML document: values with the places they were written at.

use std::fmt;

use super::{Error, parse};

/// Where a value was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourcePosition {
    /// A line of the file, counted from 1.
    Line(usize),
    /// An argument such as `--set a.b=v`.
    Argument(String),
}

impl fmt::Display for SourcePosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SourcePosition::Line(line) => write!(f, "line {line}"),
            SourcePosition::Argument(argument) => f.write_str(argument),
        }
    }
}

/// A key of a mapping with its place.
#[derive(Clone, Debug, PartialEq)]
pub struct Key {
    /// The key's text.
    pub name: String,
    /// Where it was written.
    pub place: SourcePosition,
}

/// What a node holds.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// `null`, `~` or nothing.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// A number with a fraction or an exponent.
    Float(f64),
    /// Anything else that is a scalar.
    Text(String),
    /// A sequence.
    List(Vec<Node>),
    /// A mapping, in the order of the file.
    Map(Vec<(Key, Node)>),
}

/// A value and its place.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// What it holds.
    pub value: Value,
    /// Where it was written.
    pub place: SourcePosition,
}

impl Node {
    /// An empty mapping, for what is absent from the file.
    pub fn empty_map() -> Self {
        Self { value: Value::Map(Vec::new()), place: SourcePosition::Line(1) }
    }

    /// The entries of a mapping.
    pub fn entries(&self) -> &[(Key, Node)] {
        match &self.value {
            Value::Map(entries) => entries,
            _ => &[],
        }
    }

    /// The value under `name` of a mapping.
    pub fn get(&self, name: &str) -> Option<&Node> {
        self.entries().iter().find(|(key, _)| key.name == name).map(|(_, node)| node)
    }

    /// Takes the value under `name` out of a mapping.
    pub fn take(&mut self, name: &str) -> Option<Node> {
        let Value::Map(entries) = &mut self.value else {
            return None;
        };
        let at = entries.iter().position(|(key, _)| key.name == name)?;
        Some(entries.remove(at).1)
    }

    /// Puts `value` under the dotted `path`, as `--set a.b=v` asks for.
    pub fn set(&mut self, argument: &str) -> Result<(), Error> {
        let place = SourcePosition::Argument(format!("--set {argument}"));
        let (path, text) = argument
            .split_once('=')
            .filter(|(path, _)| path.split('.').all(|part| !part.is_empty()))
            .ok_or_else(|| Error::at(&place, "write it as a.b=value"))?;
        // `--set a.b=` takes a value away; an empty document would be an empty mapping.
        let mut value = match text.trim() {
            "" => Node { value: Value::Null, place: place.clone() },
            text => parse(text).map_err(|error| Error::at(&place, error.to_string()))?,
        };
        value.set_place(&place);
        self.put(path, value, &place)
    }

    /// Lays a value over the one at a dotted path; `place` is where it comes from, for messages.
    pub fn put(&mut self, path: &str, value: Node, place: &SourcePosition) -> Result<(), Error> {
        let (name, rest) = match path.split_once('.') {
            Some((name, rest)) => (name, Some(rest)),
            None => (path, None),
        };
        if self.value == Value::Null {
            self.value = Value::Map(Vec::new());
        }
        let Value::Map(entries) = &mut self.value else {
            return Err(Error::at(place, format!("\"{name}\" lies below a value, not a mapping")));
        };
        let at = entries.iter().position(|(key, _)| key.name == name).unwrap_or_else(|| {
            let key = Key { name: name.to_string(), place: place.clone() };
            entries.push((key, Node { value: Value::Null, place: place.clone() }));
            entries.len() - 1
        });
        match rest {
            Some(rest) => entries[at].1.put(rest, value, place),
            None => {
                entries[at].1 = value;
                Ok(())
            }
        }
    }

    /// Makes this and all below it come from somewhere else, for messages.
    pub fn set_place(&mut self, place: &SourcePosition) {
        self.place = place.clone();
        match &mut self.value {
            Value::List(items) => items.iter_mut().for_each(|item| item.set_place(place)),
            Value::Map(entries) => entries.iter_mut().for_each(|(key, node)| {
                key.place = place.clone();
                node.set_place(place);
            }),
            _ => {}
        }
    }

    /// The same value as JSON, without places.
    pub fn to_json(&self) -> serde_json::Value {
        match &self.value {
            Value::Null => serde_json::Value::Null,
            Value::Bool(value) => (*value).into(),
            Value::Int(value) => (*value).into(),
            Value::Float(value) => (*value).into(),
            Value::Text(value) => value.clone().into(),
            Value::List(items) => items.iter().map(Node::to_json).collect(),
            Value::Map(entries) => {
                let pairs = entries.iter().map(|(key, node)| (key.name.clone(), node.to_json()));
                serde_json::Value::Object(pairs.collect())
            }
        }
    }
}
