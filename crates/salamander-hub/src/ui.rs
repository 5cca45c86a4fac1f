//! The dashboard of a folder of runs, for one person on one machine: no set-up, no login, and nothing is started.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::watch;

use crate::api::{Access, Api, Guard};
use crate::ingest::Ingester;
use crate::page::with_page;
use crate::server::{Listen, bind, serve};
use crate::{Error, Hub, Programs};

/// How often folders in which something trains are looked at.
const LOOK: Duration = Duration::from_millis(200);

/// Serves until `stop` is true. `listening` is told the address; folders are read while the page is there.
pub fn run(
    runs: &Path,
    address: SocketAddr,
    listening: impl FnOnce(SocketAddr),
    stop: &Arc<AtomicBool>,
) -> Result<(), Error> {
    if !address.ip().is_loopback() {
        return Err(Error::Invalid(format!(
            "{address} can be reached from other machines, and `ui` has no login: use `salamander hub`, or 127.0.0.1"
        )));
    }
    let hub = Hub::open(runs, None)?;
    let listen = Listen { address, tls: None, proxy: None, login: false };
    // It starts nothing.
    let programs = Arc::new(Programs::new(Vec::new()));
    let api = Api::new(hub.clone(), Guard::new(Access::Open, hub.store().clone()), programs);
    let noted = hub.clone();
    let (sender, asked) = watch::channel(false);
    let looking = std::thread::spawn({
        let stop = Arc::clone(stop);
        move || {
            look(hub, &stop);
            let _ = sender.send(true);
        }
    });
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let served = runtime.map_err(Error::io(runs)).and_then(|runtime| {
        runtime.block_on(async {
            let listener = bind(address).await?;
            let address = listener.local_addr().map_err(Error::io(runs))?;
            noted.note_address(&format!("http://{address}"));
            listening(address);
            serve(listener, &listen, with_page(&api), asked).await
        })
    });
    stop.store(true, Ordering::Relaxed);
    let _ = looking.join();
    served
}

fn look(hub: Hub, stop: &AtomicBool) {
    let mut ingester = Ingester::new(hub);
    while !stop.load(Ordering::Relaxed) {
        if let Err(error) = ingester.look() {
            tracing::warn!(%error, "a look at the folders failed");
        }
        std::thread::sleep(LOOK);
    }
}
