//! The owner of a run's place in a store: one thread puts checkpoints there and removes old ones, here and there, so
//! that nothing is removed while it travels. It works behind training and keeps trying.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use salamander_core::layout::{COUNTED, EXPERIMENT, METRICS};
use salamander_net::Backoff;

use super::remote::RemoteCheckpoints;
use super::{CheckpointStore, Keeping};
use crate::Error;
use crate::threads::OwnedThread;

/// The pause after a first failure; each is twice the one before,
const FIRST: Duration = Duration::from_millis(500);
/// up to this.
const LONGEST: Duration = Duration::from_secs(30);

/// What the owner is told.
pub(super) enum UploadCommand {
    /// A checkpoint is complete on disk.
    Put(PathBuf),
    /// Say so when everything handed over is in the store, or was given up.
    Flush(Sender<()>),
}

/// The handle of the thread; dropped, it waits for what was handed over.
pub(super) struct Uploader {
    orders: Sender<UploadCommand>,
    _thread: OwnedThread,
}

impl Uploader {
    /// Starts with what an earlier process could not put any more. Outcomes of what is handed over go to `results`.
    pub(super) fn start(
        remote: RemoteCheckpoints,
        keeping: Keeping,
        results: Sender<Result<PathBuf, Error>>,
    ) -> Result<Self, Error> {
        let (sender, orders) = channel();
        let left = CheckpointStore::list(&keeping.folder)?.pop();
        let left =
            left.map(|last| PendingUpload { path: keeping.folder.join(last.id), told: false });
        let (flushes, until) = (Vec::new(), None);
        let owner = UploadThread { remote, keeping, orders, results, next: left, flushes, until };
        let thread = OwnedThread::spawn("store".to_string(), "a thread", move || owner.work())?;
        Ok(Self { orders: sender, _thread: thread })
    }

    pub(super) fn send(&self, order: UploadCommand) {
        // The thread ends after its last handle only.
        let _ = self.orders.send(order);
    }
}

/// A checkpoint on its way.
struct PendingUpload {
    path: PathBuf,
    /// Whether somebody waits for its outcome.
    told: bool,
}

struct UploadThread {
    remote: RemoteCheckpoints,
    keeping: Keeping,
    orders: Receiver<UploadCommand>,
    results: Sender<Result<PathBuf, Error>>,
    next: Option<PendingUpload>,
    flushes: Vec<Sender<()>>,
    /// Somebody waits: until when it is tried.
    until: Option<Instant>,
}

impl UploadThread {
    fn work(mut self) {
        let mut backoff = Backoff::new(FIRST, LONGEST);
        loop {
            let Some(waiting) = &self.next else {
                self.settle();
                match self.orders.recv() {
                    Ok(order) => self.take(order),
                    Err(_) => return,
                }
                continue;
            };
            match self.upload(&waiting.path) {
                Ok(()) => {
                    backoff.reset();
                    self.done();
                }
                Err(error) => {
                    let store = self.remote.url();
                    tracing::warn!(%error, store, "a checkpoint is not in the store yet; trying again");
                    self.rest(backoff.wait().unwrap_or(LONGEST), &error);
                }
            }
        }
    }

    /// The experiment goes first: whoever finds a checkpoint can use it.
    fn upload(&self, path: &Path) -> Result<(), Error> {
        self.remote.put_once(self.keeping.run(), EXPERIMENT)?;
        self.remote.upload(path)
    }

    fn done(&mut self) {
        let Some(PendingUpload { path, told }) = self.next.take() else { return };
        self.tidy(&path);
        if told {
            tracing::info!(checkpoint = %path.display(), store = self.remote.url(), "stored");
            let _ = self.results.send(Ok(path));
        }
        while let Ok(order) = self.orders.try_recv() {
            self.take(order);
        }
    }

    /// What goes wrong here is only a waste of room, or done again with the next checkpoint.
    fn tidy(&self, path: &Path) {
        let beside = self.remote.put(self.keeping.run(), METRICS);
        let last = path.file_name().unwrap_or_default().to_string_lossy();
        if let Err(error) = beside.and_then(|()| self.remote.tidy(&self.keeping, &last)) {
            tracing::warn!(%error, checkpoint = %path.display(), "the store is not tidy");
        }
        self.keeping.remove_superfluous(path);
    }

    fn take(&mut self, order: UploadCommand) {
        match order {
            UploadCommand::Put(path) => {
                let older = self.next.replace(PendingUpload { path, told: true });
                if let Some(older) = older.filter(|older| older.told) {
                    self.leave_out(&older.path);
                }
            }
            UploadCommand::Flush(done) => {
                self.flushes.push(done);
                let patience = self.patience();
                self.until.get_or_insert_with(|| Instant::now() + patience);
            }
        }
    }

    /// A newer checkpoint takes its place before it was in the store. In a distributed run it does not count here
    /// either; otherwise it stays as long as the policy keeps it.
    fn leave_out(&self, path: &Path) {
        tracing::warn!(checkpoint = %path.display(), "left out of the store for a newer one");
        if self.keeping.folder.join(COUNTED).exists() {
            // A folder that cannot be removed is only a waste of room.
            let _ = fs::remove_dir_all(path);
        }
    }

    /// Waits before the next try, unless there is something newer to try; gives up when somebody waited long enough.
    fn rest(&mut self, pause: Duration, error: &Error) {
        let wake = Instant::now() + pause;
        loop {
            let end = self.until.map_or(wake, |until| until.min(wake));
            match self.orders.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(order) => {
                    let newer = matches!(order, UploadCommand::Put(_));
                    self.take(order);
                    if newer {
                        break;
                    }
                }
                Err(RecvTimeoutError::Timeout) => break,
                Err(RecvTimeoutError::Disconnected) => {
                    let patience = self.patience();
                    let until = *self.until.get_or_insert_with(|| Instant::now() + patience);
                    std::thread::sleep(until.min(wake).saturating_duration_since(Instant::now()));
                    break;
                }
            }
        }
        if self.until.is_some_and(|until| Instant::now() >= until) {
            self.give_up(error);
        }
    }

    fn give_up(&mut self, error: &Error) {
        let Some(PendingUpload { path, told }) = self.next.take() else { return };
        let text = format!("{error}; it is in {}", path.display());
        tracing::error!(text, "a checkpoint could not be put into the store");
        // Whoever waits for all of them hears of one that an earlier process has left, too.
        if told || !self.flushes.is_empty() {
            let _ = self.results.send(Err(Error::NotStored(text)));
        }
    }

    fn settle(&mut self) {
        self.until = None;
        for done in self.flushes.drain(..) {
            let _ = done.send(());
        }
    }

    fn patience(&self) -> Duration {
        Duration::from_secs(self.keeping.storage.store_patience)
    }
}
