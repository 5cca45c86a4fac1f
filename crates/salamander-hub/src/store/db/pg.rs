//! A connection to a Postgres server: the statements that it knows, values in and out.

use std::collections::HashMap;
use std::error::Error as _;
use std::time::Duration;

use bytes::BytesMut;
use postgres::types::{FromSql, IsNull, ToSql, Type};
use postgres::{Client, Config, Statement};
use rusqlite::types::{ToSqlOutput, Value, ValueRef};

use super::DbError;
use super::pg_tls::PgTls;

/// How long a server may take to say that it is there.
const ANSWER: Duration = Duration::from_secs(5);

/// Statements that a connection keeps: those of lists differ by what is asked.
const STATEMENTS: usize = 256;

type Fault = Box<dyn std::error::Error + Sync + Send>;

/// A connection, with its statements.
pub(crate) struct Pg {
    client: Client,
    statements: HashMap<String, Statement>,
}

impl Pg {
    pub(crate) fn connect(config: &Config, tls: &PgTls) -> Result<Self, postgres::Error> {
        Ok(Self { client: config.connect(tls.clone())?, statements: HashMap::new() })
    }

    pub(super) fn prepare(&mut self, sql: &str) -> Result<Statement, DbError> {
        if let Some(known) = self.statements.get(sql) {
            return Ok(known.clone());
        }
        let statement = self.client.prepare(&numbered(sql))?;
        if self.statements.len() >= STATEMENTS {
            self.statements.clear();
        }
        self.statements.insert(sql.to_string(), statement.clone());
        Ok(statement)
    }

    pub(super) fn batch(&mut self, sql: &str) -> Result<(), postgres::Error> {
        self.client.batch_execute(sql)
    }

    pub(super) fn answers(&mut self) -> bool {
        self.client.is_valid(ANSWER).is_ok()
    }

    pub(super) fn execute(
        &mut self,
        statement: &Statement,
        values: &[&dyn rusqlite::ToSql],
    ) -> Result<usize, DbError> {
        let bound = bound(statement, values)?;
        let bound: Vec<&(dyn ToSql + Sync)> = bound.iter().map(|value| value as _).collect();
        Ok(self.client.execute(statement, &bound)? as usize)
    }

    pub(super) fn query(
        &mut self,
        statement: &Statement,
        values: &[&dyn rusqlite::ToSql],
    ) -> Result<Vec<Vec<Value>>, DbError> {
        let bound = bound(statement, values)?;
        let bound: Vec<&(dyn ToSql + Sync)> = bound.iter().map(|value| value as _).collect();
        let rows = self.client.query(statement, &bound)?;
        let cells = |row: &postgres::Row| {
            let cell = |column| Ok(row.try_get::<_, Option<PgValue>>(column)?.map(|cell| cell.0));
            let cells = (0..row.len()).map(|column| Ok(cell(column)?.unwrap_or(Value::Null)));
            cells.collect::<Result<Vec<Value>, postgres::Error>>()
        };
        Ok(rows.iter().map(cells).collect::<Result<_, _>>()?)
    }
}

/// What the server says, without the words around it.
pub(crate) fn said(error: &postgres::Error) -> String {
    match (error.as_db_error(), error.source()) {
        (Some(said), _) => said.message().to_string(),
        (None, Some(source)) => format!("{error}: {source}"),
        (None, None) => error.to_string(),
    }
}

/// Whether the connection is gone, or the server is going or coming.
pub(crate) fn is_lost(error: &postgres::Error) -> bool {
    // Without a word of the server, or with one of classes 08 (connection) and 57 (an operator has intervened).
    error.is_closed()
        || error.source().is_some_and(is_of_network)
        || error
            .code()
            .is_some_and(|code| code.code().starts_with("08") || code.code().starts_with("57P"))
}

/// Whether the network failed; a certificate that is not to be trusted stays so.
fn is_of_network(source: &(dyn std::error::Error + 'static)) -> bool {
    let source = source.downcast_ref::<std::io::Error>();
    source.is_some_and(|source| source.kind() != std::io::ErrorKind::InvalidData)
}

/// `$1` instead of `?1`; what is in quotes stays as it is.
fn numbered(sql: &str) -> String {
    let mut quoted = false;
    let translate = |c: char| {
        quoted ^= c == '\'';
        if c == '?' && !quoted { '$' } else { c }
    };
    sql.chars().map(translate).collect()
}

/// The values of a statement, as its types ask for them.
fn bound(statement: &Statement, values: &[&dyn rusqlite::ToSql]) -> Result<Vec<Bound>, DbError> {
    let types = statement.params();
    if types.len() != values.len() {
        let (wanted, given) = (types.len(), values.len());
        return Err(DbError::Type(format!("{given} values for a statement of {wanted}")));
    }
    let one = |(value, kind): (&&dyn rusqlite::ToSql, &Type)| {
        let value = match value.to_sql()? {
            ToSqlOutput::Owned(value) => value,
            ToSqlOutput::Borrowed(value) => owned(value)?,
            _ => return Err(DbError::Type("a value of an unknown sort".to_string())),
        };
        Bound::new(value, kind)
    };
    values.iter().zip(types).map(one).collect()
}

fn owned(value: ValueRef<'_>) -> Result<Value, DbError> {
    Value::try_from(value).map_err(|error| DbError::Type(error.to_string()))
}

/// A value that fits its column.
#[derive(Debug)]
enum Bound {
    Null,
    Long(i64),
    Int(i32),
    Double(f64),
    Text(String),
    Bytes(Vec<u8>),
}

impl Bound {
    fn new(value: Value, kind: &Type) -> Result<Self, DbError> {
        let is_text = matches!(*kind, Type::TEXT | Type::VARCHAR | Type::UNKNOWN);
        let fits = match (value, kind) {
            (Value::Null, _) => Some(Self::Null),
            // As SQLite has it: what is no number is no value.
            (Value::Real(number), _) if number.is_nan() => Some(Self::Null),
            (Value::Integer(number), &Type::INT8) => Some(Self::Long(number)),
            (Value::Integer(number), &Type::INT4) => i32::try_from(number).ok().map(Self::Int),
            (Value::Integer(number), &Type::FLOAT8) => Some(Self::Double(number as f64)),
            (Value::Real(number), &Type::FLOAT8) => Some(Self::Double(number)),
            // The one character that a text of Postgres cannot have.
            (Value::Text(text), _) if is_text && text.contains('\0') => {
                Some(Self::Text(text.replace('\0', "\u{fffd}")))
            }
            (Value::Text(text), _) if is_text => Some(Self::Text(text)),
            (Value::Blob(bytes), &Type::BYTEA) => Some(Self::Bytes(bytes)),
            _ => None,
        };
        fits.ok_or_else(|| DbError::Type(format!("a value does not fit the type {kind}")))
    }
}

impl ToSql for Bound {
    fn to_sql(&self, kind: &Type, out: &mut BytesMut) -> Result<IsNull, Fault> {
        match self {
            Self::Null => Ok(IsNull::Yes),
            Self::Long(number) => number.to_sql(kind, out),
            Self::Int(number) => number.to_sql(kind, out),
            Self::Double(number) => number.to_sql(kind, out),
            Self::Text(text) => text.to_sql(kind, out),
            Self::Bytes(bytes) => bytes.to_sql(kind, out),
        }
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    postgres::types::to_sql_checked!();
}

/// A column of a row.
struct PgValue(Value);

impl<'a> FromSql<'a> for PgValue {
    fn from_sql(kind: &Type, raw: &'a [u8]) -> Result<Self, Fault> {
        Ok(Self(match *kind {
            Type::INT8 => Value::Integer(i64::from_sql(kind, raw)?),
            Type::INT4 => Value::Integer(i32::from_sql(kind, raw)?.into()),
            Type::BOOL => Value::Integer(bool::from_sql(kind, raw)?.into()),
            Type::FLOAT8 => Value::Real(f64::from_sql(kind, raw)?),
            Type::BYTEA => Value::Blob(raw.to_vec()),
            _ => Value::Text(String::from_sql(kind, raw)?),
        }))
    }

    fn accepts(kind: &Type) -> bool {
        let text = matches!(*kind, Type::TEXT | Type::VARCHAR | Type::UNKNOWN | Type::NAME);
        let number = matches!(*kind, Type::INT8 | Type::INT4 | Type::BOOL | Type::FLOAT8);
        text || number || *kind == Type::BYTEA
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_numbered_and_what_is_in_quotes_stays() {
        let sql = "SELECT a, '?1' FROM t WHERE b = ?1 AND c = ?12";
        assert_eq!(numbered(sql), "SELECT a, '?1' FROM t WHERE b = $1 AND c = $12");
    }
}
