//! The master's files in the run's store, put there on a thread of their own for as long as this master leads.

use std::fs;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use salamander_core::experiment::CheckpointStorage;
use salamander_core::layout::{COUNTED, COURSE, EXPERIMENT, JOURNAL, METRICS, RunLayout};
use salamander_data::ObjectVersion;
use salamander_master::journal::Problem;
use salamander_net::{Backoff, Token, retry};
use salamander_train::checkpoint::RemoteCheckpoints;

use super::PAUSES;
use super::claim::{Claim, NotPut, StoredObject};
use crate::Error;

/// Files of the run that are of use to whoever goes on with it. The journal, which says what counts, comes after them.
const FILES: [&str; 3] = [EXPERIMENT, COURSE, METRICS];
/// How often a master that has nothing to put looks whether the journal in the store is still its own.
const LOOK: Duration = Duration::from_secs(10);

/// Keeps the master's files in the run's store, on a thread of its own.
pub(crate) struct StoredJournal {
    uploads: Arc<JournalUploads>,
    wake: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
}

struct JournalUploads {
    remote: RemoteCheckpoints,
    run: RunLayout,
    patience: Duration,
    /// Held while files are put, so that no older ones come last.
    claims: Mutex<Claims>,
    /// Why this master does not lead any more.
    deposed: Mutex<Option<NotLeading>>,
}

/// Why a master does not lead any more.
#[derive(Clone)]
enum NotLeading {
    TakenOver(String),
    Silence(String),
}

struct Claims {
    journal: Claim<ObjectVersion>,
    /// Whether the journal in the store is this master's.
    is_own: bool,
    /// The list of checkpoints that count, as it was last seen in the store.
    counted: Option<ObjectVersion>,
}

/// A file of the run in its store.
struct RunObject<'a>(&'a RemoteCheckpoints, &'static str);

impl StoredObject for RunObject<'_> {
    type Version = ObjectVersion;
    type Error = Error;

    fn read(&self) -> Result<Option<(Vec<u8>, ObjectVersion)>, Error> {
        Ok(self.0.get_versioned(self.1)?)
    }

    fn put_if(
        &self,
        bytes: Vec<u8>,
        seen: Option<&ObjectVersion>,
    ) -> Result<Option<ObjectVersion>, Error> {
        Ok(self.0.put_if(self.1, bytes, seen)?)
    }
}

impl StoredJournal {
    /// For a master that goes on from the journal that was seen in the store.
    pub(crate) fn start(
        remote: RemoteCheckpoints,
        run: &RunLayout,
        storage: &CheckpointStorage,
        seen: Option<ObjectVersion>,
    ) -> Result<Self, Error> {
        let patience = Duration::from_secs(storage.store_patience);
        let mut nonce = [0; 16];
        nonce.copy_from_slice(&blake3::hash(Token::random()?.to_hex().as_bytes()).as_bytes()[..16]);
        let journal = Claim::new(nonce, seen);
        let claims = Mutex::new(Claims { journal, is_own: false, counted: None });
        let deposed = Mutex::new(None);
        let uploads = JournalUploads { remote, run: run.clone(), patience, claims, deposed };
        let uploads = Arc::new(uploads);
        let (wake, woken) = sync_channel(1);
        let own = Arc::clone(&uploads);
        let thread =
            std::thread::Builder::new().name("stored".into()).spawn(move || own.work(&woken));
        let thread = thread.map_err(Error::system("cannot start a thread"))?;
        Ok(Self { uploads, wake: Some(wake), thread: Some(thread) })
    }

    /// Puts the files now, as often as it takes while the store does not answer. A master that cannot does not lead:
    /// nobody must hear of a term that another one can take again.
    pub(crate) fn claim(&self) -> Result<(), Error> {
        let backoff = Backoff::new(PAUSES.0, PAUSES.1).within(self.uploads.patience);
        let put = || self.uploads.put();
        let claimed = retry(backoff, put, |error| match error {
            NotPut::Unknown(error) => {
                tracing::warn!(%error, "the journal is not in the store yet; trying again");
                true
            }
            NotPut::Lost => false,
        });
        claimed.map_err(|error| match error {
            NotPut::Unknown(error) => error,
            NotPut::Lost => Error::Failed(self.uploads.lost()),
        })
    }

    /// The files have changed.
    pub(crate) fn note(&self) {
        // A full channel: the thread has not looked yet.
        let _ = self.wake.as_ref().map(|wake| wake.try_send(()));
    }

    /// Why this master does not lead any more, if it does not.
    pub(crate) fn deposed(&self) -> Option<Problem> {
        let reason = self.uploads.deposed.lock().unwrap_or_else(PoisonError::into_inner).clone();
        reason.map(|reason| match reason {
            NotLeading::TakenOver(reason) => Problem::Deposed(reason),
            NotLeading::Silence(reason) => Problem::CutOff(reason),
        })
    }
}

impl Drop for StoredJournal {
    fn drop(&mut self) {
        self.note();
        drop(self.wake.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl JournalUploads {
    fn work(&self, woken: &Receiver<()>) {
        // Since when the store has not answered.
        let mut silent: Option<Instant> = None;
        loop {
            let done = match woken.recv_timeout(LOOK) {
                Ok(()) => self.put_patiently(woken, &mut silent),
                Err(RecvTimeoutError::Timeout) => self.look(),
                Err(RecvTimeoutError::Disconnected) => return,
            };
            match done {
                Ok(()) => silent = None,
                Err(NotPut::Lost) => return self.depose(NotLeading::TakenOver(self.lost())),
                Err(NotPut::Unknown(error)) => {
                    let store = self.remote.url();
                    tracing::warn!(%error, store, "the store does not answer");
                    if silent.get_or_insert_with(Instant::now).elapsed() > self.patience {
                        let reason = format!("its store does not answer: {error}");
                        return self.depose(NotLeading::Silence(reason));
                    }
                }
            }
        }
    }

    /// Puts the files until they are there; gives up after the patience.
    fn put_patiently(
        &self,
        woken: &Receiver<()>,
        silent: &mut Option<Instant>,
    ) -> Result<(), NotPut<Error>> {
        let mut backoff = Backoff::new(PAUSES.0, PAUSES.1);
        loop {
            let error = match self.put() {
                Err(NotPut::Unknown(error)) => error,
                done => return done,
            };
            let store = self.remote.url();
            tracing::warn!(%error, store, "the run's files are not in the store yet; trying again");
            if silent.get_or_insert_with(Instant::now).elapsed() > self.patience {
                tracing::error!(%error, store, "the run's files are not in the store");
                return Err(NotPut::Unknown(error));
            }
            let pause = backoff.wait().unwrap_or(PAUSES.1);
            if let Err(RecvTimeoutError::Disconnected) = woken.recv_timeout(pause) {
                std::thread::sleep(pause);
            }
        }
    }

    fn look(&self) -> Result<(), NotPut<Error>> {
        let claims = self.claims.lock().unwrap_or_else(PoisonError::into_inner);
        let is_own = !claims.is_own || claims.journal.holds(&RunObject(&self.remote, JOURNAL))?;
        if is_own { Ok(()) } else { Err(NotPut::Lost) }
    }

    fn put(&self) -> Result<(), NotPut<Error>> {
        self.look()?;
        let mut claims = self.claims.lock().unwrap_or_else(PoisonError::into_inner);
        // Read before the journal: what counts there must be in the journal that is there.
        let counted = fs::read(self.run.counted()).ok();
        for name in FILES {
            self.remote.put(self.run.folder(), name).map_err(Error::from)?;
        }
        let journal = fs::read(self.run.journal()).map_err(Error::io(&self.run.journal()))?;
        claims.journal.put(&RunObject(&self.remote, JOURNAL), &journal)?;
        claims.is_own = true;
        counted.map_or(Ok(()), |counted| self.put_counted(&mut claims, counted))
    }

    /// The list has a condition of its own: the journal may change hands after it was put.
    fn put_counted(&self, claims: &mut Claims, counted: Vec<u8>) -> Result<(), NotPut<Error>> {
        let object = RunObject(&self.remote, COUNTED);
        loop {
            if let Some(put) = object.put_if(counted.clone(), claims.counted.as_ref())? {
                claims.counted = Some(put);
                return Ok(());
            }
            let (found, version) = object.read()?.unzip();
            claims.counted = version;
            if found.as_ref() == Some(&counted) {
                return Ok(());
            }
            if !claims.journal.holds(&RunObject(&self.remote, JOURNAL))? {
                return Err(NotPut::Lost);
            }
        }
    }

    fn lost(&self) -> String {
        format!("another one has taken over the run in {}", self.remote.url())
    }

    fn depose(&self, reason: NotLeading) {
        let (NotLeading::TakenOver(text) | NotLeading::Silence(text)) = &reason;
        tracing::error!(reason = text, "this master stops leading");
        *self.deposed.lock().unwrap_or_else(PoisonError::into_inner) = Some(reason);
    }
}
