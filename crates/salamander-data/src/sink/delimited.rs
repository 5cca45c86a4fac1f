//! Rows as CSV or TSV, with the columns of the first row, or as one of the public files, with its columns.

use std::borrow::Cow;
use std::fmt::Display;
use std::path::{Path, PathBuf};

use super::Sink;
use super::pending::{Count, Pending};
use crate::dialect::Dialect;
use crate::{ColumnInfo, Error, Row, Value};

/// A file of text. The csv crate writes the fields of those with a header, which may need quotes; the public files
/// have none, and are written as they are.
struct Delimited {
    path: PathBuf,
    dialect: Dialect,
    names: Option<Vec<String>>,
    count: Count,
    out: csv::Writer<Pending>,
}

pub(crate) fn create(path: &Path, dialect: Dialect) -> Result<Box<dyn Sink>, Error> {
    let pending = Pending::create_text(path)?;
    let count = pending.count();
    let mut writer = csv::WriterBuilder::new();
    writer.delimiter(dialect.delimiter);
    let columns = dialect.fixed_columns();
    let names = columns.map(|names| names.iter().map(|n| (*n).to_owned()).collect());
    if columns.is_some() {
        // Whole lines, each as one field.
        writer.quote_style(csv::QuoteStyle::Never);
    }
    let out = writer.from_writer(pending);
    Ok(Box::new(Delimited { path: path.to_owned(), dialect, names, count, out }))
}

impl Delimited {
    /// The cells of a row in the order of the header; a column that the row lacks is an empty cell.
    fn cells<'a>(
        dialect: &Dialect,
        names: &[String],
        row: &'a Row<'_>,
    ) -> Result<Vec<Cow<'a, str>>, Error> {
        let mut cells = vec![Cow::Borrowed(""); names.len()];
        for (name, value) in row.columns() {
            let wrong = |reason: &str| Error::column(name, reason);
            let position = names.iter().position(|known| known == name);
            let position = position.ok_or_else(|| {
                wrong(match dialect.fixed_columns() {
                    Some(_) => "the format has no such column",
                    None => "the first record has no such column, so the header neither",
                })
            })?;
            cells[position] = cell(value).map_err(wrong)?;
        }
        Ok(cells)
    }
}

impl Sink for Delimited {
    fn expect(&mut self, columns: &[ColumnInfo]) -> Result<(), Error> {
        if self.names.is_none() && !columns.is_empty() {
            let names = header(columns.iter().map(|column| column.name.as_str()))?;
            self.out.write_record(&names).map_err(failed)?;
            self.names = Some(names);
        }
        Ok(())
    }

    fn write(&mut self, row: &Row<'_>) -> Result<(), Error> {
        let names = match &self.names {
            Some(names) => names,
            None => {
                let names = header(row.columns().map(|(name, _)| name))?;
                self.out.write_record(&names).map_err(failed)?;
                self.names.insert(names)
            }
        };
        let cells = Delimited::cells(&self.dialect, names, row)?;
        if self.dialect.fixed_columns().is_none() {
            return self.out.write_record(cells.iter().map(|cell| cell.as_bytes())).map_err(failed);
        }
        let mut fields = Vec::with_capacity(cells.len());
        for (name, cell) in names.iter().zip(&cells) {
            fields.push(self.dialect.write(name, cell).ok_or_else(|| {
                let reason = "has what separates fields, and this format has no quotes";
                Error::column(name, format!("{cell:?} {reason}"))
            })?);
        }
        self.out.write_record([fields.join(self.dialect.between)]).map_err(failed)
    }

    fn finish(self: Box<Self>) -> Result<(), Error> {
        let Delimited { path, out, .. } = *self;
        let failed = |error: csv::IntoInnerError<_>| {
            Error::form(path, format!("cannot write: {}", error.error()))
        };
        out.into_inner().map_err(failed)?.commit()
    }

    fn bytes(&self) -> u64 {
        self.count.get()
    }
}

fn failed(error: csv::Error) -> Error {
    Error::Rejected(format!("cannot write: {error}"))
}

fn header<'a>(columns: impl Iterator<Item = &'a str>) -> Result<Vec<String>, Error> {
    let mut names: Vec<String> = Vec::new();
    for name in columns {
        if names.iter().any(|earlier| earlier == name) {
            let reason = "occurs twice, which a header cannot tell apart";
            return Err(Error::column(name, reason));
        }
        names.push(name.to_owned());
    }
    if names.is_empty() {
        return Err(Error::Rejected("no columns to make a header of".to_owned()));
    }
    Ok(names)
}

/// Several items have spaces between them, as fields of several values have in ElasticDL's examples.
fn cell<'a>(value: &'a Value<'_>) -> Result<Cow<'a, str>, &'static str> {
    const NOT_TEXT: &str = "bytes that are not UTF-8, which csv cannot hold";
    let text = |bytes: &'a [u8]| std::str::from_utf8(bytes).map_err(|_| NOT_TEXT);
    Ok(match value {
        Value::Bytes(bytes) => Cow::Borrowed(text(bytes)?),
        Value::Text(text) => Cow::Borrowed(text),
        Value::Ints(items) => Cow::Owned(joined(items.iter())),
        Value::Floats(items) => Cow::Owned(joined(items.iter())),
        Value::List(items) => {
            let mut texts = Vec::with_capacity(items.len());
            for item in items {
                let item = text(item)?;
                if item.is_empty() || item.contains(char::is_whitespace) {
                    return Err(
                        "a list with an empty item or spaces in one, which csv cannot hold",
                    );
                }
                texts.push(item);
            }
            Cow::Owned(texts.join(" "))
        }
    })
}

/// The shortest text of each number that is read as the same number.
fn joined(items: impl Iterator<Item = impl Display>) -> String {
    let mut text = String::new();
    for item in items {
        if !text.is_empty() {
            text.push(' ');
        }
        text += &item.to_string();
    }
    text
}
