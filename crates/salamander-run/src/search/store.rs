//! The trials of a search in SQLite, for whoever asks with SQL: while it goes on, and of any search afterwards.
//!
//! It is a projection of the journal, like the store of a hub is one of folders: nothing is only here, nothing is
//! decided by it, and whatever becomes of it, it is made again when the search goes on. So it need not be synced.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, params};
use salamander_search::{Search, Trial, TrialId};

use super::SearchEnd;
use super::end::trial_folder_name;
use crate::Error;

/// `best` and `metric` are null where a trial measured nothing, or what is not a number.
const TABLES: &str = "
    CREATE TABLE search (
        metric TEXT NOT NULL, smaller_is_better INTEGER NOT NULL, seed INTEGER NOT NULL,
        over INTEGER NOT NULL, best INTEGER, seconds REAL NOT NULL);
    CREATE TABLE trials (
        id INTEGER PRIMARY KEY, state TEXT NOT NULL, length INTEGER NOT NULL, metric REAL,
        best REAL, hparams TEXT NOT NULL, reason TEXT NOT NULL, dir TEXT NOT NULL);
    CREATE TABLE reports (
        trial INTEGER NOT NULL REFERENCES trials, number INTEGER NOT NULL,
        length INTEGER NOT NULL, metric REAL, PRIMARY KEY (trial, number)) WITHOUT ROWID;
    PRAGMA user_version = 1;
";

/// The trials of a search in a file of SQLite.
pub(super) struct TrialStore {
    connection: Connection,
    /// How many reports of each trial are in it.
    reported: Vec<usize>,
}

impl TrialStore {
    /// Makes the store of a search that goes on, with all that it has decided so far.
    pub(super) fn live(path: &Path, search: &Search, seconds: f64) -> Result<Self, Error> {
        for end in ["", "-wal", "-shm"] {
            let mut name = path.as_os_str().to_owned();
            name.push(end);
            // What cannot be removed cannot be written either, which is told below.
            let _ = fs::remove_file(PathBuf::from(name));
        }
        let settings = "PRAGMA journal_mode = WAL; PRAGMA synchronous = OFF;";
        Self::make(path, settings, search, seconds).map_err(wrong(path))
    }

    /// Writes all trials of a search to a file, which is there completely or not at all.
    pub(super) fn write(path: &Path, end: &SearchEnd) -> Result<(), Error> {
        let part = path.with_extension("part");
        let _ = fs::remove_file(&part);
        let written = Self::make(&part, "", end.search(), end.seconds)
            .and_then(|store| store.connection.close().map_err(|(_, error)| error));
        let renamed = written
            .map_err(wrong(path))
            .and_then(|()| fs::rename(&part, path).map_err(Error::io(path)));
        if renamed.is_err() {
            let _ = fs::remove_file(&part);
        }
        renamed
    }

    fn make(
        path: &Path,
        settings: &str,
        search: &Search,
        seconds: f64,
    ) -> Result<Self, rusqlite::Error> {
        let connection = Connection::open(path)?;
        connection.execute_batch(settings)?;
        connection.execute_batch(TABLES)?;
        let mut store = Self { connection, reported: Vec::new() };
        store.put(search, search.trials().iter(), seconds)?;
        Ok(store)
    }

    /// What has become of some trials.
    pub(super) fn update(
        &mut self,
        search: &Search,
        changed: &BTreeSet<TrialId>,
        seconds: f64,
    ) -> Result<(), String> {
        let changed = changed.iter().filter_map(|trial| search.trial(*trial));
        self.put(search, changed, seconds).map_err(|error| error.to_string())
    }

    fn put<'a>(
        &mut self,
        search: &Search,
        trials: impl Iterator<Item = &'a Trial>,
        seconds: f64,
    ) -> Result<(), rusqlite::Error> {
        self.reported.resize(search.trials().len(), 0);
        let transaction = self.connection.transaction()?;
        {
            let mut put = transaction.prepare_cached(
                "INSERT OR REPLACE INTO trials VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
            )?;
            let mut report =
                transaction.prepare_cached("INSERT INTO reports VALUES (?1, ?2, ?3, ?4)")?;
            for trial in trials {
                let id = trial.id.0 as i64;
                put.execute(params![
                    id,
                    trial.state.as_str(),
                    trial.length() as i64,
                    trial.metric(),
                    trial.best(search.method().smaller_is_better),
                    trial.hparams().to_string(),
                    trial.reason,
                    trial_folder_name(trial.id),
                ])?;
                let known = &mut self.reported[trial.id.0 as usize - 1];
                for (number, (length, metric)) in trial.reports.iter().enumerate().skip(*known) {
                    report.execute(params![id, number as i64, *length as i64, metric])?;
                }
                *known = trial.reports.len();
            }
            let method = search.method();
            let best = search.best().map(|(best, _)| best.id.0 as i64);
            transaction.execute("DELETE FROM search", [])?;
            transaction.execute(
                "INSERT INTO search VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
                params![
                    method.metric,
                    method.smaller_is_better,
                    method.seed as i64,
                    search.is_over(),
                    best,
                    seconds
                ],
            )?;
        }
        transaction.commit()
    }
}

fn wrong(path: &Path) -> impl FnOnce(rusqlite::Error) -> Error {
    let path = path.display().to_string();
    move |error| Error::Failed(format!("{path}: {error}"))
}

#[cfg(test)]
mod tests {
    use salamander_core::layout::RunLayout;
    use salamander_search::{SearchEvent, SearchFile};

    use super::*;

    fn search() -> Search {
        let text = "searcher: {name: random, metric: loss, max_trials: 3, max_length: {batches: 4},\
                    max_concurrent_trials: 2}\nhyperparameters: {net: {units: {randint: [1, 9]}}}\n";
        let file = SearchFile::parse(text, &[]).expect("valid");
        let mut search = file.search(1).expect("a search");
        search.begin();
        search
    }

    fn rows(path: &Path, query: &str) -> String {
        let connection = Connection::open(path).expect("a store");
        let mut statement = connection.prepare(query).expect("a query");
        let row = |row: &rusqlite::Row<'_>| row.get::<_, String>(0);
        let rows = statement.query_map([], row).expect("asked");
        rows.map(|row| row.expect("a row")).collect::<Vec<_>>().join("; ")
    }

    #[test]
    fn a_store_follows_its_search_and_can_be_made_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("search.sqlite");
        let mut search = search();
        let mut store = TrialStore::live(&path, &search, 0.0).expect("a store");
        let report = |trial, metric| SearchEvent::Report { trial, length: 4, metric };
        for (trial, metric) in [(1, 0.5), (2, f64::NAN), (3, 0.25)] {
            let actions = search.arrive(report(TrialId(trial), metric));
            let changed = actions.iter().map(|action| action.trial).chain([TrialId(trial)]);
            store.update(&search, &changed.collect(), 1.5).expect("written");
        }
        let all = "SELECT id || ' ' || state || ' ' || length || ' ' || ifnull(metric, '-') || ' ' || dir \
                   FROM trials ORDER BY id";
        let expected = "1 completed 4 0.5 trials/00001; 2 completed 4 - trials/00002; \
                        3 completed 4 0.25 trials/00003";
        // Also while it is written to.
        assert_eq!(rows(&path, all), expected);
        let units = "SELECT json_extract(hparams, '$.net.units') || '' FROM trials WHERE id = 1";
        assert_eq!(rows(&path, units), search.trials()[0].hparams()["net"]["units"].to_string());
        let whole = "SELECT metric || ' ' || best || ' ' || over || ' ' || seconds FROM search";
        assert_eq!(rows(&path, whole), "loss 3 1 1.5");
        assert_eq!(rows(&path, "SELECT count(*) || '' FROM reports"), "3");
        drop(store);
        TrialStore::live(&path, &search, 1.5).expect("made again");
        assert_eq!(rows(&path, all), expected);
        let layout = RunLayout::new(folder.path());
        let end = SearchEnd { layout, interrupted: false, seconds: 1.5, search };
        let out = folder.path().join("trials.sqlite");
        for _ in 0..2 {
            TrialStore::write(&out, &end).expect("written");
            assert_eq!(rows(&out, all), expected);
        }
        let nowhere = folder.path().join("nowhere/trials.sqlite");
        let error = TrialStore::write(&nowhere, &end).expect_err("no folder").to_string();
        assert!(error.contains("nowhere/trials.sqlite: unable to open"), "{error}");
    }
}
