//! How text files are written down, as experiment files and the command line say it: one type for both.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::de::value::SeqAccessDeserializer;
use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// How CSV files are written down, where a header row and commas (in `.tsv` and `.tab`: tabs) are not it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CsvSettings {
    /// `yes`, `no`, or the names of the columns of files without a header row. With `no` they are
    /// `column_1`, `column_2` and so on; by default `yes`, but a first row of numbers is refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub header: Option<CsvHeader>,
    /// What stands between two cells: one character, or `tab`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub separator: Option<Separator>,
    /// Whether spaces around cells do not count.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub trim: bool,
    /// Words that stand for a missing value, such as `NA`; an empty cell always does.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
}

impl CsvSettings {
    /// Whether nothing is said.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Whether the first row names the columns.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema)]
#[schemars(with = "WordOrNames")]
pub enum CsvHeader {
    /// It does, even if it looks like a record.
    Yes,
    /// It is a record; columns are numbered.
    No,
    /// It is a record, and these are the names.
    Names(Vec<String>),
}

#[derive(JsonSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "only its schema is used")]
enum WordOrNames {
    Bool(bool),
    Word(YesOrNo),
    Names(Vec<String>),
}

#[derive(JsonSchema)]
#[serde(rename_all = "lowercase")]
#[expect(dead_code, reason = "only its schema is used")]
enum YesOrNo {
    Yes,
    No,
}

impl CsvHeader {
    fn names(names: Vec<String>) -> Result<Self, String> {
        for (place, name) in names.iter().enumerate() {
            if name.is_empty() {
                return Err("a name of a column is empty".to_string());
            }
            if names[..place].contains(name) {
                return Err(format!("column \"{name}\" is named twice"));
            }
        }
        match names.is_empty() {
            true => Err("name at least one column".to_string()),
            false => Ok(Self::Names(names)),
        }
    }
}

/// `yes`, `no`, or names with commas between them.
impl FromStr for CsvHeader {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "yes" | "true" => Ok(Self::Yes),
            "no" | "false" => Ok(Self::No),
            names => Self::names(names.split(',').map(|name| name.trim().to_string()).collect()),
        }
    }
}

impl Serialize for CsvHeader {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Yes => serializer.serialize_bool(true),
            Self::No => serializer.serialize_bool(false),
            Self::Names(names) => names.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for CsvHeader {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct HeaderVisitor;
        impl<'de> Visitor<'de> for HeaderVisitor {
            type Value = CsvHeader;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("yes, no or a list of the columns' names")
            }

            fn visit_bool<E: Error>(self, value: bool) -> Result<CsvHeader, E> {
                Ok(if value { CsvHeader::Yes } else { CsvHeader::No })
            }

            fn visit_str<E: Error>(self, value: &str) -> Result<CsvHeader, E> {
                match value {
                    "yes" => Ok(CsvHeader::Yes),
                    "no" => Ok(CsvHeader::No),
                    other => Err(E::invalid_value(serde::de::Unexpected::Str(other), &self)),
                }
            }

            fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<CsvHeader, A::Error> {
                let names = Vec::deserialize(SeqAccessDeserializer::new(items))?;
                CsvHeader::names(names).map_err(A::Error::custom)
            }
        }
        deserializer.deserialize_any(HeaderVisitor)
    }
}

/// What stands between two cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub struct Separator(u8);

impl Separator {
    /// The byte that cells are cut at.
    pub fn byte(self) -> u8 {
        self.0
    }
}

/// As settings say it.
impl fmt::Display for Separator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            b'\t' => f.write_str("tab"),
            byte => write!(f, "{}", char::from(byte)),
        }
    }
}

impl FromStr for Separator {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.as_bytes() {
            b"tab" | b"\\t" => Ok(Self(b'\t')),
            [b'"' | b'\n' | b'\r'] => Err("quotes and line ends cannot separate cells".to_string()),
            [byte] if byte.is_ascii() => Ok(Self(*byte)),
            _ => Err(format!("{text:?} is not one character: write one such as ;, or tab")),
        }
    }
}

impl TryFrom<String> for Separator {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Separator> for String {
    fn from(separator: Separator) -> String {
        separator.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_survive_being_written_down() {
        let check = |json: &str, expected: Option<&str>| {
            let read = serde_json::from_str::<CsvSettings>(json);
            let written = read.as_ref().ok().map(|read| serde_json::to_string(read).expect("JSON"));
            assert_eq!(written.as_deref(), expected, "{json}: {read:?}");
        };
        check("{}", Some("{}"));
        check(r#"{"header":"no"}"#, Some(r#"{"header":false}"#));
        check(r#"{"header":true,"trim":true}"#, Some(r#"{"header":true,"trim":true}"#));
        check(r#"{"header":["a","b"]}"#, Some(r#"{"header":["a","b"]}"#));
        check(r#"{"separator":"\t"}"#, Some(r#"{"separator":"tab"}"#));
        check(
            r#"{"separator":";","missing":["NA"]}"#,
            Some(r#"{"separator":";","missing":["NA"]}"#),
        );
        for wrong in [
            r#"{"header":"maybe"}"#,
            r#"{"header":[]}"#,
            r#"{"header":["a","a"]}"#,
            r#"{"header":[""]}"#,
            r#"{"separator":"::"}"#,
            r#"{"separator":"\""}"#,
            r#"{"seperator":";"}"#,
        ] {
            check(wrong, None);
        }
    }

    #[test]
    fn the_command_line_takes_the_same_words() {
        let check = |text: &str, expected: CsvHeader| assert_eq!(text.parse(), Ok(expected));
        check("yes", CsvHeader::Yes);
        check("no", CsvHeader::No);
        check("age, city", CsvHeader::Names(vec!["age".to_string(), "city".to_string()]));
        assert!("age,,city".parse::<CsvHeader>().is_err());
        assert_eq!("tab".parse::<Separator>().map(Separator::byte), Ok(b'\t'));
    }
}
