//! How a file of delimited text is written down: with a header row, or as one of the public files that
//! recommenders are measured on, which have none.

use std::path::Path;

use crate::Format;

/// The columns of UCI's `adult.data` (<https://archive.ics.uci.edu/dataset/2/adult>); `label` is 1 above 50K.
pub const CENSUS_COLUMNS: [&str; 15] = [
    "age",
    "workclass",
    "fnlwgt",
    "education",
    "education_num",
    "marital_status",
    "occupation",
    "relationship",
    "race",
    "sex",
    "capital_gain",
    "capital_loss",
    "hours_per_week",
    "native_country",
    "label",
];

/// The columns of Criteo's `train.txt` (<https://www.kaggle.com/c/criteo-display-ad-challenge>); `test.txt`
/// has no label.
pub const CRITEO_COLUMNS: [&str; 40] = [
    "label", "I1", "I2", "I3", "I4", "I5", "I6", "I7", "I8", "I9", "I10", "I11", "I12", "I13",
    "C1", "C2", "C3", "C4", "C5", "C6", "C7", "C8", "C9", "C10", "C11", "C12", "C13", "C14", "C15",
    "C16", "C17", "C18", "C19", "C20", "C21", "C22", "C23", "C24", "C25", "C26",
];

/// The columns of MovieLens' `ratings.dat` (<https://grouplens.org/datasets/movielens/1m/>), named as in the
/// header of `ratings.csv`, so that the same model reads both.
pub const MOVIELENS_COLUMNS: [&str; 4] = ["userId", "movieId", "rating", "timestamp"];

/// The way a file of delimited text is written down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// A header row; commas, and quotes where a field needs them.
    Commas,
    /// A header row and tabs.
    Tabs,
    /// `39, State-gov, 77516, ...`, `?` for what is missing, and `>50K` for the label. Lines that begin with `|`
    /// are remarks, and the labels of `adult.test` end in a full stop.
    Census,
    /// Tabs, the label first, nothing between two tabs for what is missing.
    Criteo,
    /// `1::1193::5::978300760`.
    MovieLens,
}

impl Dialect {
    /// The dialect of a format; `.tsv` and `.tab` have tabs between fields, all other CSV files commas.
    pub(crate) fn of(format: Format, path: &Path) -> Dialect {
        let extension = path.extension().and_then(|extension| extension.to_str());
        let tabs =
            extension.is_some_and(|e| ["tsv", "tab"].iter().any(|t| t.eq_ignore_ascii_case(e)));
        match format {
            Format::Census => Dialect::Census,
            Format::Criteo => Dialect::Criteo,
            Format::MovieLens => Dialect::MovieLens,
            _ if tabs => Dialect::Tabs,
            _ => Dialect::Commas,
        }
    }

    /// The names of the columns, where the file has no row of them.
    pub(crate) fn columns(self) -> Option<&'static [&'static str]> {
        match self {
            Dialect::Commas | Dialect::Tabs => None,
            Dialect::Census => Some(&CENSUS_COLUMNS),
            Dialect::Criteo => Some(&CRITEO_COLUMNS),
            Dialect::MovieLens => Some(&MOVIELENS_COLUMNS),
        }
    }

    /// The byte between two fields.
    pub(crate) fn delimiter(self) -> u8 {
        match self {
            Dialect::Commas | Dialect::Census => b',',
            Dialect::Tabs | Dialect::Criteo => b'\t',
            Dialect::MovieLens => b':',
        }
    }

    /// Every how many fields there is a value: with two colons in a row there is an empty one between two.
    pub(crate) fn step(self) -> usize {
        if self == Dialect::MovieLens { 2 } else { 1 }
    }

    /// A reader of this dialect. Field counts are not compared by the csv crate, which would compare with the
    /// first record after a seek instead of the header.
    pub(crate) fn reader(self) -> csv::ReaderBuilder {
        let mut builder = csv::ReaderBuilder::new();
        builder.delimiter(self.delimiter()).flexible(true);
        if self.columns().is_some() {
            builder.has_headers(false).quoting(false);
        }
        if self == Dialect::Census {
            builder.trim(csv::Trim::All).comment(Some(self.remark()));
        }
        builder
    }

    /// The byte that a line to skip begins with; a line end where there are no such lines.
    pub(crate) fn remark(self) -> u8 {
        if self == Dialect::Census { b'|' } else { b'\n' }
    }

    /// What a field says, in the words of all other formats: nothing for what is missing, 0 and 1 for labels.
    pub(crate) fn read<'a>(self, column: &str, field: &'a str) -> &'a str {
        match (self, column, field) {
            (Dialect::Census, "label", ">50K" | ">50K.") => "1",
            (Dialect::Census, "label", "<=50K" | "<=50K.") => "0",
            (Dialect::Census, _, "?") => "",
            _ => field,
        }
    }

    /// The opposite of [`Dialect::read`]; nothing for what the dialect cannot hold.
    pub(crate) fn write<'a>(self, column: &str, value: &'a str) -> Option<&'a str> {
        let separator: &[char] = match self {
            Dialect::Commas | Dialect::Tabs => return Some(value),
            Dialect::Census => &[',', '\n', '\r'],
            Dialect::Criteo => &['\t', '\n', '\r'],
            Dialect::MovieLens => &[':', '\n', '\r'],
        };
        match (self, column, value) {
            (Dialect::Census, "label", "1") => Some(">50K"),
            (Dialect::Census, "label", "0") => Some("<=50K"),
            (Dialect::Census, _, "") => Some("?"),
            _ => (!value.contains(separator)).then_some(value),
        }
    }

    /// What stands between two values when this is written.
    pub(crate) fn between(self) -> &'static str {
        match self {
            Dialect::Commas => ",",
            Dialect::Tabs | Dialect::Criteo => "\t",
            Dialect::Census => ", ",
            Dialect::MovieLens => "::",
        }
    }
}
