//! JSON lines (<https://jsonlines.org>) as shards: an object in each line, whose fields are columns.
//!
//! Numbers are integers or floats, `true` and `false` are 1 and 0, text is text, and `null` is a column that the row
//! does not have. A list of numbers or of texts is one value of several items; the fields of an object inside are
//! columns of their own, as `user.name`.

use std::io::{BufRead, BufReader};
use std::ops::Range;
use std::sync::Arc;

use serde_json::{Map, Value as Json};

use crate::format::Definition;
use crate::open::{Opened, Opening};
use crate::part_cache::PartCache;
use crate::reader::{Each, Extent, OneShard};
use crate::row::OwnedValue;
use crate::text_index::TextIndex;
use crate::{Blob, Error, Row, sink};

pub(crate) static FORMAT: Definition = Definition {
    endings: &["jsonl", "ndjson"],
    gzip: true,
    open: Some(open),
    create: Some(sink::jsonl::create),
    ..Definition::named("jsonl")
};

/// Bytes read at once.
const BUFFER_BYTES: usize = 64 << 10;

/// A line that is a record, with what it holds or what is wrong with it: one bad line must not spoil its block.
#[derive(Debug)]
struct ParsedLine {
    line: u64,
    columns: Result<Vec<(Arc<str>, OwnedValue)>, String>,
}

/// Parsed blocks, shared by files.
type DecodedLines = PartCache<Vec<ParsedLine>>;

#[derive(Debug)]
struct JsonLines {
    blob: Blob,
    index: TextIndex,
    cache: Arc<DecodedLines>,
    /// The file's number in the cache.
    number: u64,
}

fn open(opening: Opening<'_>) -> Result<Opened, Error> {
    let cache = opening.shared::<DecodedLines>();
    opening.indexed(build, |blob, index| {
        let number = cache.next_file();
        JsonLines { blob, index, cache, number }
    })
}

/// Finds the lines; what is in them is looked at when they are asked for.
fn build(blob: &Blob) -> Result<TextIndex, Error> {
    let mut index = TextIndex::new(Vec::new());
    let mut lines = Lines::new(blob, 0, 1)?;
    while lines.advance()? {
        index.add(lines.start, lines.line);
    }
    Ok(index)
}

/// The lines of a file that are not blank.
struct Lines<'a> {
    blob: &'a Blob,
    source: BufReader<crate::BlobReader>,
    text: Vec<u8>,
    /// Where the line begins, its number, and where the next one begins.
    start: u64,
    line: u64,
    next: u64,
    next_line: u64,
}

impl<'a> Lines<'a> {
    /// From a place where a line with this number begins.
    fn new(blob: &'a Blob, byte: u64, line: u64) -> Result<Lines<'a>, Error> {
        let source = BufReader::with_capacity(BUFFER_BYTES, blob.handle()?.reader(byte));
        let text = Vec::new();
        Ok(Lines { blob, source, text, start: byte, line, next: byte, next_line: line })
    }

    /// Goes to the next line that is not blank; false at the end.
    fn advance(&mut self) -> Result<bool, Error> {
        loop {
            self.text.clear();
            let read = self.source.read_until(b'\n', &mut self.text);
            let read = read.map_err(Error::io(self.blob.path()))?;
            (self.start, self.line) = (self.next, self.next_line);
            self.next += read as u64;
            self.next_line += 1;
            if read == 0 || !self.text.trim_ascii().is_empty() {
                return Ok(read > 0);
            }
        }
    }
}

impl JsonLines {
    /// The records of a block, with the memory they take.
    fn load(&self, block: usize) -> Result<(Vec<ParsedLine>, usize), Error> {
        let (mark, range) = (self.index.marks[block], self.index.block(block));
        let mut lines = Lines::new(&self.blob, mark.byte, mark.line)?;
        let (mut parsed, mut bytes) = (Vec::<ParsedLine>::new(), 0);
        for _ in range {
            if !lines.advance()? {
                return Err(Error::Changed { path: self.blob.path().to_owned() });
            }
            let before = parsed.last().and_then(|before| before.columns.as_deref().ok());
            let columns = columns(&lines.text, before.unwrap_or(&[]));
            bytes += columns
                .iter()
                .flatten()
                .map(|(_, value)| 64 + value.value().bytes())
                .sum::<usize>();
            bytes += 64;
            parsed.push(ParsedLine { line: lines.line, columns });
        }
        Ok((parsed, bytes))
    }
}

impl OneShard for JsonLines {
    fn extent(&self) -> Extent<'_> {
        Extent { path: self.blob.path(), records: self.index.records }
    }

    fn fingerprint(&self) -> Option<String> {
        Some(self.blob.fingerprint())
    }

    fn read_range(&self, records: Range<u64>, each: &mut Each<'_>) -> Result<(), Error> {
        self.blob.verify()?;
        let parsed =
            |block: usize| self.cache.get_or_load((self.number, block as u64), || self.load(block));
        self.index.read(records, parsed, |record, ParsedLine { line, columns }| {
            let row = match columns {
                Ok(columns) => {
                    let cells =
                        columns.iter().map(|(name, value)| ((&**name).into(), value.value()));
                    Ok(Row::new(cells.collect()))
                }
                Err(reason) => Err(Error::Rejected(reason.clone())),
            };
            row.and_then(|row| each(record, row))
                .map_err(|error| error.on_line(|| *line).at(self.blob.path(), None, record))
        })
    }
}

/// The columns of a line; their names are those of the line before where they are the same.
fn columns(
    text: &[u8],
    before: &[(Arc<str>, OwnedValue)],
) -> Result<Vec<(Arc<str>, OwnedValue)>, String> {
    // Windows editors put a mark before the first line.
    let text = text.strip_prefix("\u{feff}".as_bytes()).unwrap_or(text).trim_ascii_end();
    let object = match serde_json::from_slice::<Json>(text) {
        Ok(Json::Object(object)) => object,
        Ok(other) => {
            return Err(format!(
                "{} where an object is due: write {{\"name\": value, ..}}",
                kind(&other)
            ));
        }
        Err(error) => return Err(format!("no JSON: {}", in_line(&error))),
    };
    let mut found = Vec::with_capacity(object.len());
    flatten("", object, &mut found)?;
    let mut columns: Vec<(Arc<str>, OwnedValue)> = Vec::with_capacity(found.len());
    for (place, (name, value)) in found.into_iter().enumerate() {
        let known = before.get(place).filter(|(known, _)| **known == *name);
        columns.push((known.map_or_else(|| name.into(), |(known, _)| Arc::clone(known)), value));
    }
    Ok(columns)
}

/// A record that did not come from a file, read as a line of JSON is: who asks a trained model has the columns that
/// its data had.
///
/// ```
/// use salamander_data::JsonRecord;
///
/// let record = serde_json::json!({"x": [1, 2], "name": "ada"});
/// let record = JsonRecord::new(record.as_object().cloned().unwrap_or_default())?;
/// assert_eq!(record.row().text("name").unwrap(), "ada");
/// assert_eq!(record.row().ints("x").unwrap(), [1, 2]);
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct JsonRecord(Vec<(String, OwnedValue)>);

impl JsonRecord {
    /// From an object; the error names the column.
    pub fn new(object: Map<String, Json>) -> Result<Self, String> {
        let mut columns = Vec::with_capacity(object.len());
        flatten("", object, &mut columns)?;
        Ok(Self(columns))
    }

    /// A copy of a row, which outlives what it was read from.
    pub fn of(row: &Row<'_>) -> Self {
        Self(row.columns().map(|(name, value)| (name.to_owned(), OwnedValue::of(value))).collect())
    }

    /// Adds or replaces a column of bytes, which JSON has no word for.
    #[must_use]
    pub fn with_bytes(mut self, name: &str, bytes: Vec<u8>) -> Self {
        self.0.retain(|(known, _)| known != name);
        self.0.push((name.to_owned(), OwnedValue::Bytes(bytes)));
        self
    }

    /// Its columns.
    pub fn row(&self) -> Row<'_> {
        Row::new(self.0.iter().map(|(name, value)| (name.as_str().into(), value.value())).collect())
    }
}

/// What the parser says, without its own count of lines.
fn in_line(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let reason = text.split(" at line ").next().unwrap_or_default();
    format!("{reason} at column {}", error.column())
}

/// Adds the fields of an object as columns.
fn flatten(
    prefix: &str,
    object: Map<String, Json>,
    columns: &mut Vec<(String, OwnedValue)>,
) -> Result<(), String> {
    for (name, value) in object {
        let name = if prefix.is_empty() { name } else { format!("{prefix}.{name}") };
        match value {
            Json::Object(inner) => flatten(&name, inner, columns)?,
            value => {
                let wrong = |reason: String| format!("column {name:?}: {reason}");
                let Some(value) = cell(value).map_err(wrong)? else { continue };
                if columns.iter().any(|(known, _)| *known == name) {
                    return Err(wrong("occurs twice".to_owned()));
                }
                columns.push((name, value));
            }
        }
    }
    Ok(())
}

/// A value; nothing for null.
fn cell(value: Json) -> Result<Option<OwnedValue>, String> {
    Ok(Some(match value {
        Json::Null => return Ok(None),
        Json::String(text) => OwnedValue::Text(text),
        Json::Array(items) => list(items)?,
        single => match number(&single)? {
            JsonNumber::Int(int) => OwnedValue::Ints(vec![int]),
            JsonNumber::Float(float) => OwnedValue::Floats(vec![float as f32]),
        },
    }))
}

enum JsonNumber {
    Int(i64),
    Float(f64),
}

fn number(value: &Json) -> Result<JsonNumber, String> {
    match value {
        Json::Bool(bit) => Ok(JsonNumber::Int(i64::from(*bit))),
        Json::Number(number) if number.is_f64() => {
            Ok(JsonNumber::Float(number.as_f64().unwrap_or(f64::NAN)))
        }
        Json::Number(number) => match number.as_i64() {
            Some(int) => Ok(JsonNumber::Int(int)),
            None => Err(format!("{number} is more than {}", i64::MAX)),
        },
        other => Err(format!("{} inside a list", kind(other))),
    }
}

/// Texts, or numbers: floats if one of them is.
fn list(items: Vec<Json>) -> Result<OwnedValue, String> {
    if items.iter().all(Json::is_string) {
        let texts = items.into_iter().map(|item| match item {
            Json::String(text) => text.into_bytes(),
            _ => Vec::new(),
        });
        let mut texts: Vec<Vec<u8>> = texts.collect();
        return Ok(match texts.len() {
            1 => OwnedValue::Bytes(texts.remove(0)),
            _ => OwnedValue::List(texts),
        });
    }
    let mut numbers = Vec::with_capacity(items.len());
    for item in &items {
        numbers.push(number(item)?);
    }
    let ints: Option<Vec<i64>> = numbers
        .iter()
        .map(|number| match number {
            JsonNumber::Int(int) => Some(*int),
            JsonNumber::Float(_) => None,
        })
        .collect();
    let float = |number: &JsonNumber| match number {
        JsonNumber::Int(int) => *int as f32,
        JsonNumber::Float(float) => *float as f32,
    };
    Ok(ints
        .map_or_else(|| OwnedValue::Floats(numbers.iter().map(float).collect()), OwnedValue::Ints))
}

fn kind(value: &Json) -> &'static str {
    match value {
        Json::Null => "a null",
        Json::Bool(_) | Json::Number(_) => "a number",
        Json::String(_) => "a text",
        Json::Array(_) => "a list",
        Json::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests;
