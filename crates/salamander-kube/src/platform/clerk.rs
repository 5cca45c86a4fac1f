//! Asks the master how far it is and hands it what people want, on a thread of its own: the calls block.

use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use salamander_proto::client::{Admin, Error, SessionOptions};
use serde_json::Value;
use tokio::sync::mpsc;
use tracing::{debug, info, warn};

/// How long a call may take.
const CALL: Duration = Duration::from_secs(5);
/// Wishes and answers that may wait.
const WAITING: usize = 16;

/// What people want of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    Workers(u32),
    Servers(u32),
    Stop,
}

/// Talks to the master until it is dropped.
pub(super) struct Clerk {
    wishes: SyncSender<Wish>,
    pub(super) statuses: mpsc::Receiver<Value>,
}

impl Clerk {
    pub(super) fn start(session: &SessionOptions, every: Duration) -> std::io::Result<Self> {
        let (wishes, wished) = sync_channel(WAITING);
        let (out, statuses) = mpsc::channel(WAITING);
        let session = session.clone();
        let work = move || work(&session, every, &wished, &out);
        std::thread::Builder::new().name("clerk".into()).spawn(work)?;
        Ok(Self { wishes, statuses })
    }

    /// Passes a wish on. One that finds no room is wished again with the next status, which does not show it.
    pub(super) fn wish(&self, wish: Wish) {
        if let Err(TrySendError::Disconnected(_)) = self.wishes.try_send(wish) {
            warn!(?wish, "nobody talks to the master any more");
        }
    }
}

fn work(
    session: &SessionOptions,
    every: Duration,
    wished: &Receiver<Wish>,
    out: &mpsc::Sender<Value>,
) {
    let mut admin = None;
    loop {
        let wish = match wished.recv_timeout(every) {
            Ok(wish) => Some(wish),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => return,
        };
        match ask(&mut admin, session, wish) {
            Ok(status) => {
                // Full: whoever reads them is behind, and the next one is newer.
                if let Err(mpsc::error::TrySendError::Closed(_)) = out.try_send(status) {
                    return;
                }
            }
            Err(error) => {
                debug!(%error, "the master does not answer");
                admin = None;
            }
        }
    }
}

fn ask(
    admin: &mut Option<Admin>,
    session: &SessionOptions,
    wish: Option<Wish>,
) -> Result<Value, Error> {
    let admin = match admin {
        Some(admin) => admin,
        None => admin.insert(Admin::connect(session, CALL)?),
    };
    let granted = match wish {
        None => Ok(()),
        Some(Wish::Workers(workers)) => admin.scale(Some(workers), None),
        Some(Wish::Servers(servers)) => admin.scale(None, Some(servers)),
        Some(Wish::Stop) => admin.stop(),
    };
    match granted {
        Err(Error::Refused { reason, .. }) => warn!(?wish, reason, "the master refuses"),
        other => other?,
    }
    if let Some(wish) = wish {
        info!(?wish, "told the master");
    }
    admin.status()
}
