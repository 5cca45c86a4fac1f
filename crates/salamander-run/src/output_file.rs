//! Files that somebody asked for by name: its ending says the format, and a file is there completely or not at all.

use std::path::Path;

use salamander_data::Format;
use salamander_data::sink::{self, Sink};
use salamander_files::{Durability, PendingFile};

use crate::Error;

/// What records are written as.
pub(crate) const RECORD_FORMATS: [Format; 3] = [Format::Parquet, Format::Csv, Format::JsonLines];
/// What the trials of a search are written as.
pub(crate) const TRIAL_FORMATS: [Format; 3] = [Format::Parquet, Format::Csv, Format::Sqlite];

/// The format that the ending of a name stands for, if it is one of these.
pub(crate) fn format_of(path: &Path, allowed: &[Format]) -> Result<Format, Error> {
    let own = path.extension().and_then(|extension| extension.to_str());
    if let Some(format) = allowed.iter().find(|format| Some(ending(**format)) == own) {
        return Ok(*format);
    }
    let endings: Vec<String> =
        allowed.iter().map(|format| format!(".{}", ending(*format))).collect();
    let named = match endings.as_slice() {
        [others @ .., last] if !others.is_empty() => format!("{} or {last}", others.join(", ")),
        endings => endings.concat(),
    };
    Err(Error::Invalid(format!("{}: name a file that ends in {named}", path.display())))
}

/// The ending of files that are written here.
fn ending(format: Format) -> &'static str {
    match format {
        Format::Csv => "csv",
        Format::JsonLines => "jsonl",
        Format::Parquet => "parquet",
        Format::Sqlite => "sqlite",
        // Nothing is called so, and nobody allows it.
        _ => "",
    }
}

/// A file of records that is being written.
pub(crate) enum OutputFile {
    /// Lines go over as they are: a table has no room for what is no number.
    JsonLines(PendingFile),
    Table(Box<dyn Sink>),
}

impl OutputFile {
    /// Begins it.
    pub(crate) fn create(path: &Path, format: Format) -> Result<Self, Error> {
        if format == Format::JsonLines {
            let file = PendingFile::create(path, Durability::Synced);
            return Ok(Self::JsonLines(file.map_err(Error::io(path))?));
        }
        Ok(Self::Table(sink::create(path, format)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ending_says_the_format_and_an_unknown_one_is_told_what_there_is() {
        let of = |name: &str, allowed: &[Format]| {
            format_of(Path::new(name), allowed).map_err(|error| error.to_string())
        };
        assert_eq!(of("a.jsonl", &RECORD_FORMATS), Ok(Format::JsonLines));
        assert_eq!(of("a.b/c.csv", &RECORD_FORMATS), Ok(Format::Csv));
        assert_eq!(of("a.sqlite", &TRIAL_FORMATS), Ok(Format::Sqlite));
        for name in ["a.sqlite", "a.CSV", "a", "csv"] {
            let error = of(name, &RECORD_FORMATS).expect_err(name);
            let advice = "name a file that ends in .parquet, .csv or .jsonl";
            assert!(error.ends_with(&format!("{name}: {advice}")), "{error}");
        }
        let error = of("a.jsonl", &TRIAL_FORMATS).expect_err("no table");
        assert!(error.ends_with("name a file that ends in .parquet, .csv or .sqlite"), "{error}");
    }
}
