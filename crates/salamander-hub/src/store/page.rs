//! Pages of a list: sorted by anything, gone on with after the last row that was seen, whatever was added meanwhile.

use rusqlite::types::Value;
use serde::{Deserialize, Serialize};

use super::db::{Db, DbError, DbRow};
use crate::Error;

/// Rows of a page unless told otherwise, and at most.
const ROWS: usize = 50;
const MOST: usize = 1000;
/// Names of one parameter: each is looked up for each row.
const NAMES: usize = 2000;

/// A page of a list.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Page<T> {
    /// The rows.
    pub items: Vec<T>,
    /// What to ask for the next page with, if there is one.
    pub next: Option<String>,
    /// Rows of all pages.
    pub total: u64,
}

/// What the rows of a list are to be.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ListQuery {
    /// Rows of a page, 50 unless told otherwise, 1000 at most.
    pub limit: Option<usize>,
    /// Where the page before ended.
    pub cursor: Option<String>,
    /// What to sort by; `-` in front: the largest first.
    pub sort: Option<String>,
    /// Only rows in one of these states, with commas between.
    pub state: Option<String>,
    /// Only rows whose experiment has this label.
    pub label: Option<String>,
    /// Only rows of this model.
    pub model: Option<String>,
    /// Only rows with this in their name.
    pub name: Option<String>,
    /// Only runs of this experiment.
    pub experiment: Option<i64>,
    /// Only these runs, with commas between.
    pub ids: Option<String>,
    /// Archived rows as well.
    pub archived: Option<bool>,
    /// Metrics whose last values are wanted, with commas between; `*`: all.
    pub metrics: Option<String>,
}

impl ListQuery {
    /// Refuses lists of names that nobody writes.
    pub(super) fn check(&self) -> Result<(), Error> {
        let lists = [("state", &self.state), ("ids", &self.ids), ("metrics", &self.metrics)];
        let long = lists.into_iter().find(|(_, list)| {
            list.as_ref().is_some_and(|list| list.split(',').nth(NAMES).is_some())
        });
        match long {
            Some((name, _)) => Err(Error::Invalid(format!("{name}: at most {NAMES} of them"))),
            None => Ok(()),
        }
    }
}

/// A query under construction; every value is bound, none is written into its text.
#[derive(Default)]
pub(super) struct Conditions {
    sql: Vec<String>,
    values: Vec<Value>,
}

impl Conditions {
    /// Adds a condition with `?` where the value goes.
    pub(super) fn add(&mut self, condition: &str, value: impl Into<Value>) {
        self.values.push(value.into());
        self.sql.push(condition.replace('?', &format!("?{}", self.values.len())));
    }

    /// Adds one without a value.
    pub(super) fn plain(&mut self, condition: &str) {
        self.sql.push(condition.to_string());
    }

    /// One of several values.
    pub(super) fn one_of(&mut self, column: &str, values: &str) {
        let mut places = Vec::new();
        for value in values.split(',') {
            self.values.push(value.trim().to_string().into());
            places.push(format!("?{}", self.values.len()));
        }
        self.sql.push(format!("{column} IN ({})", places.join(", ")));
    }

    /// One of several numbers.
    pub(super) fn one_of_numbers(&mut self, column: &str, numbers: &[i64]) {
        let numbers: Vec<String> = numbers.iter().map(i64::to_string).collect();
        self.sql.push(format!("{column} IN ({})", numbers.join(", ")));
    }

    /// Only what comes after a row that was seen, by what it was sorted by and its number.
    fn after(&mut self, (value, seen): (Value, i64), sign: &str) -> String {
        let mut place = |value: Value| {
            self.values.push(value);
            format!("?{}", self.values.len())
        };
        if value == Value::Null {
            return format!("(sort_key IS NULL AND sort_id {sign} {})", place(seen.into()));
        }
        let (value, seen) = (place(value), place(seen.into()));
        format!(
            "(sort_key {sign} {value} OR (sort_key = {value} AND sort_id {sign} {seen}) OR sort_key IS NULL)"
        )
    }

    fn text(&self) -> String {
        match self.sql.as_slice() {
            [] => "1 = 1".to_string(),
            conditions => conditions.join(" AND "),
        }
    }
}

/// What a list is sorted by.
pub(super) struct Sort {
    /// An expression of SQL, from this crate and nowhere else.
    pub(super) key: String,
    /// A value that it needs.
    pub(super) value: Option<Value>,
    pub(super) descending: bool,
}

impl Sort {
    /// Splits `-name` into a name and its direction; without a name, the default.
    pub(super) fn direction<'a>(sort: Option<&'a str>, default: &'a str) -> (&'a str, bool) {
        let sort = sort.filter(|sort| !sort.is_empty()).unwrap_or(default);
        sort.strip_prefix('-').map_or((sort, false), |name| (name, true))
    }
}

/// What a list is read from.
pub(super) struct ListSource {
    /// The columns, as whoever reads a row expects them.
    pub(super) columns: &'static str,
    /// Tables.
    pub(super) from: &'static str,
    /// The number that no two rows share.
    pub(super) id: &'static str,
}

/// Which rows, in which order.
pub(super) struct Selection {
    pub(super) conditions: Conditions,
    pub(super) sort: Sort,
}

/// Reads a page.
pub(super) fn page<T>(
    db: &Db,
    ListSource { columns, from, id }: ListSource,
    Selection { mut conditions, sort }: Selection,
    query: &ListQuery,
    read: impl Fn(&DbRow<'_>) -> Result<T, DbError>,
) -> Result<Page<T>, Error> {
    let count = format!("SELECT count(*) FROM {from} WHERE {}", conditions.text());
    let total: i64 = db.prepare_cached(&count)?.query_row(&conditions.values, |row| row.get(0))?;
    let limit = query.limit.unwrap_or(ROWS).clamp(1, MOST);
    let mut key = sort.key;
    if let Some(value) = sort.value {
        conditions.values.push(value);
        key = key.replace('?', &format!("?{}", conditions.values.len()));
    }
    let (order, sign) = if sort.descending { ("DESC", "<") } else { ("ASC", ">") };
    let wanted = conditions.text();
    let after = match &query.cursor {
        Some(cursor) => conditions.after(from_cursor(cursor)?, sign),
        None => "1 = 1".to_string(),
    };
    // What has no value comes last in either direction.
    let order = format!("ORDER BY sort_key {order} NULLS LAST, sort_id {order}");
    // What rows are sorted by is looked up once for each, and everything else for those of the page only.
    let sql = format!(
        "WITH keyed AS MATERIALIZED (SELECT {key} AS sort_key, {id} AS sort_id FROM {from} WHERE {wanted}) \
         SELECT {columns}, sort_key, sort_id FROM \
         (SELECT sort_key, sort_id FROM keyed WHERE {after} {order} LIMIT {}) AS found \
         CROSS JOIN {from} WHERE {id} = sort_id {order}",
        limit + 1
    );
    let mut statement = db.prepare_cached(&sql)?;
    let rows = statement.query_map(&conditions.values, |row| {
        let last = row.columns();
        Ok((read(row)?, (row.get::<Value>(last - 2)?, row.get::<i64>(last - 1)?)))
    });
    let rows =
        rows.and_then(|rows| rows.collect::<Result<Vec<_>, _>>()).map_err(|error| match error {
            DbError::Type(_) if query.cursor.is_some() => no_cursor(),
            error => error.into(),
        })?;
    let (mut items, ends): (Vec<T>, Vec<(Value, i64)>) = rows.into_iter().unzip();
    let next = (items.len() > limit).then(|| to_cursor(&ends[limit - 1]));
    items.truncate(limit);
    Ok(Page { items, next, total: total as u64 })
}

/// Numbers as bits, so that they come back as they were.
fn to_cursor((value, id): &(Value, i64)) -> String {
    match value {
        Value::Integer(number) => format!("i{number}.{id}"),
        Value::Real(number) => format!("r{:x}.{id}", number.to_bits()),
        Value::Text(text) => {
            let hex: String = text.bytes().map(|byte| format!("{byte:02x}")).collect();
            format!("t{hex}.{id}")
        }
        Value::Null | Value::Blob(_) => format!("n.{id}"),
    }
}

fn from_cursor(cursor: &str) -> Result<(Value, i64), Error> {
    let parse = || {
        let (value, id) = cursor.get(1..)?.rsplit_once('.')?;
        let value = match cursor.as_bytes().first()? {
            b'i' => Value::Integer(value.parse().ok()?),
            b'n' => Value::Null,
            b'r' => Value::Real(f64::from_bits(u64::from_str_radix(value, 16).ok()?)),
            b't' => {
                let byte = |at| u8::from_str_radix(value.get(at..at + 2)?, 16).ok();
                let bytes: Option<Vec<u8>> = (0..value.len()).step_by(2).map(byte).collect();
                Value::Text(String::from_utf8(bytes?).ok()?)
            }
            _ => return None,
        };
        Some((value, id.parse().ok()?))
    };
    parse().ok_or_else(no_cursor)
}

fn no_cursor() -> Error {
    Error::Invalid("cursor: this is none that a list gave".to_string())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_list_of_names_has_an_end() {
        let query = |names: usize| ListQuery {
            ids: Some(vec!["1.1"; names].join(",")),
            ..ListQuery::default()
        };
        assert!(query(NAMES).check().is_ok());
        let error = query(NAMES + 1).check().expect_err("too many").to_string();
        assert_eq!(error, "ids: at most 2000 of them");
        assert!(ListQuery::default().check().is_ok());
    }

    proptest! {
        #[test]
        fn any_text_is_a_cursor_or_an_error(text: String) {
            let _ = from_cursor(&text);
        }

        #[test]
        fn cursors_come_back(number: i64, bits: u64, text: String, id: i64) {
            for value in [Value::Integer(number), Value::Real(f64::from_bits(bits)), Value::Text(text.clone())] {
                let back = from_cursor(&to_cursor(&(value.clone(), id))).expect("a cursor");
                prop_assert_eq!(format!("{back:?}"), format!("{:?}", (value, id)));
            }
        }
    }
}
