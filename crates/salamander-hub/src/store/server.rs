//! A database of a Postgres server as a store: connections that are tried again, and one hub at a time.

use std::cell::RefCell;
use std::fmt;
use std::str::FromStr;
use std::thread::sleep;
use std::time::Duration;

use salamander_net::{Backoff, retry};

use super::db::pg::{Pg, is_lost, said};
use super::db::pg_tls::PgTls;
use super::db::{Db, DbError};
use super::schema;
use super::url::StoreAccess;
use crate::Error;

/// How long a server that does not answer is tried again before whoever waits is told.
const PATIENCE: Duration = Duration::from_secs(10);
/// The first pause between two tries, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));
/// After so long without an answer a connection over a network is given up.
const SILENCE: Duration = Duration::from_secs(60);
/// The number of the lock that a hub holds as long as its connection for writing lives: "salamander" in short.
const HUB_LOCK: i64 = 0x5341_4c41_4855_4221;

/// A database.
#[derive(Clone)]
pub struct Database {
    config: postgres::Config,
    tls: PgTls,
}

impl FromStr for Database {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let (text, tls) = PgTls::of(text)?;
        let config: Result<postgres::Config, _> = text.parse();
        // The text may have a password: it is not said again.
        let wrong = |error: postgres::Error| {
            Error::Invalid(format!("this is no address of a Postgres server: {}", said(&error)))
        };
        let mut config = config.map_err(wrong)?;
        config.ssl_mode(tls.mode);
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(PATIENCE);
        }
        if config.get_tcp_user_timeout().is_none() {
            config.tcp_user_timeout(SILENCE);
        }
        if config.get_application_name().is_none() {
            config.application_name("salamander hub");
        }
        Ok(Self { config, tls })
    }
}

impl fmt::Display for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hosts = self.config.get_hosts().iter().map(|host| match host {
            postgres::config::Host::Tcp(name) => name.clone(),
            postgres::config::Host::Unix(path) => path.display().to_string(),
        });
        let hosts: Vec<String> = hosts.collect();
        let name = self.config.get_dbname().or(self.config.get_user()).unwrap_or_default();
        write!(f, "database {name} on {}", hosts.join(","))
    }
}

impl Database {
    /// Connects; a server that is starting, or away for a moment, is tried again.
    fn connect(&self) -> Result<Db, Error> {
        let backoff = Backoff::new(PAUSES.0, PAUSES.1).within(PATIENCE);
        let connected = retry(backoff, || Pg::connect(&self.config, &self.tls), is_lost);
        let refused = |error| Error::Unwritable(format!("{self}: {}", said(&error)));
        Ok(Db::Postgres(Box::new(RefCell::new(connected.map_err(refused)?))))
    }

    pub(super) fn writer(&self, sharing: StoreAccess) -> Result<Db, Error> {
        let db = self.connect()?;
        // A commit is on the server's disk before the next portion of a file is read, whatever its default is.
        db.execute_batch("SET synchronous_commit = on; SET client_min_messages = warning")?;
        if sharing == StoreAccess::Alone {
            self.lock(&db)?;
        }
        Ok(db)
    }

    /// The lock lives as long as the connection that writes: whoever writes has it. That of a hub that was killed is
    /// free as soon as the server hears of it.
    fn lock(&self, db: &Db) -> Result<(), Error> {
        let mut backoff = Backoff::every(PAUSES.0).within(PATIENCE);
        loop {
            let mut query = db.prepare_cached("SELECT pg_try_advisory_lock(?1)")?;
            if query.query_row([HUB_LOCK], |row| row.get(0))? {
                return Ok(());
            }
            let Some(wait) = backoff.wait() else {
                return Err(Error::Conflict(format!("{self}: another hub has this store")));
            };
            sleep(wait);
        }
    }

    pub(super) fn reader(&self) -> Result<Db, Error> {
        let db = self.connect()?;
        db.execute_batch("SET default_transaction_read_only = on")?;
        Ok(db)
    }

    pub(super) fn remove(&self) -> Result<(), Error> {
        let db = self.writer(StoreAccess::Alone)?;
        for table in schema::tables().chain(["store_format"]) {
            db.execute_batch(&format!("DROP TABLE IF EXISTS {table} CASCADE"))?;
        }
        Ok(())
    }
}

/// The format of a store; none: it is empty.
pub(super) fn format(db: &Db) -> Result<i64, DbError> {
    let known = "SELECT to_regclass('store_format') IS NOT NULL";
    if !db.prepare_cached(known)?.query_row((), |row| row.get::<bool>(0))? {
        db.execute_batch(&format!("BEGIN; {}; COMMIT", schema::BEFORE))?;
        return Ok(0);
    }
    db.prepare_cached("SELECT coalesce(max(number), 0) FROM store_format")?
        .query_row((), |row| row.get(0))
}
