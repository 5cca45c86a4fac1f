//! The owner threads: each has a shard and does what it is sent, one thing after the other. Who asks
//! for something while an owner has nothing to do does it in its place, which spares two switches
//! between threads.
//!
//! Jobs may borrow from their sender, who waits for them: rows are read straight into its memory.
#![allow(
    unsafe_code,
    reason = "std has scoped threads but no scoped jobs on threads that stay; without them every \
              pull would copy its rows once more on their way to the caller"
)]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, TryLockError};
use std::thread::JoinHandle;

use crate::{Error, Shard};

/// Requests that may wait for a thread before those who send more wait too.
const QUEUE: usize = 128;

type Job = Box<dyn FnOnce(&mut Shard) + Send>;

/// The threads of an engine. They end when this is dropped.
#[derive(Debug)]
pub(crate) struct Owners {
    owners: Vec<OwnerThread>,
    broken: AtomicBool,
}

#[derive(Debug)]
struct OwnerThread {
    place: Arc<OwnedShard>,
    /// Until the end.
    queue: Option<SyncSender<Job>>,
    thread: Option<JoinHandle<()>>,
}

/// Where an owner works.
#[derive(Debug)]
struct OwnedShard {
    shard: Mutex<Shard>,
    /// Jobs that were sent to the thread and are not done.
    pending: AtomicUsize,
}

impl Owners {
    pub(crate) fn start(shards: Vec<Shard>) -> Result<Self, Error> {
        let mut owners = Vec::new();
        for (number, shard) in shards.into_iter().enumerate() {
            let place =
                Arc::new(OwnedShard { shard: Mutex::new(shard), pending: AtomicUsize::new(0) });
            let (queue, jobs) = sync_channel::<Job>(QUEUE);
            let at = Arc::clone(&place);
            let thread = std::thread::Builder::new()
                .name(format!("ps-owner-{number}"))
                .spawn(move || at.work(jobs))
                .map_err(Error::Thread)?;
            owners.push(OwnerThread { place, queue: Some(queue), thread: Some(thread) });
        }
        Ok(Self { owners, broken: AtomicBool::new(false) })
    }

    pub(crate) fn count(&self) -> usize {
        self.owners.len()
    }

    /// Whether something has panicked in one of them.
    pub(crate) fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Relaxed)
    }

    /// Has threads do something and waits for their answers, which come in the order of the jobs.
    /// `until_sent` is dropped when every job has its turn: a lock on the order in which changes are
    /// made.
    pub(crate) fn run<R, F, L>(&self, jobs: Vec<(usize, F)>, until_sent: L) -> Result<Vec<R>, Error>
    where
        R: Send,
        F: FnOnce(&mut Shard) -> R + Send,
    {
        let done = self.here_or_there(jobs, until_sent);
        if done.is_err() {
            self.broken.store(true, Ordering::Relaxed);
        }
        done
    }

    fn here_or_there<R, F, L>(
        &self,
        mut jobs: Vec<(usize, F)>,
        until_sent: L,
    ) -> Result<Vec<R>, Error>
    where
        R: Send,
        F: FnOnce(&mut Shard) -> R + Send,
    {
        if jobs.len() == 1
            && let Some((thread, job)) = jobs.pop()
        {
            match self.owners[thread].place.try_here(job, until_sent) {
                Here::Done(result) => return result.map(|result| vec![result]),
                Here::Busy(job, until_sent) => return self.send(vec![(thread, job)], until_sent),
            }
        }
        self.send(jobs, until_sent)
    }

    fn send<R, F, L>(&self, jobs: Vec<(usize, F)>, until_sent: L) -> Result<Vec<R>, Error>
    where
        R: Send,
        F: FnOnce(&mut Shard) -> R + Send,
    {
        let mut answers: Vec<Receiver<R>> = Vec::with_capacity(jobs.len());
        for (thread, job) in jobs {
            let (reply, answer) = sync_channel(1);
            let job: Box<dyn FnOnce(&mut Shard) + Send + '_> = Box::new(move |shard| {
                // The receiver is in the frame of `send`, which waits for it.
                reply.send(job(shard)).ok();
            });
            // SAFETY: only the lifetime changes. What a job borrows outlives this call, and the
            // call does not end before the job: it waits until each job has replied, which is the
            // last that a job does, or has dropped its sender unrun. Nothing between here and
            // there returns or panics: `answers` has room for all.
            let job: Job = unsafe { std::mem::transmute(job) };
            let owner = &self.owners[thread];
            owner.place.pending.fetch_add(1, Ordering::Relaxed);
            // A thread that has ended hands the job back, and its receiver tells.
            owner.queue.as_ref().map(|queue| queue.send(job).ok());
            answers.push(answer);
        }
        drop(until_sent);
        let mut results = Vec::with_capacity(answers.len());
        let mut gone = false;
        for answer in answers {
            match answer.recv() {
                Ok(result) => results.push(result),
                Err(_) => gone = true,
            }
        }
        if gone { Err(Error::Gone) } else { Ok(results) }
    }
}

/// What became of a job that its sender tried to do.
enum Here<R, F, L> {
    Done(Result<R, Error>),
    Busy(F, L),
}

impl OwnedShard {
    /// The life of an owner's thread, which ends when something has panicked here.
    fn work(&self, jobs: Receiver<Job>) {
        for job in jobs {
            let Ok(mut shard) = self.shard.lock() else { break };
            job(&mut shard);
            drop(shard);
            // After the job, so that whoever sees nothing pending comes after it.
            self.pending.fetch_sub(1, Ordering::Release);
        }
    }

    /// Does a job on the calling thread, unless the owner has something to do.
    fn try_here<R, F, L>(&self, job: F, until_sent: L) -> Here<R, F, L>
    where
        F: FnOnce(&mut Shard) -> R,
    {
        // Whoever makes changes holds a lock on their order, so that no change is sent meanwhile.
        if self.pending.load(Ordering::Acquire) > 0 {
            return Here::Busy(job, until_sent);
        }
        let shard = match self.shard.try_lock() {
            Ok(shard) => shard,
            Err(TryLockError::WouldBlock) => return Here::Busy(job, until_sent),
            Err(TryLockError::Poisoned(_)) => return Here::Done(Err(Error::Gone)),
        };
        drop(until_sent);
        // The guard goes with a panic, which leaves the shard poisoned.
        let done = catch_unwind(AssertUnwindSafe(move || {
            let mut shard = shard;
            job(&mut shard)
        }));
        Here::Done(done.map_err(|_| Error::Gone))
    }
}

impl Drop for Owners {
    fn drop(&mut self) {
        self.owners.iter_mut().for_each(|owner| owner.queue = None);
        for thread in self.owners.iter_mut().filter_map(|owner| owner.thread.take()) {
            // A thread that panicked has said so already.
            thread.join().ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_panics_is_reported_and_borrows_end() {
        let owners = Owners::start(vec![Shard::new(0, 1, vec![0], 0)]).expect("a thread");
        let mut count = 0;
        let borrow = &mut count;
        owners.run(vec![(0, move |_: &mut Shard| *borrow += 1)], ()).expect("it runs");
        assert_eq!(count, 1);
        assert!(!owners.is_broken());
        let broken = owners.run(vec![(0, |_: &mut Shard| assert!(count == 2, "on purpose"))], ());
        assert!(matches!(broken, Err(Error::Gone)));
        assert!(owners.is_broken());
        let later = owners.run(vec![(0, |_: &mut Shard| ())], ());
        assert!(matches!(later, Err(Error::Gone)));
    }
}
