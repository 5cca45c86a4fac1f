//! `data convert --tokenize`: a column of text becomes the ids of its tokens, once, instead of in every epoch.

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Context, Result, bail, ensure};
use salamander_data::{ColumnInfo, ColumnKind, Error, Format, Row, Value};
#[cfg(feature = "text")]
use salamander_train::example::Tokenizer;

/// `text=tokenizer.json`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TokenizedColumn {
    column: String,
    file: PathBuf,
}

impl FromStr for TokenizedColumn {
    type Err = String;

    fn from_str(said: &str) -> Result<Self, String> {
        match said.split_once('=') {
            Some((column, file)) if !column.is_empty() && !file.is_empty() => {
                Ok(Self { column: column.to_string(), file: file.into() })
            }
            _ => Err("write a column and a tokenizer: text=tokenizer.json".to_string()),
        }
    }
}

/// Makes ids of a column.
pub(super) struct ColumnTokenizer {
    column: String,
    #[cfg(feature = "text")]
    tokenizer: Tokenizer,
}

impl ColumnTokenizer {
    pub(super) fn load(said: &TokenizedColumn, max_length: usize, to: Format) -> Result<Self> {
        ensure!(
            !to.is_text(),
            "--tokenize: {} holds text alone: write a file that ends in .recordio, .tfrecord or .parquet",
            to.name()
        );
        let bytes = std::fs::read(&said.file).with_context(|| said.file.display().to_string())?;
        Self::parse(&said.column, &said.file, &bytes, max_length)
    }

    #[cfg(feature = "text")]
    fn parse(column: &str, file: &Path, bytes: &[u8], max_length: usize) -> Result<Self> {
        match Tokenizer::parse(bytes, max_length) {
            Ok(tokenizer) => Ok(Self { column: column.to_string(), tokenizer }),
            Err(error) => bail!("{}: {error}", file.display()),
        }
    }

    #[cfg(not(feature = "text"))]
    fn parse(column: &str, _file: &Path, _bytes: &[u8], _max_length: usize) -> Result<Self> {
        let _ = Self { column: column.to_string() };
        bail!("--tokenize: this program was built without tokenizers (feature `models`)")
    }

    /// The columns that are written then.
    pub(super) fn columns(&self, columns: &[ColumnInfo]) -> Result<Vec<ColumnInfo>> {
        let mut columns = columns.to_vec();
        let found = columns.iter_mut().find(|column| column.name == self.column);
        let found =
            found.with_context(|| format!("--tokenize: there is no column {:?}", self.column))?;
        (found.kind, found.list) = (ColumnKind::Ints, true);
        Ok(columns)
    }

    /// The row with ids in the place of the text.
    pub(super) fn apply<'a>(&self, row: &'a Row<'a>) -> Result<Row<'a>, Error> {
        let mut columns = Vec::new();
        for (name, value) in row.columns() {
            let value = match name == self.column {
                true => Value::Ints(Cow::Owned(self.ids(value)?)),
                false => value.clone(),
            };
            columns.push((Cow::Borrowed(name), value));
        }
        Ok(Row::new(columns))
    }

    #[cfg(feature = "text")]
    fn ids(&self, value: &Value<'_>) -> Result<Vec<i64>, Error> {
        let refused =
            |reason: String| Error::Rejected(format!("column {:?}: {reason}", self.column));
        let text = match value {
            Value::Text(text) => Cow::Borrowed(*text),
            Value::Bytes(bytes) => match std::str::from_utf8(bytes) {
                Ok(text) => Cow::Borrowed(text),
                Err(_) => return Err(refused("it is no text".to_string())),
            },
            Value::Ints(items) if items.len() == 1 => Cow::Owned(items[0].to_string()),
            other => return Err(refused(format!("{} where text is due", other.kind()))),
        };
        self.tokenizer.encode(&text).map_err(refused)
    }

    #[cfg(not(feature = "text"))]
    fn ids(&self, _value: &Value<'_>) -> Result<Vec<i64>, Error> {
        Err(Error::Rejected("there are no tokenizers".to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_and_a_file_are_said() {
        let check = |said: &str, expected: Option<(&str, &str)>| {
            let found = said.parse::<TokenizedColumn>().ok();
            let expected = expected
                .map(|(column, file)| TokenizedColumn { column: column.into(), file: file.into() });
            assert_eq!(found, expected, "{said}");
        };
        check("text=models/a=b.json", Some(("text", "models/a=b.json")));
        check("text", None);
        check("=tokenizer.json", None);
        check("text=", None);
    }
}
