//! Goes through a file of delimited text once: its columns, and where its records are.

use std::path::Path;

use csv::ByteRecord;

use super::{failed, looks, other_text, source};
use crate::dialect::{ColumnNames, Dialect};
use crate::text_index::TextIndex;
use crate::{Blob, Error};

/// Indexes a file of this dialect.
pub(super) fn build(dialect: &Dialect, blob: &Blob) -> Result<TextIndex, Error> {
    let path = blob.path();
    let failed = |error| failed(path, error);
    let mut source = source(blob, dialect)?;
    let mut index = TextIndex::new(match &dialect.names {
        ColumnNames::FirstRow { told } => {
            let names = column_names(path, source.byte_headers().map_err(failed)?)?;
            looks::check_header(path, dialect, *told, &names)?;
            names
        }
        ColumnNames::Fixed(columns) => columns.iter().map(|name| (*name).to_owned()).collect(),
        ColumnNames::Given(names) => names.clone(),
        ColumnNames::Numbered => Vec::new(),
    });
    let mut fields = ByteRecord::new();
    loop {
        let (byte, line) = (source.position().byte(), source.position().line());
        if !source.read_byte_record(&mut fields).map_err(failed)? {
            return Ok(index);
        }
        if index.records == 0 {
            looks::check_record(path, dialect, &fields)?;
            fit_names(&mut index.names, dialect, fields.len());
        }
        index.add(byte, line);
    }
}

/// Names that depend on how many fields the first record has.
fn fit_names(names: &mut Vec<String>, dialect: &Dialect, fields: usize) {
    if matches!(dialect.names, ColumnNames::Numbered) {
        *names = (1..=fields).map(|column| format!("column_{column}")).collect();
    }
    if dialect.may_lack_first && fields + 1 == names.len() {
        // Records to predict: without the label, which comes first.
        names.remove(0);
    }
}

fn column_names(path: &Path, headers: &ByteRecord) -> Result<Vec<String>, Error> {
    let wrong = |reason: String| Error::form(path, reason);
    let mut names = Vec::with_capacity(headers.len());
    for (column, name) in headers.iter().enumerate() {
        let name = std::str::from_utf8(name).map_err(|error| {
            wrong(format!("header row: column {column}: {error}{}", other_text(name)))
        })?;
        if names.iter().any(|earlier| earlier == name) {
            let advice = "say `header: no` if the file has no header row";
            return Err(wrong(format!("header row: column {name:?} occurs twice ({advice})")));
        }
        names.push(name.to_owned());
    }
    Ok(names)
}
