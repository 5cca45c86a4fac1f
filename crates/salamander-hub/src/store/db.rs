//! What SQLite and Postgres have in common: statements with `?1` for values, rows, errors. The SQL of the store is
//! written once, in the words that both know; the few that they do not share are in [`SqlDialect`].
//!
//! # Layout
//! - [`Db`]: a connection; [`PreparedQuery`]: a statement of it; [`DbRow`]: what it gives
//! - `pg`: the connection to a Postgres server

#[cfg(feature = "postgres")]
pub(super) mod pg;
#[cfg(feature = "postgres")]
pub(super) mod pg_tls;

#[cfg(feature = "postgres")]
use std::cell::RefCell;

pub(crate) use rusqlite::params;
use rusqlite::types::{FromSql, ToSql, Value, ValueRef};
use rusqlite::{CachedStatement, Connection};

/// Why a statement failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DbError {
    /// As SQLite says it.
    #[error("{0}")]
    Sqlite(#[from] rusqlite::Error),
    /// As Postgres says it.
    #[cfg(feature = "postgres")]
    #[error("{}", pg::said(.0))]
    Postgres(#[from] postgres::Error),
    /// There is no row where one was asked for.
    #[error("there is no such row")]
    NoRow,
    /// A value is of another type than its column.
    #[error("{0}")]
    Type(String),
}

impl DbError {
    /// Whether the connection is gone, so that another one may do better.
    pub(crate) fn is_lost(&self) -> bool {
        match self {
            #[cfg(feature = "postgres")]
            Self::Postgres(error) => pg::is_lost(error),
            _ => false,
        }
    }
}

/// What differs between the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SqlDialect {
    Sqlite,
    #[cfg(feature = "postgres")]
    Postgres,
}

impl SqlDialect {
    /// Whether a block of a log has the words of the value in this place.
    pub(crate) fn has_words(self, place: &str) -> String {
        match self {
            Self::Sqlite => format!("log_words MATCH {place}"),
            #[cfg(feature = "postgres")]
            Self::Postgres => format!("log_words.text @@ CAST(CAST({place} AS TEXT) AS TSQUERY)"),
        }
    }

    /// All of these words in one block; the last one may be a beginning.
    pub(crate) fn words(self, words: &[String]) -> String {
        let (quote, and, beginning) = match self {
            Self::Sqlite => ("\"", " AND ", "*"),
            #[cfg(feature = "postgres")]
            Self::Postgres => ("'", " & ", ":*"),
        };
        let mut terms: Vec<String> =
            words.iter().map(|word| format!("{quote}{}{quote}", self.word(word))).collect();
        if let Some(last) = terms.last_mut() {
            last.push_str(beginning);
        }
        terms.join(and)
    }

    /// What the index of words is given for a text, and the statement that gives it.
    pub(crate) fn index(self, text: &str) -> (&'static str, std::borrow::Cow<'_, str>) {
        match self {
            Self::Sqlite => ("INSERT INTO log_words (rowid, text) VALUES (?1, ?2)", text.into()),
            #[cfg(feature = "postgres")]
            Self::Postgres => {
                let sql = "INSERT INTO log_words (rowid, text) \
                           VALUES (?1, array_to_tsvector(string_to_array(?2, ' ')))";
                let mut all: Vec<String> = super::logs::words(text);
                all.iter_mut().for_each(|word| word.truncate(self.word(word).len()));
                all.sort_unstable();
                all.dedup();
                // A value has at most a megabyte of words: a line of millions of them is found by some.
                let mut room = 1_usize << 19;
                all.retain(|word| {
                    let fits = word.len() <= room;
                    room -= word.len().min(room);
                    fits
                });
                (sql, all.join(" ").into())
            }
        }
    }

    /// As much of a word as an index holds: Postgres has a limit.
    fn word(self, word: &str) -> &str {
        match self {
            Self::Sqlite => word,
            #[cfg(feature = "postgres")]
            Self::Postgres => &word[..word.floor_char_boundary(200)],
        }
    }

    /// A value inside of a column of JSON, to sort by; `?` is its path.
    pub(crate) fn json_key(self, column: &str) -> String {
        match self {
            Self::Sqlite => format!("json_extract({column}, ?)"),
            #[cfg(feature = "postgres")]
            Self::Postgres => format!("json_sort_key({column}, ?)"),
        }
    }

    /// Where a text is in another, from 1; 0: nowhere.
    pub(crate) fn find(self, text: &str, part: &str) -> String {
        match self {
            Self::Sqlite => format!("instr({text}, {part})"),
            #[cfg(feature = "postgres")]
            Self::Postgres => format!("strpos({text}, {part})"),
        }
    }
}

/// A connection.
pub(crate) enum Db {
    Sqlite(Connection),
    #[cfg(feature = "postgres")]
    Postgres(Box<RefCell<pg::Pg>>),
}

impl Db {
    pub(crate) fn dialect(&self) -> SqlDialect {
        match self {
            Self::Sqlite(_) => SqlDialect::Sqlite,
            #[cfg(feature = "postgres")]
            Self::Postgres(_) => SqlDialect::Postgres,
        }
    }

    /// A statement, which is kept for the next time.
    pub(crate) fn prepare_cached(&self, sql: &str) -> Result<PreparedQuery<'_>, DbError> {
        match self {
            Self::Sqlite(db) => Ok(PreparedQuery::Sqlite(db.prepare_cached(sql)?)),
            #[cfg(feature = "postgres")]
            Self::Postgres(db) => {
                let statement = db.borrow_mut().prepare(sql)?;
                Ok(PreparedQuery::Postgres { db: db.as_ref(), statement })
            }
        }
    }

    pub(crate) fn execute(&self, sql: &str, values: impl QueryValues) -> Result<usize, DbError> {
        self.prepare_cached(sql)?.execute(values)
    }

    /// Statements without values.
    pub(crate) fn execute_batch(&self, sql: &str) -> Result<(), DbError> {
        match self {
            Self::Sqlite(db) => Ok(db.execute_batch(sql)?),
            #[cfg(feature = "postgres")]
            Self::Postgres(db) => Ok(db.borrow_mut().batch(sql)?),
        }
    }

    /// Whether it still answers; a file always does.
    pub(crate) fn answers(&self) -> bool {
        match self {
            Self::Sqlite(_) => true,
            #[cfg(feature = "postgres")]
            Self::Postgres(db) => db.borrow_mut().answers(),
        }
    }
}

/// A statement that is ready.
pub(crate) enum PreparedQuery<'a> {
    Sqlite(CachedStatement<'a>),
    #[cfg(feature = "postgres")]
    Postgres {
        db: &'a RefCell<pg::Pg>,
        statement: postgres::Statement,
    },
}

impl PreparedQuery<'_> {
    /// Does it; says how many rows were changed.
    pub(crate) fn execute(&mut self, values: impl QueryValues) -> Result<usize, DbError> {
        match self {
            Self::Sqlite(statement) => {
                Ok(statement.execute(rusqlite::params_from_iter(values.values()))?)
            }
            #[cfg(feature = "postgres")]
            Self::Postgres { db, statement } => {
                db.borrow_mut().execute(statement, &values.values())
            }
        }
    }

    /// Every row, read.
    pub(crate) fn query_map<T>(
        &mut self,
        values: impl QueryValues,
        mut read: impl FnMut(&DbRow<'_>) -> Result<T, DbError>,
    ) -> Result<std::vec::IntoIter<Result<T, DbError>>, DbError> {
        let mut found = Vec::new();
        match self {
            Self::Sqlite(statement) => {
                let mut rows = statement.query(rusqlite::params_from_iter(values.values()))?;
                while let Some(row) = rows.next()? {
                    found.push(read(&DbRow::Sqlite(row)));
                }
            }
            #[cfg(feature = "postgres")]
            Self::Postgres { db, statement } => {
                let rows = db.borrow_mut().query(statement, &values.values())?;
                for row in &rows {
                    found.push(read(&DbRow::Postgres(row)));
                }
            }
        }
        Ok(found.into_iter())
    }

    /// The first row, read.
    pub(crate) fn query_row<T>(
        &mut self,
        values: impl QueryValues,
        mut read: impl FnMut(&DbRow<'_>) -> Result<T, DbError>,
    ) -> Result<T, DbError> {
        match self {
            Self::Sqlite(statement) => {
                let mut rows = statement.query(rusqlite::params_from_iter(values.values()))?;
                match rows.next()? {
                    Some(row) => read(&DbRow::Sqlite(row)),
                    None => Err(DbError::NoRow),
                }
            }
            #[cfg(feature = "postgres")]
            Self::Postgres { .. } => {
                self.query_map(values, read)?.next().unwrap_or(Err(DbError::NoRow))
            }
        }
    }

    /// Whether there is a row.
    pub(crate) fn exists(&mut self, values: impl QueryValues) -> Result<bool, DbError> {
        Ok(self.query_row(values, |_| Ok(())).optional()?.is_some())
    }
}

/// No row is no error.
pub(crate) trait OptionalExtension<T> {
    fn optional(self) -> Result<Option<T>, DbError>;
}

impl<T> OptionalExtension<T> for Result<T, DbError> {
    fn optional(self) -> Result<Option<T>, DbError> {
        match self {
            Ok(found) => Ok(Some(found)),
            Err(DbError::NoRow) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// The values of a statement: an array, what `params!` gives, or `()` for none.
pub(crate) trait QueryValues {
    fn values(&self) -> Vec<&dyn ToSql>;
}

impl QueryValues for () {
    fn values(&self) -> Vec<&dyn ToSql> {
        Vec::new()
    }
}

impl<T: ToSql, const N: usize> QueryValues for [T; N] {
    fn values(&self) -> Vec<&dyn ToSql> {
        self.iter().map(|value| value as &dyn ToSql).collect()
    }
}

impl<T: ToSql> QueryValues for &[T] {
    fn values(&self) -> Vec<&dyn ToSql> {
        self.iter().map(|value| value as &dyn ToSql).collect()
    }
}

impl QueryValues for &Vec<Value> {
    fn values(&self) -> Vec<&dyn ToSql> {
        self.iter().map(|value| value as &dyn ToSql).collect()
    }
}

/// A row.
pub(crate) enum DbRow<'a> {
    Sqlite(&'a rusqlite::Row<'a>),
    #[cfg(feature = "postgres")]
    Postgres(&'a [Value]),
}

impl DbRow<'_> {
    /// A column by its number, from 0.
    pub(crate) fn get<T: FromSql>(&self, column: usize) -> Result<T, DbError> {
        let read = T::column_result(self.get_ref(column)?);
        read.map_err(|error| DbError::Type(format!("column {column}: {error}")))
    }

    /// A column as it is.
    pub(crate) fn get_ref(&self, column: usize) -> Result<ValueRef<'_>, DbError> {
        match self {
            Self::Sqlite(row) => Ok(row.get_ref(column)?),
            #[cfg(feature = "postgres")]
            Self::Postgres(row) => row.get(column).map(ValueRef::from).ok_or(DbError::NoRow),
        }
    }

    /// Bytes of a column.
    pub(crate) fn blob(&self, column: usize) -> Result<&[u8], DbError> {
        let wrong = |_| DbError::Type(format!("column {column} has no bytes"));
        self.get_ref(column)?.as_blob().map_err(wrong)
    }

    /// How many columns there are.
    pub(crate) fn columns(&self) -> usize {
        match self {
            Self::Sqlite(row) => row.as_ref().column_count(),
            #[cfg(feature = "postgres")]
            Self::Postgres(row) => row.len(),
        }
    }
}
