//! The store: one SQLite file (WAL) with one writer, made from run folders and the hub's journal, and nothing else.
//!
//! All SQL of the crate is below this module. Nothing here is the truth: a store that is lost is made again.
//!
//! # Layout
//! - [`Store`]: opening, migrations, readers; `writer`: the one thread that writes, many jobs to a commit
//! - `curves`: points in chunks, and their reduction; `points`: their tables; `page`: lists
//! - `collected`: checkpoints that go, and that others start from; `upkeep_tables`: their tables
//! - `limits`: budgets and how long logs stay; `webhooks`: who is told of ends; `killed_trials`: what was ended by hand
//! - `experiments`, `runs`, `checkpoints`, `logs`, `models`, `users`: rows by what they are

pub mod checkpoints;
pub(crate) mod collected;
pub(crate) mod curves;
pub mod experiments;
pub(crate) mod killed_trials;
pub mod limits;
pub mod logs;
pub mod models;
pub mod page;
pub mod points;
pub mod runs;
mod schema;
mod upkeep_tables;
pub mod users;
pub mod webhooks;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags, OptionalExtension, params};

use crate::Error;
use crate::ids::{ExperimentId, RunId};
pub(crate) use writer::Tx;
use writer::Writer;
pub use writer::{Commit, Touched};

/// Connections for reading that are kept.
const READERS: usize = 8;
/// How long a connection waits for another process that has the file.
const PATIENCE: Duration = Duration::from_secs(10);

/// A handle of a store; clones share it.
#[derive(Clone)]
pub struct Store {
    shared: Arc<Shared>,
}

struct Shared {
    path: PathBuf,
    readers: Mutex<Vec<Connection>>,
    writer: Writer,
    change: Arc<AtomicI64>,
}

impl Store {
    /// Opens a store, which is made where there is none, and brings it to the newest format.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let mut connection = Connection::open(path)?;
        connection.busy_timeout(PATIENCE)?;
        // What a power failure takes from the end is read from the folders again: places in files are kept in the same
        // transactions as what was read there.
        connection.execute_batch(
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA cache_size = -65536; \
             PRAGMA journal_size_limit = 67108864;",
        )?;
        migrate(&mut connection, path)?;
        let change: Option<String> = connection
            .query_row("SELECT value FROM meta WHERE key = 'change'", [], |row| row.get(0))
            .optional()?;
        let change = change.and_then(|text| text.parse().ok()).unwrap_or(0);
        let change = Arc::new(AtomicI64::new(change));
        let writer = Writer::start(connection, Arc::clone(&change))?;
        let readers = Mutex::new(Vec::new());
        let shared = Shared { path: path.to_path_buf(), readers, writer, change };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// The number of the last change: whoever has seen it has seen everything.
    pub fn change(&self) -> i64 {
        self.shared.change.load(Ordering::Acquire)
    }

    /// Reads; several may at a time, and none waits for the writer.
    pub(crate) fn read<T>(
        &self,
        look: impl FnOnce(&Connection) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let kept = self.readers().pop();
        let connection = match kept {
            Some(connection) => connection,
            None => self.reader()?,
        };
        let found = look(&connection);
        let mut readers = self.readers();
        if readers.len() < READERS {
            readers.push(connection);
        }
        found
    }

    /// Writes; returns when it is committed, together with what others wrote at the same time.
    pub(crate) fn write<T: Send + 'static>(
        &self,
        job: impl FnOnce(&Tx<'_>) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        self.shared.writer.run(job)
    }

    /// Hears of every commit from now on.
    pub fn commits(&self) -> tokio::sync::broadcast::Receiver<Commit> {
        self.shared.writer.commits.subscribe()
    }

    /// A value that belongs to no table.
    pub fn meta(&self, key: &str) -> Result<Option<String>, Error> {
        self.read(|db| {
            let mut query = db.prepare_cached("SELECT value FROM meta WHERE key = ?1")?;
            Ok(query.query_row([key], |row| row.get(0)).optional()?)
        })
    }

    fn readers(&self) -> std::sync::MutexGuard<'_, Vec<Connection>> {
        // A panic in a reader leaves the list as it was.
        self.shared.readers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn reader(&self) -> Result<Connection, Error> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(&self.shared.path, flags)?;
        connection.busy_timeout(PATIENCE)?;
        connection.execute_batch("PRAGMA cache_size = -32768; PRAGMA mmap_size = 1073741824;")?;
        connection.set_prepared_statement_cache_capacity(64);
        Ok(connection)
    }
}

/// Sets a value that belongs to no table.
pub(crate) fn set_meta(tx: &Tx<'_>, key: &str, value: &str) -> Result<(), Error> {
    let sql = "INSERT INTO meta (key, value) VALUES (?1, ?2) ON CONFLICT DO UPDATE SET value = ?2";
    tx.prepare_cached(sql)?.execute(params![key, value])?;
    Ok(())
}

/// Forgets all that is known of an experiment whose folder is gone; versions of models that came from it stay listed.
pub(crate) fn forget_experiment(tx: &Tx<'_>, id: ExperimentId) -> Result<(), Error> {
    let runs = [RunId::whole(id).number(), RunId::whole(ExperimentId(id.0 + 1)).number()];
    let blocks = "SELECT id FROM log_blocks WHERE run >= ?1 AND run < ?2";
    tx.execute(&format!("DELETE FROM log_words WHERE rowid IN ({blocks})"), runs)?;
    for table in ["chunks", "run_metrics", "validations", "checkpoints", "files", "log_blocks"] {
        tx.execute(&format!("DELETE FROM {table} WHERE run >= ?1 AND run < ?2"), runs)?;
    }
    tx.execute("DELETE FROM runs WHERE id >= ?1 AND id < ?2", runs)?;
    tx.execute("DELETE FROM labels WHERE experiment = ?1", [id.0])?;
    tx.execute("DELETE FROM experiments WHERE id = ?1", [id.0])?;
    Ok(())
}

fn migrate(connection: &mut Connection, path: &Path) -> Result<(), Error> {
    let known = schema::MIGRATIONS.len() as i64;
    let found: i64 = connection.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    if found > known {
        return Err(Error::NewerStore { path: path.to_path_buf(), found, known });
    }
    for (number, migration) in (1..).zip(schema::MIGRATIONS).skip(found as usize) {
        let transaction = connection.transaction()?;
        transaction.execute_batch(migration)?;
        transaction.pragma_update(None, "user_version", number)?;
        transaction.commit()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_is_made_kept_and_of_a_newer_release_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("hub.sqlite");
        let store = Store::open(&path).expect("made");
        store.write(|tx| set_meta(tx, "a", "1")).expect("written");
        let change = store.change();
        assert!(change > 0);
        drop(store);
        let store = Store::open(&path).expect("opened");
        assert_eq!(store.meta("a").expect("read").as_deref(), Some("1"));
        assert_eq!(store.change(), change);
        drop(store);
        let newer = Connection::open(&path).expect("opened");
        newer.pragma_update(None, "user_version", 99).expect("set");
        drop(newer);
        let error = Store::open(&path).err().expect("refused").to_string();
        assert!(error.contains("this store is of format 99"), "{error}");
    }
}
