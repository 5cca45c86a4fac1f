//! Asks the master how far it is and hands it what people want, on a thread of its own: the calls block.

use std::fmt;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use salamander_core::status::Status;
use salamander_proto::client::{Admin, Error, SessionOptions};
use tokio::sync::mpsc;
use tracing::{debug, info, warn};

/// How long a call may take.
const CALL: Duration = Duration::from_secs(5);
/// Requests and answers that may wait.
const WAITING: usize = 16;

/// What people want of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AdminRequest {
    Workers(u32),
    Servers(u32),
    Stop,
}

impl AdminRequest {
    /// As the reason of an event.
    pub(super) fn reason(self) -> &'static str {
        match self {
            AdminRequest::Workers(_) | AdminRequest::Servers(_) => "Scaling",
            AdminRequest::Stop => "Stopping",
        }
    }
}

impl fmt::Display for AdminRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AdminRequest::Workers(workers) => write!(f, "workers wanted: {workers}"),
            AdminRequest::Servers(servers) => write!(f, "parameter servers wanted: {servers}"),
            AdminRequest::Stop => f.write_str("the run stops at a step that all agree on"),
        }
    }
}

/// Talks to the master until it is dropped.
pub(super) struct MasterPoller {
    requests: SyncSender<AdminRequest>,
    pub(super) statuses: mpsc::Receiver<Status>,
}

impl MasterPoller {
    pub(super) fn start(session: &SessionOptions, every: Duration) -> std::io::Result<Self> {
        let (requests, requested) = sync_channel(WAITING);
        let (out, statuses) = mpsc::channel(WAITING);
        let session = session.clone();
        let poll = move || poll(&session, every, &requested, &out);
        std::thread::Builder::new().name("master-poller".into()).spawn(poll)?;
        Ok(Self { requests, statuses })
    }

    /// Passes a request on. One that finds no room is made again with the next status, which does not show it.
    pub(super) fn request(&self, request: AdminRequest) {
        if let Err(TrySendError::Disconnected(_)) = self.requests.try_send(request) {
            warn!(?request, "nobody talks to the master any more");
        }
    }
}

fn poll(
    session: &SessionOptions,
    every: Duration,
    requested: &Receiver<AdminRequest>,
    out: &mpsc::Sender<Status>,
) {
    let mut admin = None;
    loop {
        let request = match requested.recv_timeout(every) {
            Ok(request) => Some(request),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => return,
        };
        match ask(&mut admin, session, request) {
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
    request: Option<AdminRequest>,
) -> Result<Status, Error> {
    let admin = match admin {
        Some(admin) => admin,
        None => admin.insert(Admin::connect(session, CALL)?),
    };
    let answer = match request {
        None => Ok(()),
        Some(AdminRequest::Workers(workers)) => admin.scale(Some(workers), None),
        Some(AdminRequest::Servers(servers)) => admin.scale(None, Some(servers)),
        Some(AdminRequest::Stop) => admin.stop(),
    };
    match answer {
        Err(Error::Refused { reason, .. }) => warn!(?request, reason, "the master refuses"),
        other => other?,
    }
    if let Some(request) = request {
        info!(?request, "told the master");
    }
    admin.status()
}
