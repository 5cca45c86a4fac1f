//! Watches the master's events, on a thread of its own. The master does not leave before all watchers have the
//! end, so that the last epoch is not lost.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use salamander_proto::client::{Admin, SessionOptions};
use salamander_proto::v1::event::Event;
use tracing::debug;

use crate::milestones::Milestones;

/// How long a call may take, and how long to wait after one that failed.
const CALL: Duration = Duration::from_secs(5);
const AGAIN: Duration = Duration::from_millis(200);

#[derive(Default)]
struct WatchedState {
    milestones: Mutex<Milestones>,
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
        self.0.milestones.lock().unwrap_or_else(PoisonError::into_inner).clone()
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
                shared.take(event.event)
            })
        });
        if let Err(error) = watched {
            debug!(%error, "the master tells nothing");
        }
        std::thread::sleep(AGAIN);
    }
}

impl WatchedState {
    fn take(&self, event: Option<Event>) -> ControlFlow<()> {
        match event {
            Some(Event::Report(report)) => {
                // What another version of the program tells is left out.
                if let Ok(report) = report.try_into() {
                    self.milestones.lock().unwrap_or_else(PoisonError::into_inner).take(report);
                }
            }
            Some(Event::Ended(_)) => self.over.store(true, Ordering::Release),
            Some(Event::Note(_) | Event::Result(_)) | None => {}
        }
        match self.closed.load(Ordering::Acquire) || self.over.load(Ordering::Acquire) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }
}
