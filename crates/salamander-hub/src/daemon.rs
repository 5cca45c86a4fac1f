//! A whole hub in one process: a thread that reads folders, one that is the queue, and the API.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use axum::Router;
use salamander_files::{Durability, replace};
use tokio::sync::watch;

use crate::api::{Api, Guard};
use crate::create::Programs;
use crate::hub::{Hub, OWN_FOLDER};
use crate::ingest::Ingester;
use crate::mlflow::{self, Mlflow};
use crate::page::with_page;
use crate::queue::{Queue, QueuePlatform};
use crate::server::{Listen, bind, serve};
use crate::webhooks::Teller;
use crate::{Error, api};

/// How often the queue and the folders are looked at.
const TURN: Duration = Duration::from_millis(100);
const LOOK: Duration = Duration::from_millis(200);

/// What a hub is started with.
pub struct DaemonOptions {
    /// Where it listens.
    pub listen: Listen,
    /// Slots of this machine.
    pub slots: u32,
    /// Days that logs stay after the end of an experiment whose file says nothing of it; for ever unless told.
    pub log_retention_days: Option<u32>,
    /// Programs that it may start; the first one unless told otherwise.
    pub programs: Vec<PathBuf>,
    /// Routes beside the API's, behind the same login.
    pub routes: Option<Router>,
    /// Where experiments train, if not on this machine.
    pub platform: Option<Box<dyn QueuePlatform>>,
}

/// A hub that runs.
pub struct Daemon {
    hub: Hub,
    address: SocketAddr,
    stop: watch::Sender<bool>,
    /// Dropped to end the threads that look.
    ends: Vec<Sender<()>>,
    threads: Vec<JoinHandle<()>>,
}

impl Daemon {
    /// Starts it; when this returns it listens, and has read all folders.
    pub fn start(hub: Hub, options: DaemonOptions) -> Result<Self, Error> {
        let access = options.listen.access(hub.store())?;
        let programs = Arc::new(Programs::new(options.programs));
        let guard = Guard::new(access, hub.store().clone());
        let api = Api::new(hub.clone(), guard, Arc::clone(&programs)).with_slots(options.slots);
        let mut ingester = Ingester::new(hub.clone());
        if let Err(error) = ingester.look_at_all() {
            tracing::warn!(%error, "not all folders could be read");
        }
        let ingester = Arc::new(Mutex::new(ingester));
        let mut queue = Queue::new(hub.clone(), programs, options.slots)
            .after_reading(Arc::clone(&ingester))
            .with_log_retention(options.log_retention_days)
            .on(options.platform);
        // What ended while no hub was there is known before anybody asks.
        if let Err(error) = queue.turn() {
            tracing::warn!(%error, "the queue could not be looked at");
        }
        let (stop, stopped) = watch::channel(false);
        let (bound, address) = channel();
        let mlflow = mlflow::routes(Mlflow::open(&hub)?);
        let mut routes = with_page(&api).merge(api::guarded(&api, mlflow));
        if let Some(more) = options.routes {
            routes = routes.merge(api::guarded(&api, more));
        }
        let listen = options.listen;
        let scheme = if listen.tls.is_some() { "https" } else { "http" };
        let server = thread("api", move || {
            let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
            let served =
                runtime.map_err(|error| Error::Invalid(error.to_string())).and_then(|runtime| {
                    runtime.block_on(async {
                        let listener = bind(listen.address).await?;
                        let address =
                            listener.local_addr().map_err(Error::io("address".as_ref()))?;
                        let _ = bound.send(Ok(address));
                        serve(listener, &listen, routes, stopped).await
                    })
                });
            if let Err(error) = served {
                let _ = bound.send(Err(error));
            }
        })?;
        let address = address.recv().map_err(|_| Error::Closed)??;
        let url = format!("{scheme}://{address}");
        hub.note_address(&url);
        let path = hub.runs().join(OWN_FOLDER).join("address");
        replace(&path, url.as_bytes(), Durability::Unsynced).map_err(Error::io(&path))?;
        let (end_queue, ended) = channel();
        let queue = thread("queue", move || repeat(&ended, TURN, || queue.turn()))?;
        let (end_ingester, ended) = channel();
        let reader = thread("ingester", move || {
            repeat(&ended, LOOK, || ingester.lock().unwrap_or_else(PoisonError::into_inner).look())
        })?;
        let (end_teller, ended) = channel();
        let mut teller = Teller::new(hub.clone())?;
        let teller = thread("webhooks", move || repeat(&ended, LOOK, || teller.turn()))?;
        let ends = vec![end_queue, end_ingester, end_teller];
        let threads = vec![server, queue, reader, teller];
        Ok(Self { hub, address, stop, ends, threads })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The hub.
    pub fn hub(&self) -> &Hub {
        &self.hub
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // Processes of experiments go on; the next hub finds them.
        self.ends.clear();
        let _ = self.stop.send(true);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Does something again and again until it is told to end; a fault is told once, until another one comes.
fn repeat(
    ended: &std::sync::mpsc::Receiver<()>,
    pause: Duration,
    mut act: impl FnMut() -> Result<(), Error>,
) {
    let mut told = String::new();
    while ended.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
        match act() {
            Ok(()) => told.clear(),
            Err(error) if error.to_string() != told => {
                tracing::error!(%error, "will be tried again");
                told = error.to_string();
            }
            Err(_) => {}
        }
    }
}

fn thread(name: &str, run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, Error> {
    let started = Builder::new().name(name.to_string()).spawn(run);
    started.map_err(|error| Error::Invalid(format!("cannot start a thread: {error}")))
}
