//! A table of an SQLite database as a shard, read in the order of a key so that a range starts by a look-up
//! and not by counting rows.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rusqlite::types::{Value as Key, ValueRef};
use rusqlite::{Connection, OpenFlags, Statement};

use crate::blob::Blob;
use crate::guard::guard;
use crate::open::{Opened, Opening};
use crate::reader::{Each, Extent, OneShard};
use crate::{Error, Row, Value};

/// Records between two keys that are kept.
const STRIDE: u64 = 1024;

pub(super) fn open(opening: Opening<'_>) -> Result<Opened, Error> {
    Ok(Opened::reader(SqliteTable::open(opening.path())?))
}

/// The file, table and key that a path such as `shop.db?table=orders&key=id` names.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Location {
    /// The database file.
    file: PathBuf,
    /// The table; the only one if left out.
    table: Option<String>,
    /// The column that orders the records, without nulls and repetitions; `rowid` if left out.
    key: Option<String>,
}

impl Location {
    /// Splits a path at the last `?` whose rest is a list of settings.
    fn parse(path: &Path) -> Result<Location, Error> {
        let mut location = Location { file: path.to_owned(), table: None, key: None };
        let Some((file, settings)) = path.to_str().and_then(|text| text.rsplit_once('?')) else {
            return Ok(location);
        };
        location.file = file.into();
        for setting in settings.split('&') {
            match setting.split_once('=') {
                Some(("table", name)) if !name.is_empty() => location.table = Some(name.to_owned()),
                Some(("key", name)) if !name.is_empty() => location.key = Some(name.to_owned()),
                _ => {
                    let reason = format!("{setting:?} is neither table=NAME nor key=COLUMN");
                    return Err(Error::form(path, reason));
                }
            }
        }
        Ok(location)
    }
}

/// An indexed table, which is one shard.
///
/// Integers, reals, text and blobs become integers, floats, text and bytes; a null is a column that the row
/// does not have.
#[derive(Debug)]
struct SqliteTable {
    /// The path as given, for messages.
    path: PathBuf,
    blob: Blob,
    /// Quoted for SQL.
    table: String,
    key: String,
    /// The keys of records 0, 1,024, 2,048 and so on.
    marks: Vec<Key>,
    records: u64,
    /// Notices commits of others, also those that are not in the file itself yet.
    watch: Mutex<Connection>,
    version: i64,
}

impl SqliteTable {
    /// Opens and indexes a table: `file.db`, or with settings `file.db?table=NAME&key=COLUMN`.
    fn open(path: &Path) -> Result<SqliteTable, Error> {
        let location = Location::parse(path)?;
        let blob = Blob::open(&location.file)?;
        check_size(&blob)?;
        let watch = connect(&location.file).map_err(|error| failed(path, error))?;
        let version = data_version(&watch).map_err(|error| failed(path, error))?;
        let table = quoted(&find_table(path, &watch, location.table.as_deref())?);
        let key = match &location.key {
            Some(key) => {
                check_key(path, &watch, &table, key)?;
                quoted(key)
            }
            None => "rowid".to_owned(),
        };
        let (marks, records) = index(&watch, &table, &key).map_err(|error| failed(path, error))?;
        let watch = Mutex::new(watch);
        let path = path.to_owned();
        Ok(SqliteTable { path, blob, table, key, marks, records, watch, version })
    }

    /// Refuses a database that is not the one that was indexed.
    fn verify(&self) -> Result<(), Error> {
        self.blob.verify()?;
        let now = data_version(&self.lock()).map_err(|error| failed(&self.path, error))?;
        if now == self.version {
            return Ok(());
        }
        Err(self.changed())
    }

    fn changed(&self) -> Error {
        Error::Changed { path: self.path.clone() }
    }

    /// A query of one pragma cannot leave the connection in a state that matters to the next.
    fn lock(&self) -> MutexGuard<'_, Connection> {
        self.watch.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OneShard for SqliteTable {
    fn extent(&self) -> Extent<'_> {
        Extent { path: &self.path, records: self.records }
    }

    fn read_range(&self, records: Range<u64>, each: &mut Each<'_>) -> Result<(), Error> {
        let mark = &self.marks[(records.start / STRIDE) as usize];
        self.verify()?;
        let fail = |error| failed(&self.path, error);
        let connection = connect(self.blob.path()).map_err(fail)?;
        let (table, key) = (&self.table, &self.key);
        let query =
            format!("SELECT * FROM {table} WHERE {key} >= ?1 ORDER BY {key} LIMIT ?2 OFFSET ?3");
        let mut statement = connection.prepare(&query).map_err(fail)?;
        let names = names(&self.path, &statement)?;
        let (count, skip) = (records.end - records.start, records.start % STRIDE);
        let parameters = rusqlite::params![mark, count as i64, skip as i64];
        let mut rows = statement.query(parameters).map_err(fail)?;
        for record in records {
            let found = rows.next().map_err(|error| damaged(&self.path, record, error))?;
            let found = found.ok_or_else(|| self.changed())?;
            row(&names, found)
                .and_then(|row| each(record, row))
                .map_err(|error| error.at(&self.path, None, record))?;
        }
        Ok(())
    }
}

/// Refuses a file that ends before its last page: SQLite itself would read some of these as tables with
/// fewer records (<https://www.sqlite.org/fileformat.html#the_database_header>).
fn check_size(blob: &Blob) -> Result<(), Error> {
    let mut header = [0; 32];
    if blob.size() < header.len() as u64 {
        return Err(Error::form(blob.path(), "too short for an sqlite database"));
    }
    blob.handle()?.read_exact_at(&mut header, 0).map_err(Error::io(blob.path()))?;
    let page = match u16::from_be_bytes([header[16], header[17]]) {
        1 => 1 << 16,
        bytes => u64::from(bytes),
    };
    let pages = u32::from_be_bytes([header[28], header[29], header[30], header[31]]);
    let (size, needed) = (blob.size(), page * u64::from(pages));
    if size >= needed {
        return Ok(());
    }
    let reason = format!("the header says {needed} bytes, but the file has {size}: truncated file");
    Err(Error::form(blob.path(), reason))
}

/// A connection that can change nothing and trusts nothing that the file says about its own structure.
fn connect(file: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(file, flags)?;
    connection.pragma_update(None, "trusted_schema", false)?;
    connection.pragma_update(None, "cell_size_check", true)?;
    Ok(connection)
}

fn data_version(connection: &Connection) -> rusqlite::Result<i64> {
    connection.pragma_query_value(None, "data_version", |row| row.get(0))
}

fn find_table(path: &Path, connection: &Connection, wanted: Option<&str>) -> Result<String, Error> {
    let query = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite\\_%' \
                 ESCAPE '\\' ORDER BY name";
    let list = || -> rusqlite::Result<Vec<String>> {
        connection.prepare(query)?.query_map([], |row| row.get(0))?.collect()
    };
    let tables = list().map_err(|error| failed(path, error))?;
    let known = tables.join(", ");
    let reason = match (wanted, &tables[..]) {
        (None, [only]) => return Ok(only.clone()),
        (None, []) => "the database has no tables".to_owned(),
        (None, _) => format!("which table? give one with ?table=NAME (there are: {known})"),
        (Some(name), _) if tables.iter().any(|table| table == name) => return Ok(name.to_owned()),
        (Some(name), _) => format!("no table {name:?} (there are: {known})"),
    };
    Err(Error::form(path, reason))
}

/// Refuses a key that does not name each record once.
fn check_key(path: &Path, connection: &Connection, table: &str, key: &str) -> Result<(), Error> {
    let wrong = |reason: String| Error::form(path, reason);
    let query = format!("SELECT * FROM {table} LIMIT 0");
    let statement = connection.prepare(&query).map_err(|error| failed(path, error))?;
    let known = names(path, &statement)?;
    // SQLite takes a quoted name that is no column as text, so the name is looked up first.
    if !known.iter().any(|name| name.eq_ignore_ascii_case(key)) {
        return Err(wrong(format!("no column {key:?} (the table has: {})", known.join(", "))));
    }
    let query = format!("SELECT count(*), count(DISTINCT {}) FROM {table}", quoted(key));
    let counts = connection.query_row(&query, [], |row| Ok((row.get(0)?, row.get(1)?)));
    let (all, different): (i64, i64) = counts.map_err(|error| failed(path, error))?;
    if all == different {
        return Ok(());
    }
    Err(wrong(format!("key {key:?} has {different} different values for {all} records")))
}

/// Every 1,024th key, and how many there are.
fn index(connection: &Connection, table: &str, key: &str) -> rusqlite::Result<(Vec<Key>, u64)> {
    let mut statement = connection.prepare(&format!("SELECT {key} FROM {table} ORDER BY {key}"))?;
    let mut rows = statement.query([])?;
    let (mut marks, mut records) = (Vec::new(), 0);
    while let Some(row) = rows.next()? {
        if records % STRIDE == 0 {
            marks.push(row.get(0)?);
        }
        records += 1;
    }
    Ok((marks, records))
}

/// The names of the columns; rusqlite panics at one that is not UTF-8.
fn names(path: &Path, statement: &Statement<'_>) -> Result<Vec<String>, Error> {
    guard(|| statement.column_names().map(str::to_owned).collect())
        .map_err(|reason| Error::form(path, reason))
}

fn row<'a>(names: &'a [String], found: &'a rusqlite::Row<'_>) -> Result<Row<'a>, Error> {
    let mut columns = Vec::with_capacity(names.len());
    for (number, name) in names.iter().enumerate() {
        let value = match found.get_ref(number).map_err(|error| Error::column(name, error))? {
            ValueRef::Null => continue,
            ValueRef::Integer(value) => Value::Ints(vec![value].into()),
            ValueRef::Real(value) => Value::Floats(vec![value as f32].into()),
            ValueRef::Text(text) => {
                Value::Text(std::str::from_utf8(text).map_err(|error| Error::column(name, error))?)
            }
            ValueRef::Blob(bytes) => Value::Bytes(bytes),
        };
        columns.push((name.as_str().into(), value));
    }
    Ok(Row::new(columns))
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A failure of the whole file.
fn failed(path: &Path, error: rusqlite::Error) -> Error {
    let advice = match is_damage(&error) {
        true => {
            ": the records cannot be counted, so none is read; sqlite3's .recover may save some"
        }
        false => "",
    };
    Error::form(path, format!("sqlite: {error}{advice}"))
}

/// A failure of one record of a table whose records could be counted.
fn damaged(path: &Path, record: u64, error: rusqlite::Error) -> Error {
    match is_damage(&error) {
        true => Error::Rejected(format!("sqlite: {error}")).at(path, None, record),
        false => failed(path, error),
    }
}

/// True when the file is at fault, and not the machine or another program that has it locked.
fn is_damage(error: &rusqlite::Error) -> bool {
    use rusqlite::ErrorCode::{DatabaseCorrupt, NotADatabase};
    matches!(error.sqlite_error_code(), Some(DatabaseCorrupt | NotADatabase))
}

#[cfg(test)]
mod tests;
