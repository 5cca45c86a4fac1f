//! How a file of delimited text is written down: with a header row, or as one of the public files that
//! recommenders are measured on, which have none.

use std::path::Path;

use crate::format::Definition;
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

/// The way a file of delimited text is written down.
#[derive(Debug)]
pub(crate) struct Dialect {
    /// The names of the columns, where the file has no row of them; such files have no quotes either.
    pub(crate) columns: Option<&'static [&'static str]>,
    /// What stands between two fields when this is written.
    pub(crate) between: &'static str,
    /// The byte of that which fields are cut at.
    pub(crate) delimiter: u8,
    /// Whether spaces around fields do not count.
    trim: bool,
    /// The byte that a line to skip begins with; a line end where there are no such lines.
    pub(crate) remark: u8,
    /// Whether the first column may be absent from all records: those to predict.
    pub(crate) may_lack_first: bool,
    /// Words that all other formats have another one for.
    spellings: &'static [Spelling],
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
const COMMAS: Dialect = Dialect {
    columns: None,
    between: ",",
    delimiter: b',',
    trim: false,
    remark: b'\n',
    may_lack_first: false,
    spellings: &[],
};

static WITH_COMMAS: Dialect = COMMAS;

/// A header row and tabs.
static WITH_TABS: Dialect = Dialect { between: "\t", delimiter: b'\t', ..COMMAS };

/// `39, State-gov, 77516, ...`, `?` for what is missing, and `>50K` for the label. Lines that begin with `|`
/// are remarks, and the labels of `adult.test` end in a full stop.
static OF_CENSUS: Dialect = Dialect {
    columns: Some(&CENSUS_COLUMNS),
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
    ..COMMAS
};

/// Tabs, the label first, nothing between two tabs for what is missing.
static OF_CRITEO: Dialect = Dialect {
    columns: Some(&CRITEO_COLUMNS),
    between: "\t",
    delimiter: b'\t',
    may_lack_first: true,
    ..COMMAS
};

/// `1::1193::5::978300760`.
pub(crate) static OF_MOVIELENS: Dialect =
    Dialect { columns: Some(&MOVIELENS_COLUMNS), between: "::", delimiter: b':', ..COMMAS };

pub(crate) static CSV: Definition = Definition {
    endings: &["csv", "tsv", "tab"],
    open: Some(|opening| delimited::open(opening, Dialect::with_header)),
    create: Some(|path| sink::delimited::create(path, Dialect::with_header(path))),
    ..text("csv")
};

pub(crate) static CENSUS: Definition = Definition {
    endings: &["census"],
    is_named: |name| name == "adult.data" || name == "adult.test",
    open: Some(|opening| delimited::open(opening, |_| &OF_CENSUS)),
    create: Some(|path| sink::delimited::create(path, &OF_CENSUS)),
    ..text("census")
};

pub(crate) static CRITEO: Definition = Definition {
    endings: &["criteo"],
    open: Some(|opening| delimited::open(opening, |_| &OF_CRITEO)),
    create: Some(|path| sink::delimited::create(path, &OF_CRITEO)),
    ..text("criteo")
};

pub(crate) static MOVIELENS: Definition = Definition {
    endings: &["movielens"],
    is_named: |name| name == "ratings.dat",
    open: Some(|opening| delimited::open(opening, |_| &OF_MOVIELENS)),
    create: Some(|path| sink::delimited::create(path, &OF_MOVIELENS)),
    ..text("movielens")
};

const fn text(name: &'static str) -> Definition {
    Definition { text: true, ..Definition::named(name) }
}

impl Dialect {
    /// `.tsv` and `.tab` have tabs between fields, all other CSV files commas.
    pub(crate) fn with_header(path: &Path) -> &'static Dialect {
        let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
        let tabs = ["tsv", "tab"].iter().any(|tabs| tabs.eq_ignore_ascii_case(ending));
        if tabs { &WITH_TABS } else { &WITH_COMMAS }
    }

    /// Every how many fields there is a value: with two colons in a row there is an empty one between two.
    pub(crate) fn step(&self) -> usize {
        self.between.bytes().filter(|byte| *byte == self.delimiter).count()
    }

    /// A reader of this dialect. Field counts are not compared by the csv crate, which would compare with the
    /// first record after a seek instead of the header.
    pub(crate) fn reader(&self) -> csv::ReaderBuilder {
        let mut builder = csv::ReaderBuilder::new();
        builder.delimiter(self.delimiter).flexible(true);
        if self.columns.is_some() {
            builder.has_headers(false).quoting(false);
        }
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
        let spelling = self.spellings.iter().find(|way| way.field == field && way.is_of(column));
        spelling.map_or(field, |way| way.value)
    }

    /// The opposite of [`Dialect::read`]; nothing for what the dialect cannot hold.
    pub(crate) fn write<'a>(&self, column: &str, value: &'a str) -> Option<&'a str> {
        let spelling = self.spellings.iter().find(|way| way.value == value && way.is_of(column));
        let field = spelling.map_or(value, |way| way.field);
        let cuts = |sign: char| matches!(sign, '\n' | '\r') || sign == char::from(self.delimiter);
        (self.columns.is_none() || !field.contains(cuts)).then_some(field)
    }
}

impl Spelling {
    fn is_of(&self, column: &str) -> bool {
        self.column.is_none_or(|mine| mine == column)
    }
}
