//! The owner threads: each has a shard and does what it is sent, one thing after the other.
//!
//! Jobs may borrow from their sender, who waits for them: rows are read straight into its memory.
#![allow(
    unsafe_code,
    reason = "std has scoped threads but no scoped jobs on threads that stay; without them every \
              pull would copy its rows once more on their way to the caller"
)]

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use crate::{Error, Shard};

/// Requests that may wait for a thread before those who send more wait too.
const QUEUE: usize = 128;

type Job = Box<dyn FnOnce(&mut Shard) + Send>;

/// The threads of an engine. They end when this is dropped.
#[derive(Debug)]
pub(crate) struct Owners {
    queues: Vec<SyncSender<Job>>,
    threads: Vec<JoinHandle<()>>,
}

impl Owners {
    pub(crate) fn start(shards: Vec<Shard>) -> Result<Self, Error> {
        let mut owners = Self { queues: Vec::new(), threads: Vec::new() };
        for (number, mut shard) in shards.into_iter().enumerate() {
            let (queue, jobs) = sync_channel::<Job>(QUEUE);
            let thread = std::thread::Builder::new()
                .name(format!("ps-owner-{number}"))
                .spawn(move || jobs.into_iter().for_each(|job| job(&mut shard)))
                .map_err(Error::Thread)?;
            owners.queues.push(queue);
            owners.threads.push(thread);
        }
        Ok(owners)
    }

    pub(crate) fn count(&self) -> usize {
        self.queues.len()
    }

    /// Has threads do something and waits for their answers, which come in the order of the jobs.
    /// `until_sent` is dropped when every thread has its job in the queue: a lock on the order in
    /// which changes are made.
    pub(crate) fn run<R, F, L>(&self, jobs: Vec<(usize, F)>, until_sent: L) -> Result<Vec<R>, Error>
    where
        R: Send,
        F: FnOnce(&mut Shard) -> R + Send,
    {
        let mut answers: Vec<Receiver<R>> = Vec::with_capacity(jobs.len());
        for (thread, job) in jobs {
            let (reply, answer) = sync_channel(1);
            let job: Box<dyn FnOnce(&mut Shard) + Send + '_> = Box::new(move |shard| {
                // The receiver is in the frame of `run`, which waits for it.
                reply.send(job(shard)).ok();
            });
            // SAFETY: only the lifetime changes. What a job borrows outlives this call, and the
            // call does not end before the job: it waits until each job has replied, which is the
            // last that a job does, or has dropped its sender unrun. Nothing between here and
            // there returns or panics: `answers` has room for all.
            let job: Job = unsafe { std::mem::transmute(job) };
            // A thread that has ended hands the job back, and its receiver tells.
            self.queues[thread].send(job).ok();
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

impl Drop for Owners {
    fn drop(&mut self) {
        self.queues.clear();
        for thread in self.threads.drain(..) {
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
        let broken = owners.run(vec![(0, |_: &mut Shard| assert!(count == 2, "on purpose"))], ());
        assert!(matches!(broken, Err(Error::Gone)));
        let later = owners.run(vec![(0, |_: &mut Shard| ())], ());
        assert!(matches!(later, Err(Error::Gone)));
    }
}
