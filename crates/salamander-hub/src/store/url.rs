//! Where a store is: a file of SQLite, or a database of a Postgres server.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};
use rustix::fs::{FlockOperation, flock};

use super::db::{Db, SqlDialect};
use super::migrate::migrate;
use crate::Error;

/// How long a connection waits for another process that has the file.
const PATIENCE: Duration = Duration::from_secs(10);

/// The place of a store: `sqlite:PATH` or `postgres://USER@HOST/DATABASE`.
#[derive(Clone)]
pub enum StoreUrl {
    /// A file of SQLite.
    Sqlite(PathBuf),
    /// A database of a Postgres server.
    #[cfg(feature = "postgres")]
    Postgres(Box<super::server::Database>),
}

/// Whether others may write at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreAccess {
    /// Nobody else: how a hub has its store.
    Alone,
    /// One after the other: for a command beside a hub.
    Shared,
}

/// Keeps a second hub away while it is held; a server does that itself.
pub(super) struct StoreLock {
    _file: Option<File>,
}

impl FromStr for StoreUrl {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        match text.split_once(':') {
            Some(("sqlite", path)) if !path.is_empty() => Ok(Self::Sqlite(PathBuf::from(path))),
            Some(("postgres" | "postgresql", _)) => of_server(text),
            _ => Err(Error::Invalid(format!(
                "{text}: a store is sqlite:PATH or postgres://USER@HOST/DATABASE"
            ))),
        }
    }
}

#[cfg(feature = "postgres")]
fn of_server(text: &str) -> Result<StoreUrl, Error> {
    Ok(StoreUrl::Postgres(Box::new(text.parse()?)))
}

#[cfg(not(feature = "postgres"))]
fn of_server(_: &str) -> Result<StoreUrl, Error> {
    let reason = "this program was built without Postgres: build it with the feature `postgres`";
    Err(Error::Invalid(reason.to_string()))
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite(path) => write!(f, "{}", path.display()),
            #[cfg(feature = "postgres")]
            Self::Postgres(database) => database.fmt(f),
        }
    }
}

impl StoreUrl {
    /// Makes sure that no other hub has it.
    pub(super) fn lock(&self, sharing: StoreAccess) -> Result<StoreLock, Error> {
        match self {
            Self::Sqlite(path) if sharing == StoreAccess::Alone => {
                // A file of its own: to open and close the store's would give up SQLite's own locks on it.
                let path = with_ending(path, "-hub");
                let file = OpenOptions::new().create(true).truncate(false).write(true).open(&path);
                let file = file.map_err(Error::io(&path))?;
                if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
                    return Err(Error::Conflict(format!("{self}: another hub has this store")));
                }
                Ok(StoreLock { _file: Some(file) })
            }
            _ => Ok(StoreLock { _file: None }),
        }
    }

    /// A connection for writing, to a store of the newest format.
    pub(super) fn writer(&self, sharing: StoreAccess) -> Result<Db, Error> {
        let db = match self {
            Self::Sqlite(path) => {
                let connection = Connection::open(path)?;
                connection.busy_timeout(PATIENCE)?;
                // What a power failure takes from the end is read from the folders again: places in files are kept in
                // the same transactions as what was read there. Pages that many commits change are put in their place
                // once for 16 MB of commits.
                connection.execute_batch(
                    "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA cache_size = -65536; \
                     PRAGMA wal_autocheckpoint = 4096; PRAGMA journal_size_limit = 67108864;",
                )?;
                connection.set_prepared_statement_cache_capacity(128);
                Db::Sqlite(connection)
            }
            #[cfg(feature = "postgres")]
            Self::Postgres(database) => database.writer(sharing)?,
        };
        #[cfg(not(feature = "postgres"))]
        let _ = sharing;
        migrate(&db, self)?;
        Ok(db)
    }

    pub(super) fn dialect(&self) -> SqlDialect {
        match self {
            Self::Sqlite(_) => SqlDialect::Sqlite,
            #[cfg(feature = "postgres")]
            Self::Postgres(_) => SqlDialect::Postgres,
        }
    }

    /// A connection for reading.
    pub(super) fn reader(&self) -> Result<Db, Error> {
        match self {
            Self::Sqlite(path) => {
                let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
                let connection = Connection::open_with_flags(path, flags)?;
                connection.busy_timeout(PATIENCE)?;
                connection
                    .execute_batch("PRAGMA cache_size = -32768; PRAGMA mmap_size = 1073741824;")?;
                connection.set_prepared_statement_cache_capacity(64);
                Ok(Db::Sqlite(connection))
            }
            #[cfg(feature = "postgres")]
            Self::Postgres(database) => database.reader(),
        }
    }

    /// Removes all that is in it.
    pub(crate) fn remove(&self) -> Result<(), Error> {
        match self {
            Self::Sqlite(path) => {
                let _lock = path.is_file().then(|| self.lock(StoreAccess::Alone)).transpose()?;
                for ending in ["", "-wal", "-shm"] {
                    let path = with_ending(path, ending);
                    match std::fs::remove_file(&path) {
                        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                            return Err(Error::io(&path)(error));
                        }
                        _ => {}
                    }
                }
                Ok(())
            }
            #[cfg(feature = "postgres")]
            Self::Postgres(database) => database.remove(),
        }
    }
}

fn with_ending(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}
