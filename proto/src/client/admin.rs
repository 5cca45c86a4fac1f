//! Single calls to the master, for commands and for workers of tasks. They block; not for async callers.

use std::ops::ControlFlow;
use std::time::Duration;

use salamander_core::asynchronous::{LeaseAnswer, LeaseAsk};
use salamander_core::elastic::{Lease, Task, WorkerId};
use salamander_core::report::TaskResult;
use salamander_core::status::Status as RunStatus;
use salamander_net::Backoff;
use tokio::runtime::Runtime;
use tokio::time::{sleep, timeout};
use tonic::{Response, Status};

use super::address::MasterAddress;
use super::{BearerClient, Error, SessionOptions, client, is_passing, root};
use crate::convert::{Finished, WorkerLeaseAsk};
use crate::{status, v1};

/// How long to wait before it is tried again to watch.
const WATCH_AGAIN: Duration = Duration::from_millis(100);

/// A connection for single calls, each of which has a deadline.
#[derive(Debug)]
pub struct Admin {
    runtime: Runtime,
    client: BearerClient,
    master: String,
    address: MasterAddress,
    deadline: Duration,
}

impl Admin {
    /// Connects to a master; the timeout holds for this and for each call.
    pub fn connect(options: &SessionOptions, deadline: Duration) -> Result<Self, Error> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let address = MasterAddress::new(options)?;
        let bearer = address.bearer(options)?;
        let master = options.master.clone();
        let connecting = async { timeout(deadline, address.connect()).await };
        let reason = match runtime.block_on(connecting) {
            Ok(Ok(channel)) => {
                let client = client(channel, bearer);
                return Ok(Self { runtime, client, master, address, deadline });
            }
            Ok(Err(reason)) => reason,
            Err(_) => format!("no connection within {deadline:?}"),
        };
        match address.refusal() {
            Some(reason) => Err(Error::Refused { master, reason }),
            None => Err(Error::Unreachable { master, reason }),
        }
    }

    /// Where the run stands.
    pub fn status(&mut self) -> Result<RunStatus, Error> {
        Ok(self.call(async |client| client.status(v1::StatusRequest {}).await)?.try_into()?)
    }

    /// Asks for another number of workers, of parameter servers, or both.
    pub fn scale(&mut self, workers: Option<u32>, servers: Option<u32>) -> Result<(), Error> {
        let request = v1::ScaleRequest { workers, servers };
        self.call(async move |client| client.scale(request).await).map(drop)
    }

    /// Asks for an early end, at a version that all members agree on.
    pub fn stop(&mut self) -> Result<(), Error> {
        self.call(async |client| client.stop(v1::StopRequest {}).await).map(drop)
    }

    /// Asks for a task.
    pub fn lease(&mut self, worker: WorkerId) -> Result<Lease, Error> {
        let request = v1::LeaseRequest { worker: worker.0 };
        Ok(self.call(async move |client| client.lease(request).await)?.try_into()?)
    }

    /// Gives a task back: with its result, or with the reason why there can be none, which ends the run.
    /// False: the lease was over, and the result does not count.
    pub fn finish(
        &mut self,
        worker: WorkerId,
        task: &Task,
        outcome: Result<TaskResult, String>,
    ) -> Result<bool, Error> {
        let request = Finished { worker, task: task.id, fence: task.fence, outcome };
        let request = v1::FinishRequest::from(request);
        Ok(self.call(async move |client| client.finish(request).await)?.counted)
    }

    /// Says something about names, in asynchronous training.
    pub fn names(&mut self, worker: WorkerId, ask: &LeaseAsk) -> Result<LeaseAnswer, Error> {
        let request = v1::MicroBatchRequest::from(WorkerLeaseAsk { worker, ask: ask.clone() });
        Ok(self.call(async move |client| client.micro_batches(request).await)?.try_into()?)
    }

    /// Watches the run to its end or until `each` breaks. Goes on with a restarted master, and gives up when
    /// none answers for as long as a call may take.
    pub fn watch(
        &mut self,
        after: u64,
        mut each: impl FnMut(v1::Event) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        let (client, deadline) = (&mut self.client, self.deadline);
        let watching = async {
            let mut request = v1::WatchRequest { after, term: 0 };
            let mut silence = Backoff::every(WATCH_AGAIN).within(deadline);
            loop {
                let status = match follow(client, &mut request, &mut silence, &mut each).await {
                    Ok(()) => return Ok(()),
                    Err(status) => status,
                };
                match silence.wait().filter(|_| is_passing(&status)) {
                    Some(wait) => sleep(wait).await,
                    None => return Err(status),
                }
            }
        };
        let done = self.runtime.block_on(watching);
        done.map_err(|status| self.refusal(status))
    }

    fn call<T>(
        &mut self,
        call: impl AsyncFnOnce(&mut BearerClient) -> Result<Response<T>, Status>,
    ) -> Result<T, Error> {
        let (client, deadline) = (&mut self.client, self.deadline);
        match self.runtime.block_on(async { timeout(deadline, call(client)).await }) {
            Ok(Ok(response)) => Ok(response.into_inner()),
            Ok(Err(status)) => Err(self.refusal(status)),
            Err(_) => {
                let reason = format!("no answer within {deadline:?}");
                Err(Error::Unreachable { master: self.master.clone(), reason })
            }
        }
    }

    fn refusal(&self, status: Status) -> Error {
        let master = self.master.clone();
        if let Some(reason) = self.address.refusal() {
            return Error::Refused { master, reason };
        }
        if status.code() == tonic::Code::Unavailable || status.code() == tonic::Code::Unknown {
            return Error::Unreachable { master, reason: root(&status) };
        }
        Error::Refused { master, reason: status.message().to_string() }
    }
}

/// Follows one stream of events; notes in the request how far it came.
async fn follow(
    client: &mut BearerClient,
    request: &mut v1::WatchRequest,
    silence: &mut Backoff,
    each: &mut impl FnMut(v1::Event) -> ControlFlow<()>,
) -> Result<(), Status> {
    let mut events = client.watch(*request).await?.into_inner();
    silence.reset();
    loop {
        let next = events.message().await;
        silence.reset();
        let Some(event) = next? else { return Err(status::Error::Leaving.into()) };
        *request = v1::WatchRequest { after: event.number, term: event.term };
        let last = matches!(event.event, Some(v1::event::Event::Ended(_)));
        if each(event).is_break() || last {
            return Ok(());
        }
    }
}
