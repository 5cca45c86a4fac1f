//! The one thread that writes: jobs that wait are written in one transaction, and all of them return when it is
//! committed.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{Builder, JoinHandle};

use tokio::sync::broadcast;

use super::db::{Db, OptionalExtension};
use super::{StoreAccess, StoreUrl, set_meta};
use crate::Error;

/// Jobs that may wait; who comes later waits to be let in.
const WAITING: usize = 256;
/// Jobs of one commit.
const TOGETHER: usize = 128;
/// Names of metrics that are remembered.
const NAMES: usize = 1 << 16;
/// Changes that a slow listener may be behind before it has to look for itself.
const REMEMBERED: usize = 1024;

/// What a job sees: a transaction, and the number of the change that it is.
pub(crate) struct Tx<'a> {
    db: &'a Db,
    /// The number that changed rows get.
    pub(crate) change: i64,
    touched: RefCell<BTreeSet<Touched>>,
    /// Numbers of metrics by their names: those that are in the store never change.
    pub(super) metric_ids: RefCell<HashMap<String, i64>>,
}

/// What a commit has changed, for those who follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Touched {
    /// An experiment's row.
    Experiment(i64),
    /// A run's row, curves or checkpoints.
    Run(i64),
    /// A run's logs.
    Logs(i64),
    /// The registry.
    Models,
}

impl Tx<'_> {
    /// Notes what followers will want to look at.
    pub(crate) fn touch(&self, what: Touched) {
        self.touched.borrow_mut().insert(what);
    }

    /// Remembers the number of a metric for this transaction, and those after it if it is committed.
    pub(super) fn remember_metric(&self, name: &str, metric: i64) {
        let mut known = self.metric_ids.borrow_mut();
        if known.len() >= NAMES {
            known.clear();
        }
        known.insert(name.to_string(), metric);
    }
}

impl Deref for Tx<'_> {
    type Target = Db;

    fn deref(&self) -> &Db {
        self.db
    }
}

/// A commit, as followers hear of it.
#[derive(Clone, Debug)]
pub struct Commit {
    /// Its number.
    pub change: i64,
    /// What it has changed.
    pub touched: Arc<BTreeSet<Touched>>,
}

/// Does something, and says whether it went well.
type WriteJob = Box<dyn FnOnce(&Tx<'_>) -> (bool, WriteAnswer) + Send>;
/// Tells whoever waits how it went; given the error if the commit failed.
type WriteAnswer = Box<dyn FnOnce(Result<(), String>) + Send>;

pub(super) struct StoreWriter {
    jobs: Option<SyncSender<WriteJob>>,
    thread: Option<JoinHandle<()>>,
    pub(super) commits: broadcast::Sender<Commit>,
}

impl StoreWriter {
    pub(super) fn start(
        url: &StoreUrl,
        sharing: StoreAccess,
        change: Arc<AtomicI64>,
    ) -> Result<Self, Error> {
        let (url, metric_ids) = (url.clone(), HashMap::new());
        let mut link = WriterConnection { url, sharing, change, db: None, metric_ids };
        link.connect()?;
        let (sender, jobs) = sync_channel(WAITING);
        let (commits, _) = broadcast::channel(REMEMBERED);
        let told = commits.clone();
        let thread = Builder::new()
            .name("store".to_string())
            .spawn(move || write_all(link, &jobs, &told))
            .map_err(|error| Error::Invalid(format!("cannot start a thread: {error}")))?;
        Ok(Self { jobs: Some(sender), thread: Some(thread), commits })
    }

    pub(super) fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce(&Tx<'_>) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let (sender, answer) = sync_channel(1);
        let job: WriteJob = Box::new(move |tx| {
            let done = job(tx);
            let is_good = done.is_ok();
            let answer: WriteAnswer = Box::new(move |committed| {
                let result = match committed {
                    Ok(()) => done,
                    Err(reason) => done.and(Err(Error::Unwritable(reason))),
                };
                // Whoever asked may have gone away.
                let _ = sender.send(result);
            });
            (is_good, answer)
        });
        let jobs = self.jobs.as_ref().ok_or(Error::Closed)?;
        jobs.send(job).map_err(|_| Error::Closed)?;
        // A job that was never begun has no answer.
        let unwritable = |_| Error::Unwritable("no transaction can be begun".to_string());
        answer.recv().map_err(unwritable)?
    }
}

impl Drop for StoreWriter {
    fn drop(&mut self) {
        drop(self.jobs.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The connection that writes, which is made again when it is lost.
struct WriterConnection {
    url: StoreUrl,
    sharing: StoreAccess,
    change: Arc<AtomicI64>,
    db: Option<Db>,
    /// Numbers of metrics that are in the store for certain.
    metric_ids: HashMap<String, i64>,
}

impl WriterConnection {
    fn connect(&mut self) -> Result<&Db, Error> {
        let db = match self.db.take() {
            Some(db) => db,
            None => {
                let db = self.url.writer(self.sharing)?;
                let sql = "SELECT value FROM meta WHERE key = 'change'";
                let kept = db.prepare_cached(sql)?.query_row((), |row| row.get::<String>(0));
                let kept = kept.optional()?.and_then(|text| text.parse().ok()).unwrap_or(0);
                // A commit may have been made whose answer was lost.
                self.change.fetch_max(kept, Ordering::AcqRel);
                db
            }
        };
        Ok(self.db.insert(db))
    }

    /// Begins a transaction; where the connection is found to be lost, on another one.
    fn begin(&mut self) -> Result<(), Error> {
        if let Err(error) = self.connect()?.execute_batch("BEGIN") {
            if !error.is_lost() {
                return Err(error.into());
            }
            tracing::warn!(%error, store = %self.url, "the connection is lost, and made again");
            self.db = None;
            self.connect()?.execute_batch("BEGIN")?;
        }
        Ok(())
    }

    /// Takes back what was begun; a connection that cannot is given up.
    fn roll_back(&mut self) {
        if let Some(Err(error)) = self.db.as_ref().map(|db| db.execute_batch("ROLLBACK"))
            && error.is_lost()
        {
            self.db = None;
        }
    }
}

fn write_all(
    mut link: WriterConnection,
    jobs: &Receiver<WriteJob>,
    told: &broadcast::Sender<Commit>,
) {
    while let Ok(first) = jobs.recv() {
        let mut together = vec![first];
        together.extend(jobs.try_iter().take(TOGETHER - 1));
        let (answers, committed) = commit(&mut link, together);
        let told_of = match committed {
            Ok(commit) => {
                link.change.store(commit.change, Ordering::Release);
                // Nobody may be listening.
                let _ = told.send(commit);
                Ok(())
            }
            Err(error) => {
                link.roll_back();
                tracing::warn!(%error, store = %link.url, "a commit failed");
                Err(error.to_string())
            }
        };
        for answer in answers {
            answer(told_of.clone());
        }
    }
    if let Some(db @ Db::Sqlite(_)) = &link.db {
        // Readers of a store that nobody writes find everything in one file.
        let _ = db.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)");
    }
}

/// Does several jobs in one transaction; a job that fails takes back what it did, and nothing of the others.
fn commit(
    link: &mut WriterConnection,
    jobs: Vec<WriteJob>,
) -> (Vec<WriteAnswer>, Result<Commit, Error>) {
    let mut answers = Vec::with_capacity(jobs.len());
    let done = (|| {
        link.begin()?;
        let change = link.change.load(Ordering::Acquire) + 1;
        // Given back when it is committed: a number may be one that was never given.
        let metric_ids = RefCell::new(std::mem::take(&mut link.metric_ids));
        let tx = Tx { db: link.connect()?, change, touched: RefCell::default(), metric_ids };
        for job in jobs {
            tx.execute_batch("SAVEPOINT job")?;
            let (is_good, answer) = job(&tx);
            answers.push(answer);
            if !is_good {
                tx.metric_ids.borrow_mut().clear();
            }
            tx.execute_batch(if is_good {
                "RELEASE SAVEPOINT job"
            } else {
                "ROLLBACK TO SAVEPOINT job; RELEASE SAVEPOINT job"
            })?;
        }
        set_meta(&tx, "change", &change.to_string())?;
        tx.execute_batch("COMMIT")?;
        let Tx { touched, metric_ids, .. } = tx;
        link.metric_ids = metric_ids.into_inner();
        Ok(Commit { change, touched: Arc::new(touched.into_inner()) })
    })();
    (answers, done)
}
