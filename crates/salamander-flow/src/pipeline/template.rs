//! Values of a pipeline file whose texts may hold references: `${params.epochs}`, `${prep.train}/part-*.parquet`.

use salamander_core::yaml::{Error, Node, SourcePosition, Value};
use serde_json::Value as Json;

/// What stands for the braces of a reference while the file is YAML, where `{` begins a mapping.
const OPEN: char = '\u{E000}';
const CLOSE: char = '\u{E001}';

/// `${a.b}`, where it stands.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Reference {
    pub(crate) path: Vec<String>,
    pub(crate) place: SourcePosition,
}

impl Reference {
    pub(crate) fn head(&self) -> &str {
        self.path.first().map_or("", String::as_str)
    }

    /// As it was written.
    pub(crate) fn text(&self) -> String {
        format!("${{{}}}", self.path.join("."))
    }

    /// A mistake in it.
    pub(crate) fn wrong(&self, message: &str) -> Error {
        Error::at(&self.place, format!("{}: {message}", self.text()))
    }
}

/// A piece of a text.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Piece {
    Text(String),
    Value(Reference),
}

/// A value that is known when its references are.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Template {
    Plain(Json),
    Text(Vec<Piece>),
    List(Vec<Template>),
    Map(Vec<(String, Template)>),
}

/// A value in two forms: as a command gets it, and as a key has it, where files are told by content, not by place.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Known {
    pub(crate) real: Json,
    pub(crate) key: Json,
}

impl Known {
    pub(crate) fn plain(value: Json) -> Self {
        Self { key: value.clone(), real: value }
    }
}

/// How values become part of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Quoting {
    Plain,
    /// One word of a shell each, whatever is in them.
    Shell,
}

/// Marks the references of a file, so that `{set: {a: ${b}}}` is YAML. Lines stay where they are.
pub(crate) fn mark(text: &str) -> String {
    let mut marked = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let mut rest = line;
        while let Some((before, after)) = rest.split_once("${") {
            marked.push_str(before);
            match after.split_once('}') {
                Some((name, after)) => {
                    marked.extend(['$', OPEN]);
                    marked.push_str(name);
                    marked.push(CLOSE);
                    rest = after;
                }
                None => {
                    marked.push_str("${");
                    rest = after;
                }
            }
        }
        marked.push_str(rest);
    }
    marked
}

/// The text as it was written.
pub(crate) fn unmark(text: &str) -> String {
    text.replace(OPEN, "{").replace(CLOSE, "}")
}

/// The pieces of a text.
pub(crate) fn pieces(text: &str, place: &SourcePosition) -> Result<Vec<Piece>, Error> {
    let mut pieces = Vec::new();
    let mut plain = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(OPEN) {
        let (name, after) = after.split_once(CLOSE).unwrap_or((after, ""));
        rest = after;
        let before = before.strip_suffix('$').unwrap_or(before);
        if let Some(before) = before.strip_suffix('$') {
            // `$${name}` is a shell's own.
            plain.push_str(&format!("{before}${{{name}}}"));
            continue;
        }
        plain.push_str(before);
        if !plain.is_empty() {
            pieces.push(Piece::Text(std::mem::take(&mut plain)));
        }
        pieces.push(Piece::Value(reference(name, place)?));
    }
    plain.push_str(rest);
    if !plain.is_empty() || pieces.is_empty() {
        pieces.push(Piece::Text(plain));
    }
    Ok(pieces)
}

fn reference(name: &str, place: &SourcePosition) -> Result<Reference, Error> {
    let path: Vec<String> = name.trim().split('.').map(str::to_string).collect();
    let word = |part: &String| {
        !part.is_empty() && part.chars().all(|c| c.is_alphanumeric() || "_-@".contains(c))
    };
    match path.iter().all(word) {
        true => Ok(Reference { path, place: place.clone() }),
        false => {
            let advice = "write ${step.output} or ${params.name}; a shell's own is $${NAME}";
            Err(Error::at(place, format!("${{{name}}} is no reference: {advice}")))
        }
    }
}

impl Template {
    pub(crate) fn read(node: &Node) -> Result<Self, Error> {
        Ok(match &node.value {
            Value::Text(text) => match pieces(text, &node.place)?.as_slice() {
                [Piece::Text(text)] => Template::Plain(Json::from(text.as_str())),
                pieces => Template::Text(pieces.to_vec()),
            },
            Value::List(items) => {
                Template::List(items.iter().map(Self::read).collect::<Result<_, _>>()?)
            }
            Value::Map(entries) => {
                let entry = |(key, node): &(_, _)| {
                    let salamander_core::yaml::Key { name, .. } = key;
                    let read = Self::read(node).map_err(|error: Error| error.within(name));
                    read.map(|template| (name.clone(), template))
                };
                Template::Map(entries.iter().map(entry).collect::<Result<_, _>>()?)
            }
            _ => Template::Plain(node.to_json()),
        })
    }

    pub(crate) fn references(&self) -> Vec<&Reference> {
        let mut found = Vec::new();
        self.visit(&mut |reference| found.push(reference));
        found
    }

    fn visit<'a>(&'a self, each: &mut dyn FnMut(&'a Reference)) {
        match self {
            Template::Plain(_) => {}
            Template::Text(pieces) => pieces.iter().for_each(|piece| match piece {
                Piece::Value(reference) => each(reference),
                Piece::Text(_) => {}
            }),
            Template::List(items) => items.iter().for_each(|item| item.visit(each)),
            Template::Map(entries) => entries.iter().for_each(|(_, item)| item.visit(each)),
        }
    }

    /// The value, with what `look` finds for each reference.
    pub(crate) fn render<E>(
        &self,
        quoting: Quoting,
        look: &dyn Fn(&Reference) -> Result<Known, E>,
    ) -> Result<Known, E> {
        Ok(match self {
            Template::Plain(value) => Known::plain(value.clone()),
            Template::Text(pieces) => match pieces.as_slice() {
                // Alone, it keeps its type.
                [Piece::Value(reference)] if quoting == Quoting::Plain => look(reference)?,
                pieces => text(pieces, quoting, look)?,
            },
            Template::List(items) => {
                let items: Vec<Known> = items
                    .iter()
                    .map(|item| item.render(quoting, look))
                    .collect::<Result<_, _>>()?;
                let (real, key) = items.into_iter().map(|item| (item.real, item.key)).unzip();
                Known { real: Json::Array(real), key: Json::Array(key) }
            }
            Template::Map(entries) => {
                let (mut real, mut key) = (serde_json::Map::new(), serde_json::Map::new());
                for (name, item) in entries {
                    let item = item.render(quoting, look)?;
                    real.insert(name.clone(), item.real);
                    key.insert(name.clone(), item.key);
                }
                Known { real: real.into(), key: key.into() }
            }
        })
    }
}

fn text<E>(
    pieces: &[Piece],
    quoting: Quoting,
    look: &dyn Fn(&Reference) -> Result<Known, E>,
) -> Result<Known, E> {
    let (mut real, mut key) = (String::new(), String::new());
    for piece in pieces {
        match piece {
            Piece::Text(text) => {
                real.push_str(text);
                key.push_str(text);
            }
            Piece::Value(reference) => {
                let known = look(reference)?;
                real.push_str(&words(&known.real, quoting));
                key.push_str(&words(&known.key, quoting));
            }
        }
    }
    Ok(Known { real: real.into(), key: key.into() })
}

/// A value within a text; the items of a list are words of their own.
pub(crate) fn words(value: &Json, quoting: Quoting) -> String {
    match value {
        Json::Array(items) => {
            items.iter().map(|item| words(item, quoting)).collect::<Vec<_>>().join(" ")
        }
        Json::String(text) => quoted(text, quoting),
        other => quoted(&other.to_string(), quoting),
    }
}

fn quoted(text: &str, quoting: Quoting) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-=:,+@%".contains(c);
    match quoting {
        Quoting::Shell if text.is_empty() || !text.chars().all(is_plain) => {
            format!("'{}'", text.replace('\'', r"'\''"))
        }
        _ => text.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use salamander_core::yaml::parse;
    use serde_json::json;

    use super::*;

    fn render(text: &str, quoting: Quoting) -> String {
        let node = parse(&mark(text)).expect("YAML");
        let template = match Template::read(&node) {
            Ok(template) => template,
            Err(error) => return format!("error: {}", unmark(&error.to_string())),
        };
        let look = |reference: &Reference| match reference.text().as_str() {
            "${n}" => Ok(Known::plain(json!(3))),
            "${l}" => Ok(Known::plain(json!([1, "b c"]))),
            "${f.x}" => Ok(Known { real: json!("/a b"), key: json!("blake3:0") }),
            other => Err(format!("no {other}")),
        };
        match template.render(quoting, &look) {
            Ok(known) => format!("{} {}", known.real, known.key),
            Err(error) => error,
        }
    }

    #[test]
    fn references_keep_their_type_where_they_stand_alone() {
        let check = |text: &str, expected: &str| {
            assert_eq!(render(text, Quoting::Plain), expected, "{text}");
        };
        check("{a: {b: ${n}, c: x${n}}}", r#"{"a":{"b":3,"c":"x3"}} {"a":{"b":3,"c":"x3"}}"#);
        check("[${l}, '${n}']", r#"[[1,"b c"],3] [[1,"b c"],3]"#);
        check("a: ${f.x}/y", r#"{"a":"/a b/y"} {"a":"blake3:0/y"}"#);
        check("a: $${HOME} $1 ${ n }", r#"{"a":"${HOME} $1 3"} {"a":"${HOME} $1 3"}"#);
        check("a: ${m}", "no ${m}");
        check(
            "a: 1\nb: ${x y}",
            "error: line 2: b: ${x y} is no reference: write ${step.output} or ${params.name}; \
             a shell's own is $${NAME}",
        );
        check("a: ${HOME", r#"{"a":"${HOME"} {"a":"${HOME"}"#);
    }

    #[test]
    fn a_shell_gets_each_value_as_a_word() {
        assert_eq!(render("cat ${f.x} ${l} ${n}", Quoting::Shell).split("\" \"").next(), {
            Some("\"cat '/a b' 1 'b c' 3")
        });
    }

    proptest! {
        #[test]
        fn marks_come_off_again(text in "[${}a.b\n é]{0,40}") {
            prop_assert_eq!(unmark(&mark(&text)), text.clone());
            prop_assert_eq!(mark(&text).lines().count(), text.lines().count());
        }

        #[test]
        fn quoted_words_reach_a_command_as_they_are(text in "[ -~é\n]{0,20}") {
            let line = format!("printf %s {}", quoted(&text, Quoting::Shell));
            let out = std::process::Command::new("sh").args(["-c", &line]).output().expect("a shell");
            prop_assert_eq!(String::from_utf8_lossy(&out.stdout), text);
        }
    }
}
