//! Several connections ask at a time; what they hear is given on in the order of the records.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use salamander_data::{Dataset, JsonRecord, Row};
use serde_json::Value as Json;

use super::Inference;
use crate::Error;

/// The records to ask about.
pub(super) struct Jobs {
    pub(super) dataset: Arc<Dataset>,
    /// Those before it are answered.
    pub(super) first: u64,
    pub(super) batch: u64,
}

impl Jobs {
    fn count(&self) -> u64 {
        (self.dataset.len() - self.first).div_ceil(self.batch)
    }

    fn records(&self, job: u64) -> Range<u64> {
        let first = self.first + job * self.batch;
        first..(first + self.batch).min(self.dataset.len())
    }
}

type Answered = (u64, Result<Vec<Json>, Error>);

/// Asks about everything; `take` gets the answers of each batch in order.
pub(super) fn run(
    inference: &Inference,
    jobs: &Jobs,
    take: &mut dyn FnMut(Vec<Json>) -> Result<(), Error>,
) -> Result<(), Error> {
    let next = AtomicU64::new(0);
    let connections = (inference.connections.max(1) as u64).min(jobs.count()) as usize;
    let window = AskingWindow { due: Mutex::new(0), moved: Condvar::new() };
    let (send, answers) = sync_channel::<Answered>(connections);
    std::thread::scope(|scope| {
        for _ in 0..connections {
            let (send, next, window) = (send.clone(), &next, &window);
            scope.spawn(move || ask(inference, jobs, next, window, &send));
        }
        drop(send);
        // Whoever waits for its turn must not wait any more when this ends.
        let _open = OpenAtTheEnd(&window);
        let (mut waiting, mut due) = (BTreeMap::new(), 0);
        for (job, answered) in answers {
            waiting.insert(job, answered?);
            while let Some(answered) = waiting.remove(&due) {
                take(answered)?;
                due += 1;
                window.move_to(due);
            }
        }
        Ok(())
    })
}

/// How far ahead of the batch that is due others may be: their answers are kept in memory.
const AHEAD: u64 = 32;

struct AskingWindow {
    due: Mutex<u64>,
    moved: Condvar,
}

impl AskingWindow {
    fn move_to(&self, due: u64) {
        *self.due.lock().unwrap_or_else(PoisonError::into_inner) = due;
        self.moved.notify_all();
    }

    /// Waits until a batch is not too far ahead.
    fn wait_for(&self, job: u64) {
        let mut due = self.due.lock().unwrap_or_else(PoisonError::into_inner);
        while job >= due.saturating_add(AHEAD) {
            due = self.moved.wait(due).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

struct OpenAtTheEnd<'a>(&'a AskingWindow);

impl Drop for OpenAtTheEnd<'_> {
    fn drop(&mut self) {
        self.0.move_to(u64::MAX);
    }
}

fn ask(
    inference: &Inference,
    jobs: &Jobs,
    next: &AtomicU64,
    window: &AskingWindow,
    send: &SyncSender<Answered>,
) {
    let mut client = None;
    loop {
        let job = next.fetch_add(1, Ordering::Relaxed);
        if job >= jobs.count() {
            return;
        }
        window.wait_for(job);
        let mut answer = || {
            let client = match &mut client {
                Some(client) => client,
                none => none.insert(inference.connect()?),
            };
            let question = question(client, jobs, job)?;
            inference.ask(client, &question).map_err(|error| match error {
                Error::Invalid(reason) => {
                    let Range { start, end } = jobs.records(job);
                    Error::Invalid(format!("records {start} to {}: {reason}", end - 1))
                }
                other => other,
            })
        };
        let answered = answer();
        let failed = answered.is_err();
        if send.send((job, answered)).is_err() || failed {
            return;
        }
    }
}

/// A batch of rows, which live only as long as they are read: they are copied as records of their own.
fn question(
    client: &salamander_serve::Client,
    jobs: &Jobs,
    job: u64,
) -> Result<salamander_serve::Question, Error> {
    let numbers: Vec<u64> = jobs.records(job).collect();
    let mut records: Vec<Option<JsonRecord>> = vec![None; numbers.len()];
    jobs.dataset.read(&numbers, &mut |place, row| {
        records[place] = Some(JsonRecord::of(&row));
        Ok(())
    })?;
    let rows: Vec<Row<'_>> = records.iter().flatten().map(JsonRecord::row).collect();
    client.question(&rows).map_err(|reason| {
        let Range { start, end } = jobs.records(job);
        Error::Invalid(format!("records {start} to {}: {reason}", end - 1))
    })
}
