//! What is wrong in a YAML document: the place, the field and the right name, if one is near.

use std::fmt;

use super::SourcePosition;

/// A mistake in a document, with its place and the path of the field, as far as they are known.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub struct Error {
    place: Option<SourcePosition>,
    path: Vec<String>,
    unknown: Option<String>,
    message: String,
}

impl Error {
    /// A mistake at a known place.
    pub fn at(place: &SourcePosition, message: impl Into<String>) -> Self {
        Self { place: Some(place.clone()), ..Self::anywhere(message) }
    }

    /// A mistake whose place an outer level fills in.
    pub fn anywhere(message: impl Into<String>) -> Self {
        Self { place: None, path: Vec::new(), unknown: None, message: message.into() }
    }

    /// A field that does not exist among `known`.
    pub fn unknown_field<'a>(field: &str, known: impl IntoIterator<Item = &'a str>) -> Self {
        let known: Vec<&str> = known.into_iter().collect();
        let hint = match nearest(field, known.iter().copied()) {
            Some(name) => format!(" (did you mean \"{name}\"?)"),
            None => format!(" (known: {})", known.join(", ")),
        };
        Self { unknown: Some(field.to_string()), ..Self::anywhere(hint) }
    }

    /// Sets the place unless an inner level knew it better.
    #[must_use]
    pub fn or_at(mut self, place: &SourcePosition) -> Self {
        self.place.get_or_insert_with(|| place.clone());
        self
    }

    /// Puts the name of the enclosing field in front of the path.
    #[must_use]
    pub fn within(mut self, field: &str) -> Self {
        self.path.insert(0, field.to_string());
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(place) = &self.place {
            write!(f, "{place}: ")?;
        }
        let path = self.path.join(".");
        match (&self.unknown, path.is_empty()) {
            (Some(field), true) => write!(f, "unknown field \"{field}\"{}", self.message),
            (Some(field), false) => {
                write!(f, "unknown field \"{field}\" in {path}{}", self.message)
            }
            (None, true) => f.write_str(&self.message),
            (None, false) => write!(f, "{path}: {}", self.message),
        }
    }
}

impl serde::de::Error for Error {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self::anywhere(message.to_string())
    }

    fn unknown_field(field: &str, expected: &'static [&'static str]) -> Self {
        Error::unknown_field(field, expected.iter().copied())
    }

    fn unknown_variant(variant: &str, expected: &'static [&'static str]) -> Self {
        let hint = match nearest(variant, expected.iter().copied()) {
            Some(name) => format!("did you mean \"{name}\"?"),
            None => format!("one of: {}", expected.join(", ")),
        };
        Self::anywhere(format!("\"{variant}\" is not known here ({hint})"))
    }

    fn missing_field(field: &'static str) -> Self {
        Self::anywhere(format!("the field \"{field}\" is missing"))
    }
}

/// The name that was probably meant, if one is near enough to be worth naming.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let lower = word.to_lowercase().replace('-', "_");
    known
        .into_iter()
        .map(|name| (strsim::damerau_levenshtein(&lower, &name.to_lowercase()), name))
        .min()
        .filter(|(distance, name)| *distance <= name.len().max(word.len()) / 3)
        .map(|(_, name)| name)
}
