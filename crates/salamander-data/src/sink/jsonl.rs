//! Rows as JSON lines: an object in each line, its fields in the order of the row.

use std::io::Write;
use std::path::Path;

use serde_json::{Map, Value as Json};

use super::Sink;
use super::pending::{Count, Pending};
use crate::{Error, Row, Value};

struct JsonLines {
    count: Count,
    out: std::io::BufWriter<Pending>,
    path: std::path::PathBuf,
}

pub(crate) fn create(path: &Path) -> Result<Box<dyn Sink>, Error> {
    let pending = Pending::create_text(path)?;
    let (count, out) = (pending.count(), std::io::BufWriter::new(pending));
    Ok(Box::new(JsonLines { count, out, path: path.to_owned() }))
}

impl Sink for JsonLines {
    fn write(&mut self, row: &Row<'_>) -> Result<(), Error> {
        let mut object = Map::new();
        for (name, value) in row.columns() {
            let value = json(value).map_err(|reason| Error::column(name, reason))?;
            if object.insert(name.to_owned(), value).is_some() {
                return Err(Error::column(name, "occurs twice, which an object cannot tell apart"));
            }
        }
        let written = serde_json::to_writer(&mut self.out, &object).map_err(Into::into);
        let written = written.and_then(|()| self.out.write_all(b"\n"));
        written.map_err(Error::io(&self.path))
    }

    fn finish(self: Box<Self>) -> Result<(), Error> {
        let JsonLines { out, path, .. } = *self;
        out.into_inner().map_err(|error| Error::io(&path)(error.into_error()))?.commit()
    }

    fn bytes(&self) -> u64 {
        self.count.get() + self.out.buffer().len() as u64
    }
}

/// A value of one item is that item, and a number that is none is null: JSON has no other word for it.
fn json(value: &Value<'_>) -> Result<Json, &'static str> {
    let text = |bytes: &[u8]| match std::str::from_utf8(bytes) {
        Ok(text) => Ok(Json::from(text)),
        Err(_) => Err("bytes that are not UTF-8, which JSON cannot hold"),
    };
    Ok(match value {
        Value::Bytes(bytes) => text(bytes)?,
        Value::Text(text) => Json::from(*text),
        Value::List(items) => {
            Json::Array(items.iter().map(|item| text(item)).collect::<Result<_, _>>()?)
        }
        Value::Ints(items) => one_or_all(items.iter().map(|item| Json::from(*item)).collect()),
        Value::Floats(items) => one_or_all(items.iter().map(|item| float(*item)).collect()),
    })
}

/// The shortest number that is read as the same float.
fn float(item: f32) -> Json {
    let shortest = item.to_string().parse::<f64>().unwrap_or(f64::NAN);
    serde_json::Number::from_f64(shortest).map_or(Json::Null, Json::Number)
}

fn one_or_all(mut items: Vec<Json>) -> Json {
    match items.len() {
        1 => items.remove(0),
        _ => Json::Array(items),
    }
}
