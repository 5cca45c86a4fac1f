//! The spine: takes over the run, opens the port, and works until the run is over.

use std::time::Duration;

use salamander_core::elastic::Ending;
use salamander_net::Keys;
use salamander_proto::limits;
use salamander_proto::token::{self, TokenGuard};
use salamander_proto::v1::control_server::ControlServer;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{MissedTickBehavior, interval, timeout};
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Server;
use tracing::info;

use crate::config::Config;
use crate::guard::Port;
use crate::inbox::{MasterHandle, MasterInput, WAITING};
use crate::journal;
use crate::master::Master;
use crate::service::ControlService;

/// How often the master looks at its clock.
const TICK: Duration = Duration::from_millis(20);
/// How long connections may take to close at the end.
const CLOSE: Duration = Duration::from_millis(500);
/// Calls under way over one connection.
const STREAMS: u32 = 64;

/// Why a master ends before the run does.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The journal cannot be used.
    #[error(transparent)]
    Journal(#[from] journal::Error),
    /// The port cannot be served.
    #[error("cannot serve the port: {0}")]
    Port(#[from] tonic::transport::Error),
    /// The master's thread is gone.
    #[error("the master's thread panicked")]
    Panicked,
    /// The master was told to leave; another one can take over.
    #[error("the master was told to leave before the run was over")]
    Shutdown,
}

/// Leads a run to its end. Ends early, without ending the run, when `shutdown` resolves.
///
/// ```
/// use salamander_master::{Config, Error, run};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let folder = tempfile::tempdir()?;
/// let config = Config::new(folder.path(), "c0ffee", 4);
/// let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
/// let ended = run(config, listener, async { /* until a signal comes */ }).await;
/// assert!(matches!(ended, Err(Error::Shutdown)));
/// # Ok(())
/// # }
/// ```
pub async fn run(
    config: Config,
    listener: TcpListener,
    shutdown: impl Future<Output = ()>,
) -> Result<Ending, Error> {
    let guard = TokenGuard::new(&config.token);
    let keys = Keys { token: token::of_connections(&config.token), tls: config.tls.clone() };
    let (inbox, inputs) = mpsc::channel(WAITING);
    let handle = MasterHandle::new(&inbox);
    let opening = tokio::task::spawn_blocking(move || Master::open(config, handle));
    let master = opening.await.map_err(|_| Error::Panicked)??;
    if let Ok(address) = listener.local_addr() {
        info!(%address, term = %master.cluster.term, "the master listens");
    }
    let service = ControlService::new(MasterHandle::new(&inbox));
    // It ends when its inbox is closed, which also happens when this future is dropped.
    let mut working = tokio::task::spawn_blocking(move || master.work(inputs));
    let (close, closed) = oneshot::channel::<()>();
    let server = serve(service, guard, Port::new(listener, keys), closed);
    tokio::pin!(server);
    let result = tokio::select! {
        ended = &mut working => match ended {
            Ok(Ok(Some(ending))) => Ok(ending),
            Ok(Ok(None)) => Err(Error::Shutdown),
            Ok(Err(error)) => Err(error.into()),
            Err(_) => Err(Error::Panicked),
        },
        served = &mut server => return served.map_err(Error::Port).and(Err(Error::Shutdown)),
        never = tick(&inbox) => match never {},
        () = shutdown => Err(Error::Shutdown),
    };
    drop((inbox, close));
    // Streams have ended; what is in their pipes gets a moment to go out.
    if timeout(CLOSE, server).await.is_err() {
        info!("left connections that would not close");
    }
    // The journal is closed in order, and what is to be told elsewhere is told.
    if !working.is_finished() {
        // Its error would be told if it had come first.
        let _ = working.await;
    }
    result
}

async fn serve(
    service: ControlService,
    guard: TokenGuard,
    port: Port,
    closed: oneshot::Receiver<()>,
) -> Result<(), tonic::transport::Error> {
    let control = ControlServer::new(service)
        .max_decoding_message_size(limits::MESSAGE)
        .max_encoding_message_size(limits::MESSAGE);
    Server::builder()
        .timeout(limits::CALL)
        .max_concurrent_streams(STREAMS)
        .http2_keepalive_interval(Some(limits::KEEP_ALIVE))
        .http2_keepalive_timeout(Some(limits::KEEP_ALIVE_ANSWER))
        .add_service(InterceptedService::new(control, guard))
        .serve_with_incoming_shutdown(port, async {
            let _ = closed.await;
        })
        .await
}

/// Wakes the master again and again.
async fn tick(inbox: &mpsc::Sender<MasterInput>) -> std::convert::Infallible {
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        // A master with a full inbox is awake.
        if let Err(mpsc::error::TrySendError::Closed(_)) = inbox.try_send(MasterInput::Tick) {
            // Its own last words say why.
            std::future::pending().await
        }
    }
}
