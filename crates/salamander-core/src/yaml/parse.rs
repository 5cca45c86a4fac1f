//! Text to tree: the events of `saphyr-parser` put together, scalars by YAML 1.2's core schema.

use std::collections::HashMap;

use saphyr_parser::{Event, Parser, ScalarStyle, Span};

use super::{Error, Key, Node, SourcePosition, Value};

/// Nesting deeper than this is refused, so that no document can exhaust the stack.
const MAX_DEPTH: usize = 64;
/// Aliases can grow a document exponentially; no experiment file needs more nodes than this.
const MAX_NODES: usize = 100_000;

/// Parses one document. An empty document is an empty mapping.
pub fn parse(text: &str) -> Result<Node, Error> {
    let mut builder = Builder::default();
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(|error| {
            let place = SourcePosition::Line(error.marker().line());
            Error::at(&place, format!("not YAML: {}", error.info()))
        })?;
        builder.event(event, span)?;
    }
    Ok(builder.root.unwrap_or_else(Node::empty_map))
}

#[derive(Default)]
struct Builder {
    root: Option<Node>,
    open: Vec<Open>,
    anchors: HashMap<usize, Node>,
    nodes: usize,
}

/// A collection whose end has not been seen yet.
struct Open {
    node: Node,
    anchor: usize,
    key: Option<Key>,
}

impl Builder {
    fn event(&mut self, event: Event<'_>, span: Span) -> Result<(), Error> {
        let place = SourcePosition::Line(span.start.line());
        match event {
            Event::Scalar(text, style, anchor, _) => {
                if let Some(open) = self.open.last_mut()
                    && matches!(open.node.value, Value::Map(_))
                    && open.key.is_none()
                {
                    open.key = Some(Key { name: text.into_owned(), place });
                    return Ok(());
                }
                let plain = style == ScalarStyle::Plain;
                let value = if plain { scalar(&text) } else { Value::Text(text.into_owned()) };
                self.close(Node { value, place }, anchor)
            }
            Event::SequenceStart(anchor, _) => self.start(Value::List(Vec::new()), place, anchor),
            Event::MappingStart(anchor, _) => self.start(Value::Map(Vec::new()), place, anchor),
            Event::SequenceEnd | Event::MappingEnd => match self.open.pop() {
                Some(open) => self.close(open.node, open.anchor),
                None => Err(Error::at(&place, "a collection ends that was never started")),
            },
            Event::Alias(anchor) => {
                let node =
                    self.anchors.get(&anchor).cloned().ok_or_else(|| {
                        Error::at(&place, "an alias refers to itself or to nothing")
                    })?;
                // Copies of copies grow exponentially, so each copy counts in full.
                self.nodes += size(&node);
                self.bounded(&place)?;
                self.close(node, 0)
            }
            Event::DocumentStart(_) if self.root.is_some() => {
                Err(Error::at(&place, "more than one document"))
            }
            _ => Ok(()),
        }
    }

    fn start(&mut self, value: Value, place: SourcePosition, anchor: usize) -> Result<(), Error> {
        if self.open.len() >= MAX_DEPTH {
            return Err(Error::at(&place, format!("nested deeper than {MAX_DEPTH} levels")));
        }
        self.open.push(Open { node: Node { value, place }, anchor, key: None });
        Ok(())
    }

    fn bounded(&self, place: &SourcePosition) -> Result<(), Error> {
        match self.nodes > MAX_NODES {
            true => Err(Error::at(place, format!("more than {MAX_NODES} values"))),
            false => Ok(()),
        }
    }

    fn close(&mut self, node: Node, anchor: usize) -> Result<(), Error> {
        self.nodes += 1;
        self.bounded(&node.place)?;
        if anchor != 0 {
            self.anchors.insert(anchor, node.clone());
        }
        let Some(open) = self.open.last_mut() else {
            self.root = Some(node);
            return Ok(());
        };
        match &mut open.node.value {
            Value::List(items) => items.push(node),
            Value::Map(entries) => {
                let key = open
                    .key
                    .take()
                    .ok_or_else(|| Error::at(&node.place, "a key must be plain text"))?;
                if entries.iter().any(|(other, _)| other.name == key.name) {
                    let message = format!("the field \"{}\" stands here twice", key.name);
                    return Err(Error::at(&key.place, message));
                }
                entries.push((key, node));
            }
            _ => unreachable!("only collections are opened"),
        }
        Ok(())
    }
}

fn size(node: &Node) -> usize {
    1 + match &node.value {
        Value::List(items) => items.iter().map(size).sum(),
        Value::Map(entries) => entries.iter().map(|(_, node)| size(node)).sum(),
        _ => 0,
    }
}

fn scalar(text: &str) -> Value {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Value::Null,
        "true" | "True" | "TRUE" => return Value::Bool(true),
        "false" | "False" | "FALSE" => return Value::Bool(false),
        ".inf" | "+.inf" | ".Inf" => return Value::Float(f64::INFINITY),
        "-.inf" | "-.Inf" => return Value::Float(f64::NEG_INFINITY),
        ".nan" | ".NaN" => return Value::Float(f64::NAN),
        _ => {}
    }
    if let Ok(value) = text.parse::<i64>() {
        return Value::Int(value);
    }
    let numeric = text.bytes().all(|b| b.is_ascii_digit() || b"+-.eE".contains(&b))
        && text.bytes().any(|b| b.is_ascii_digit());
    match text.parse::<f64>() {
        Ok(value) if numeric => Value::Float(value),
        _ => Value::Text(text.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::from_node;
    use super::*;

    fn json(node: &Node) -> String {
        from_node::<serde_json::Value>(node).expect("any value is JSON").to_string()
    }

    fn check(text: &str, expected: &str) {
        let got = match parse(text) {
            Ok(node) => json(&node),
            Err(error) => format!("error: {error}"),
        };
        assert_eq!(got, expected, "for {text:?}");
    }

    #[test]
    fn scalars_follow_the_core_schema() {
        check("a: 1e-4", r#"{"a":0.0001}"#);
        check("a: True", r#"{"a":true}"#);
        check("a: 010", r#"{"a":10}"#);
        check("a: '1'", r#"{"a":"1"}"#);
        check("a: 1.2.3", r#"{"a":"1.2.3"}"#);
        check("a: model_def:Trial", r#"{"a":"model_def:Trial"}"#);
        check("a:", r#"{"a":null}"#);
        check("", "{}");
    }

    #[test]
    fn aliases_are_copies() {
        check("a: &x [1, 2]\nb: *x", r#"{"a":[1,2],"b":[1,2]}"#);
    }

    #[test]
    fn mistakes_name_their_line() {
        check("a: 1\na: 2", "error: line 2: the field \"a\" stands here twice");
        check(
            "a: [1",
            "error: line 2: not YAML: while parsing a flow sequence, expected ',' or ']'",
        );
    }

    #[test]
    fn alias_bombs_are_refused() {
        let mut text = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
        for i in 1..9 {
            let last = i - 1;
            let refs = vec![format!("*a{last}"); 10].join(", ");
            text.push_str(&format!("a{i}: &a{i} [{refs}]\n"));
        }
        let error = parse(&text).expect_err("ten to the ninth values").to_string();
        assert!(error.ends_with("more than 100000 values"), "{error}");
    }

    #[test]
    fn set_replaces_and_creates() {
        let mut node = parse("a:\n  b: 1\n").expect("valid");
        node.set("a.b=[2, x]").expect("valid path");
        node.set("c.d=true").expect("valid path");
        assert_eq!(json(&node), r#"{"a":{"b":[2,"x"]},"c":{"d":true}}"#);
        let error = node.set("a.b.c=1").expect_err("below a list").to_string();
        assert_eq!(error, "--set a.b.c=1: \"c\" lies below a value, not a mapping");
        assert!(node.set("nothing").is_err());
    }
}
