//! The store: one SQLite file (WAL) or a Postgres database, with one writer, made from run folders and the hub's
//! journal, and nothing else.
//!
//! All SQL of the crate is below this module, in words that both kinds know. Nothing here is the truth: a store that is
//! lost is made again.
//!
//! # Layout
//! - [`Store`]: opening, readers; `writer`: the one thread that writes, many jobs to a commit
//! - [`StoreUrl`]: where it is; `db`: what SQLite and Postgres have in common; `server`: connections to Postgres;
//!   `schema`, `migrate`: tables
//! - `curves`: points in chunks, and their reduction; `points`: their tables, `append`: how they come there; `page`:
//!   lists
//! - `collected`: checkpoints that go, and that others start from; `upkeep_tables`: their tables
//! - `limits`: budgets and how long logs stay; `webhooks`: who is told of ends; `killed_trials`: what was ended by hand
//! - `experiments`, `runs`, `checkpoints`, `logs`, `models`, `users`: rows by what they are

pub(crate) mod append;
pub mod audit;
pub mod checkpoints;
pub(crate) mod collected;
pub(crate) mod curves;
pub(crate) mod db;
pub mod experiments;
pub(crate) mod killed_trials;
pub mod limits;
pub mod logs;
mod migrate;
pub mod models;
pub mod page;
pub mod points;
pub mod runs;
mod schema;
#[cfg(feature = "postgres")]
mod server;
#[cfg(test)]
mod testing;
mod upkeep_tables;
mod url;
pub mod users;
pub mod webhooks;
mod writer;

use std::path::Path;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::Error;
use crate::ids::{ExperimentId, RunId};
pub(crate) use db::Db;
pub use db::DbError;
use db::{OptionalExtension, SqlDialect, params};
#[cfg(feature = "postgres")]
pub use server::Database;
use url::StoreLock;
pub use url::{StoreAccess, StoreUrl};
use writer::StoreWriter;
pub(crate) use writer::Tx;
pub use writer::{Commit, Touched};

/// Connections for reading that are kept.
const READERS: usize = 8;

/// A handle of a store; clones share it.
#[derive(Clone)]
pub struct Store {
    shared: Arc<StoreInner>,
}

struct StoreInner {
    url: StoreUrl,
    readers: Mutex<Vec<Db>>,
    writer: StoreWriter,
    change: Arc<AtomicI64>,
    /// Held, not read, and given up last.
    _lock: StoreLock,
}

impl Drop for StoreInner {
    fn drop(&mut self) {
        let readers =
            std::mem::take(&mut *self.readers.lock().unwrap_or_else(PoisonError::into_inner));
        // A connection to a server takes its leave and waits, which no thread of the API's may.
        std::thread::spawn(move || drop(readers));
    }
}

impl Store {
    /// Opens a store in a file, beside others who may have it open.
    pub fn open(path: &Path) -> Result<Self, Error> {
        Self::at(&StoreUrl::Sqlite(path.to_path_buf()), StoreAccess::Shared)
    }

    /// Opens a store, which is made where there is none, and brings it to the newest format.
    pub fn at(url: &StoreUrl, sharing: StoreAccess) -> Result<Self, Error> {
        let lock = url.lock(sharing)?;
        let change = Arc::new(AtomicI64::new(0));
        let writer = StoreWriter::start(url, sharing, Arc::clone(&change))?;
        let readers = Mutex::new(Vec::new());
        let shared = StoreInner { url: url.clone(), readers, writer, change, _lock: lock };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// The number of the last change: whoever has seen it has seen everything.
    pub fn change(&self) -> i64 {
        self.shared.change.load(Ordering::Acquire)
    }

    /// Reads; several may at a time, and none waits for the writer.
    pub(crate) fn read<T>(&self, look: impl FnOnce(&Db) -> Result<T, Error>) -> Result<T, Error> {
        let kept = self.readers().pop();
        let connection = match kept.filter(Db::answers) {
            Some(connection) => connection,
            None => self.shared.url.reader()?,
        };
        let found = look(&connection);
        if matches!(&found, Err(Error::Store(error)) if error.is_lost()) {
            return found;
        }
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

    fn dialect(&self) -> SqlDialect {
        self.shared.url.dialect()
    }

    /// Hears of every commit from now on.
    pub fn commits(&self) -> tokio::sync::broadcast::Receiver<Commit> {
        self.shared.writer.commits.subscribe()
    }

    /// A value that belongs to no table.
    pub fn meta(&self, key: &str) -> Result<Option<String>, Error> {
        self.read(|db| get_meta(db, key))
    }

    fn readers(&self) -> std::sync::MutexGuard<'_, Vec<Db>> {
        // A panic in a reader leaves the list as it was.
        self.shared.readers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A value that belongs to no table.
pub(crate) fn get_meta(db: &Db, key: &str) -> Result<Option<String>, Error> {
    let mut query = db.prepare_cached("SELECT value FROM meta WHERE key = ?1")?;
    Ok(query.query_row([key], |row| row.get(0)).optional()?)
}

/// Sets a value that belongs to no table.
pub(crate) fn set_meta(tx: &Tx<'_>, key: &str, value: &str) -> Result<(), Error> {
    let sql =
        "INSERT INTO meta (key, value) VALUES (?1, ?2) ON CONFLICT (key) DO UPDATE SET value = ?2";
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

#[cfg(test)]
mod tests {
    use super::testing::for_each_store;
    use super::*;

    #[test]
    fn a_store_is_made_kept_and_of_a_newer_release_refused() {
        for_each_store(|store, url| {
            store.write(|tx| set_meta(tx, "a", "1")).expect("written");
            let change = store.change();
            assert!(change > 0);
            drop(store);
            let store = Store::at(url, StoreAccess::Alone).expect("opened");
            assert_eq!(store.meta("a").expect("read").as_deref(), Some("1"));
            assert_eq!(store.change(), change);
            let error = Store::at(url, StoreAccess::Alone).err().expect("refused").to_string();
            assert!(error.contains("another hub has this store"), "{error}");
            let beside = Store::at(url, StoreAccess::Shared).expect("a command beside it");
            beside.write(|tx| set_meta(tx, "b", "2")).expect("written");
            assert_eq!(store.meta("b").expect("read").as_deref(), Some("2"));
            let newer = |tx: &Tx<'_>| match tx.dialect() {
                db::SqlDialect::Sqlite => Ok(tx.execute_batch("PRAGMA user_version = 99")?),
                #[cfg(feature = "postgres")]
                db::SqlDialect::Postgres => {
                    Ok(tx.execute_batch("UPDATE store_format SET number = 99")?)
                }
            };
            beside.write(newer).expect("set");
            drop((store, beside));
            let error = Store::at(url, StoreAccess::Alone).err().expect("refused").to_string();
            assert!(error.contains("this store is of format 99"), "{error}");
            url.remove().expect("removed");
            let store = Store::at(url, StoreAccess::Alone).expect("made again");
            assert_eq!(store.meta("a").expect("read"), None);
        });
    }
}
