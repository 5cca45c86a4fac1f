//! Brings a store to the newest format; one of a newer release is refused.

use super::db::{Db, DbError};
use super::schema;
use super::url::StoreUrl;
use crate::Error;

pub(super) fn migrate(db: &Db, url: &StoreUrl) -> Result<(), Error> {
    let known = schema::MIGRATIONS.len() as i64;
    let found = format(db)?;
    if found > known {
        return Err(Error::NewerStore { store: url.to_string(), found, known });
    }
    for (number, migration) in (1..).zip(schema::MIGRATIONS).skip(found as usize) {
        let done = db.execute_batch(&transaction(db, number, migration));
        if done.is_err() {
            // What failed is the error that is told.
            let _ = db.execute_batch("ROLLBACK");
        }
        done?;
    }
    Ok(())
}

fn format(db: &Db) -> Result<i64, DbError> {
    match db {
        Db::Sqlite(_) => db.prepare_cached("PRAGMA user_version")?.query_row((), |row| row.get(0)),
        #[cfg(feature = "postgres")]
        Db::Postgres(_) => super::server::format(db),
    }
}

fn transaction(db: &Db, number: i64, migration: &str) -> String {
    match db {
        Db::Sqlite(_) => format!("BEGIN; {migration}; PRAGMA user_version = {number}; COMMIT"),
        #[cfg(feature = "postgres")]
        Db::Postgres(_) => {
            let migration = schema::for_postgres(migration);
            format!(
                "BEGIN; {migration}; DELETE FROM store_format; INSERT INTO store_format VALUES ({number}); COMMIT"
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Store;
    use super::super::users::{User, UserRole};
    use super::*;

    #[test]
    fn a_store_of_the_first_format_keeps_its_rows() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("hub.sqlite");
        let old = rusqlite::Connection::open(&path).expect("made");
        old.execute_batch(schema::MIGRATIONS[0]).expect("made");
        let rows = "INSERT INTO users (name, role, created) VALUES ('ada', 'editor', 7); \
                    PRAGMA user_version = 1";
        old.execute_batch(rows).expect("written");
        drop(old);
        let store = Store::open(&path).expect("opened");
        assert_eq!(store.read(|db| Ok(format(db)?)).expect("read"), 4);
        let ada = User { name: "ada".into(), role: UserRole::Editor };
        assert_eq!(store.users().expect("read"), [ada]);
        assert!(store.webhooks().expect("the second format's").is_empty());
    }
}
