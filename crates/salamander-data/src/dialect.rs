//! How a file of delimited text is written down: with a header row, or as one of the public files that
//! recommenders are measured on, which have none.

use std::path::Path;

use salamander_core::experiment::{CsvHeader, CsvSettings};

use crate::format::Definition;
use crate::gzip::without_gz;
use crate::{delimited, sink};

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

/// Words that stand for a missing value in files of R, pandas, SQL and UCI.
pub const MISSING_WORDS: [&str; 7] = ["NA", "N/A", "NaN", "nan", "null", "NULL", "?"];

/// The way a file of delimited text is written down.
#[derive(Clone, Debug)]
pub(crate) struct Dialect {
    pub(crate) names: ColumnNames,
    /// Whether a cell in quotes can hold what separates cells.
    quotes: bool,
    /// What stands between two fields when this is written.
    pub(crate) between: &'static str,
    /// The byte of that which fields are cut at.
    pub(crate) delimiter: u8,
    /// Whether somebody said that byte, so that a file that does not look like it is taken as it is.
    pub(crate) delimiter_told: bool,
    /// Whether spaces around fields do not count.
    trim: bool,
    /// The byte that a line to skip begins with; a line end where there are no such lines.
    pub(crate) remark: u8,
    /// Whether the first column may be absent from all records: those to predict.
    pub(crate) may_lack_first: bool,
    /// Words that all other formats have another one for.
    spellings: &'static [Spelling],
    /// Words that stand for nothing.
    missing: Vec<String>,
}

/// Where the names of the columns come from.
#[derive(Clone, Debug)]
pub(crate) enum ColumnNames {
    /// The first row; one that looks like a record is refused unless somebody said that it is none.
    FirstRow { told: bool },
    /// The format has them.
    Fixed(&'static [&'static str]),
    /// Somebody said them.
    Given(Vec<String>),
    /// Nobody did: they are numbered.
    Numbered,
}

/// How a value is written in a file; of several ways to write a value the first is ours.
#[derive(Debug)]
struct Spelling {
    /// Nothing for all columns.
    column: Option<&'static str>,
    field: &'static str,
    value: &'static str,
}

/// A header row; commas, and quotes where a field needs them.
fn commas() -> Dialect {
    Dialect {
        names: ColumnNames::FirstRow { told: false },
        quotes: true,
        between: ",",
        delimiter: b',',
        delimiter_told: false,
        trim: false,
        remark: b'\n',
        may_lack_first: false,
        spellings: &[],
        missing: Vec::new(),
    }
}

/// A file of a public data set, which has the same columns everywhere, and no header and quotes.
fn fixed(columns: &'static [&'static str]) -> Dialect {
    Dialect { names: ColumnNames::Fixed(columns), quotes: false, ..commas() }
}

/// A header row and tabs.
fn tabs() -> Dialect {
    Dialect { between: "\t", delimiter: b'\t', ..commas() }
}

/// `39, State-gov, 77516, ...`, `?` for what is missing, and `>50K` for the label. Lines that begin with `|`
/// are remarks, and the labels of `adult.test` end in a full stop.
fn of_census() -> Dialect {
    Dialect {
        between: ", ",
        trim: true,
        remark: b'|',
        spellings: &[
            Spelling { column: Some("label"), field: ">50K", value: "1" },
            Spelling { column: Some("label"), field: ">50K.", value: "1" },
            Spelling { column: Some("label"), field: "<=50K", value: "0" },
            Spelling { column: Some("label"), field: "<=50K.", value: "0" },
            Spelling { column: None, field: "?", value: "" },
        ],
        ..fixed(&CENSUS_COLUMNS)
    }
}

/// Tabs, the label first, nothing between two tabs for what is missing.
fn of_criteo() -> Dialect {
    Dialect { between: "\t", delimiter: b'\t', may_lack_first: true, ..fixed(&CRITEO_COLUMNS) }
}

/// `1::1193::5::978300760`.
pub(crate) fn of_movielens() -> Dialect {
    Dialect { between: "::", delimiter: b':', ..fixed(&MOVIELENS_COLUMNS) }
}

pub(crate) static CSV: Definition = Definition {
    endings: &["csv", "tsv", "tab"],
    open: Some(|opening| {
        let dialect = Dialect::with_header(opening.path()).told(opening.csv());
        delimited::open(opening, dialect)
    }),
    create: Some(|path| sink::delimited::create(path, Dialect::with_header(path))),
    ..text("csv")
};

pub(crate) static CENSUS: Definition = Definition {
    endings: &["census"],
    is_named: |name| name == "adult.data" || name == "adult.test",
    open: Some(|opening| delimited::open(opening, of_census())),
    create: Some(|path| sink::delimited::create(path, of_census())),
    ..text("census")
};

pub(crate) static CRITEO: Definition = Definition {
    endings: &["criteo"],
    open: Some(|opening| delimited::open(opening, of_criteo())),
    create: Some(|path| sink::delimited::create(path, of_criteo())),
    ..text("criteo")
};

pub(crate) static MOVIELENS: Definition = Definition {
    endings: &["movielens"],
    is_named: |name| name == "ratings.dat",
    open: Some(|opening| delimited::open(opening, of_movielens())),
    create: Some(|path| sink::delimited::create(path, of_movielens())),
    ..text("movielens")
};

const fn text(name: &'static str) -> Definition {
    Definition { text: true, gzip: true, ..Definition::named(name) }
}

impl Dialect {
    /// `.tsv` and `.tab` have tabs between fields, all other CSV files commas.
    pub(crate) fn with_header(path: &Path) -> Dialect {
        let plain = without_gz(path);
        let ending = plain.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
        let with_tabs = ["tsv", "tab"].iter().any(|tabs| tabs.eq_ignore_ascii_case(ending));
        if with_tabs { tabs() } else { commas() }
    }

    /// The same with what somebody said of it.
    pub(crate) fn told(mut self, settings: &CsvSettings) -> Dialect {
        let dialect = &mut self;
        if let Some(separator) = settings.separator {
            (dialect.delimiter, dialect.delimiter_told) = (separator.byte(), true);
        }
        match &settings.header {
            None => {}
            Some(CsvHeader::Yes) => dialect.names = ColumnNames::FirstRow { told: true },
            Some(CsvHeader::No) => dialect.names = ColumnNames::Numbered,
            Some(CsvHeader::Names(names)) => dialect.names = ColumnNames::Given(names.clone()),
        }
        dialect.trim |= settings.trim;
        dialect.missing.clone_from(&settings.missing);
        self
    }

    /// The columns of a format that has the same ones everywhere.
    pub(crate) fn fixed_columns(&self) -> Option<&'static [&'static str]> {
        match self.names {
            ColumnNames::Fixed(columns) => Some(columns),
            _ => None,
        }
    }

    /// Every how many fields there is a value: with two colons in a row there is an empty one between two.
    pub(crate) fn step(&self) -> usize {
        self.between.bytes().filter(|byte| *byte == self.delimiter).count().max(1)
    }

    /// A reader of this dialect. Field counts are not compared by the csv crate, which would compare with the
    /// first record after a seek instead of the header.
    pub(crate) fn reader(&self) -> csv::ReaderBuilder {
        let mut builder = csv::ReaderBuilder::new();
        builder.delimiter(self.delimiter).flexible(true);
        builder
            .has_headers(matches!(self.names, ColumnNames::FirstRow { .. }))
            .quoting(self.quotes);
        if self.trim {
            builder.trim(csv::Trim::All);
        }
        if self.remark != b'\n' {
            builder.comment(Some(self.remark));
        }
        builder
    }

    /// What a field says, in the words of all other formats: nothing for what is missing, 0 and 1 for labels.
    pub(crate) fn read<'a>(&self, column: &str, field: &'a str) -> &'a str {
        if self.missing.iter().any(|word| word == field.trim()) {
            return "";
        }
        let spelling = self.spellings.iter().find(|way| way.field == field && way.is_of(column));
        spelling.map_or(field, |way| way.value)
    }

    /// The opposite of [`Dialect::read`]; nothing for what the dialect cannot hold.
    pub(crate) fn write<'a>(&self, column: &str, value: &'a str) -> Option<&'a str> {
        let spelling = self.spellings.iter().find(|way| way.value == value && way.is_of(column));
        let field = spelling.map_or(value, |way| way.field);
        let cuts = |sign: char| matches!(sign, '\n' | '\r') || sign == char::from(self.delimiter);
        (self.quotes || !field.contains(cuts)).then_some(field)
    }
}

impl Spelling {
    fn is_of(&self, column: &str) -> bool {
        self.column.is_none_or(|mine| mine == column)
    }
}
