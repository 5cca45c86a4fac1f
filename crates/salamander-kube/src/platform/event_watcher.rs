//! Watches the master's events, on a thread of its own. The master does not leave before all watchers have the
//! end, so that the last epoch is not lost.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use salamander_core::note::NoteTopic;
use salamander_proto::client::{Admin, SessionOptions};
use salamander_proto::v1;
use salamander_proto::v1::event::Event;
use tracing::debug;

use super::notes::{ToldNote, told};
use crate::milestones::Milestones;

/// How long a call may take, and how long to wait after one that failed.
const CALL: Duration = Duration::from_secs(5);
const AGAIN: Duration = Duration::from_millis(200);
/// Notes that may wait to be told: nobody reads more of them at a time.
const WAITING: usize = 64;

#[derive(Default)]
struct WatchedState {
    milestones: Mutex<Milestones>,
    /// The checkpoint that counted last.
    kept: Mutex<Option<String>>,
    /// What people are still to be told.
    notes: Mutex<VecDeque<ToldNote>>,
    over: AtomicBool,
    closed: AtomicBool,
}

/// Watches until the run is over, or until it is dropped.
pub(super) struct EventWatcher(Arc<WatchedState>);

impl EventWatcher {
    pub(super) fn start(session: &SessionOptions) -> std::io::Result<Self> {
        let shared = Arc::new(WatchedState::default());
        let (session, watched) = (session.clone(), Arc::clone(&shared));
        let watch = move || watch(&session, &watched);
        std::thread::Builder::new().name("event-watcher".into()).spawn(watch)?;
        Ok(Self(shared))
    }

    /// What was told so far.
    pub(super) fn milestones(&self) -> Milestones {
        lock(&self.0.milestones).clone()
    }

    /// The last checkpoint that was told of.
    pub(super) fn kept(&self) -> Option<String> {
        lock(&self.0.kept).clone()
    }

    /// What people want to know and were not told yet.
    pub(super) fn notes(&self) -> VecDeque<ToldNote> {
        std::mem::take(&mut *lock(&self.0.notes))
    }

    /// Whether everything was told.
    pub(super) fn is_over(&self) -> bool {
        self.0.over.load(Ordering::Acquire)
    }
}

impl Drop for EventWatcher {
    fn drop(&mut self) {
        self.0.closed.store(true, Ordering::Release);
    }
}

fn watch(session: &SessionOptions, shared: &WatchedState) {
    let mut last = 0;
    while !shared.closed.load(Ordering::Acquire) && !shared.over.load(Ordering::Acquire) {
        let watched = Admin::connect(session, CALL).and_then(|mut admin| {
            admin.watch(last, |event| {
                last = event.number;
                shared.take(event)
            })
        });
        if let Err(error) = watched {
            debug!(%error, "the master tells nothing");
        }
        std::thread::sleep(AGAIN);
    }
}

impl WatchedState {
    fn take(&self, event: v1::Event) -> ControlFlow<()> {
        // What another version of the program tells of is left out.
        let topic = event.topic.and_then(|topic| NoteTopic::try_from(topic).ok());
        match event.event {
            Some(Event::Report(report)) => {
                if let Ok(report) = report.try_into() {
                    lock(&self.milestones).take(report);
                }
            }
            Some(Event::Ended(_)) => self.over.store(true, Ordering::Release),
            Some(Event::Note(text)) => {
                topic.into_iter().for_each(|topic| self.note(topic, &text));
            }
            Some(Event::Result(_)) | None => {}
        }
        match self.closed.load(Ordering::Acquire) || self.over.load(Ordering::Acquire) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }

    fn note(&self, topic: NoteTopic, text: &str) {
        let told = match topic {
            NoteTopic::CheckpointKept(id) => {
                *lock(&self.kept) = Some(id);
                return;
            }
            topic => told(&topic, text),
        };
        let mut waiting = lock(&self.notes);
        if waiting.len() < WAITING {
            waiting.extend(told);
        }
    }
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
