//! Notices files that are not what they are taken for: cells that another sign separates, and a first row that is a
//! record. They are refused with the setting to write: a guess would be right nearly always, and silently wrong else.

use std::path::Path;

use csv::ByteRecord;

use crate::Error;
use crate::dialect::{ColumnNames, Dialect};

/// Signs that people put between cells, and what settings call them.
const SEPARATORS: [(char, &str); 4] = [(',', ","), (';', ";"), ('\t', "tab"), ('|', "|")];

/// Refuses a header that looks like one cell of several, or like a record.
pub(super) fn check_header(
    path: &Path,
    dialect: &Dialect,
    told: bool,
    names: &[String],
) -> Result<(), Error> {
    if let [only] = names {
        check_separator(path, dialect, only)?;
    }
    let number = |name: &String| name.trim().parse::<f64>().is_ok_and(f64::is_finite);
    // Years may be names of columns, but not all columns are years, and no year has a fraction.
    let odd = |name: &&String| number(name) && name.contains(['.', '-', '+']);
    let found = match names.iter().all(number) {
        true => names.first(),
        false => names.iter().find(odd),
    };
    match found.filter(|_| !told) {
        Some(name) => Err(Error::form(
            path,
            format!(
                "line 1 looks like a record, not like a header row ({name:?} is a number): say `header: no` or \
                 the names of the columns (--header no, --header a,b,c; in an experiment data: {{csv: {{header: \
                 [a, b, c]}}}}), or `header: yes` if these are the names"
            ),
        )),
        None => Ok(()),
    }
}

/// Refuses the first record of a file without a header, if that looks like one cell of several.
pub(super) fn check_record(
    path: &Path,
    dialect: &Dialect,
    fields: &ByteRecord,
) -> Result<(), Error> {
    let headless = matches!(dialect.names, ColumnNames::Given(_) | ColumnNames::Numbered);
    match (headless, fields.len(), fields.get(0).map(std::str::from_utf8)) {
        (true, 1, Some(Ok(only))) => check_separator(path, dialect, only),
        _ => Ok(()),
    }
}

fn check_separator(path: &Path, dialect: &Dialect, only: &str) -> Result<(), Error> {
    let mine = char::from(dialect.delimiter);
    let others = SEPARATORS.iter().filter(|(sign, _)| *sign != mine);
    let counted = others.map(|(sign, name)| (only.matches(*sign).count(), name));
    // Of equally frequent signs the first, which is the more usual one.
    let found = counted.rev().max_by_key(|(count, _)| *count).filter(|(count, _)| *count > 0);
    match found.filter(|_| !dialect.delimiter_told) {
        Some((count, name)) => {
            let mine = if mine == '\t' { "tab".to_owned() } else { mine.to_string() };
            let times = if count == 1 { "once".to_owned() } else { format!("{count} times") };
            Err(Error::form(
                path,
                format!(
                    "line 1 has one column by the separator {mine:?}, with {name:?} in it {times}: say `separator: \
                     {name:?}` (in an experiment data: {{csv: {{separator: {name:?}}}}}; for `data` and `new` \
                     --separator '{name}'; for a model that is trained, first `salamander data convert FILE \
                     --separator '{name}' --out NEW.csv`), or `separator: {mine:?}` if it is one column"
                ),
            ))
        }
        None => Ok(()),
    }
}
