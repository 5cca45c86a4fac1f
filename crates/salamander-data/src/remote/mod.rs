//! Objects in stores (`s3://`, `gs://`, `az://`, `http://`, `https://`), read in blocks through a cache,
//! because formats read by position and a request to a store costs milliseconds.
//!
//! `store` turns a URL into a client, `object` is one object as it was when opened, `disk` keeps blocks in
//! the folder that `SALAMANDER_CACHE_DIR` names; `bucket` puts whole files into stores and takes them out.
//!
//! **Architecture invariant:** nothing outside of this module sees a future. Reader threads wait for a
//! runtime that is owned here.

mod bucket;
mod disk;
mod object;
mod store;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, mpsc};
use std::time::Duration;

use object_store::ObjectStore;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Semaphore;

use crate::Error;
use crate::part_cache::PartCache;
use crate::places::in_order;
pub use bucket::{Bucket, Listing, ObjectVersion};
use disk::Disk;
pub(crate) use object::Object;

/// Bytes read by one request.
const BLOCK_BYTES: u64 = 1 << 20;
/// Memory for blocks.
const MEMORY_BYTES: usize = 64 << 20;
/// Blocks that are fetched at the same time before anybody asked for them.
const AHEAD: usize = 8;

/// How patient a request is.
#[derive(Clone, Copy, Debug)]
struct RequestSettings {
    /// For one try.
    timeout: Duration,
    /// Tries after the first.
    retries: usize,
    /// Longest pause between two tries; the first is a tenth of a second or less.
    pause: Duration,
    /// For all tries together.
    patience: Duration,
}

impl Default for RequestSettings {
    fn default() -> RequestSettings {
        RequestSettings {
            timeout: Duration::from_secs(30),
            retries: 6,
            pause: Duration::from_secs(5),
            patience: Duration::from_secs(120),
        }
    }
}

/// What all objects share. It lives as long as the program, as its threads do.
struct Remote {
    runtime: Runtime,
    settings: RequestSettings,
    /// Clients by scheme and host, because each holds connections.
    stores: Mutex<HashMap<String, Arc<dyn ObjectStore>>>,
    blocks: PartCache<Vec<u8>>,
    disk: Option<Arc<Disk>>,
    ahead: Arc<Semaphore>,
}

/// Remembers an object as it is now.
pub(crate) fn open(place: &Path) -> Result<Object, Error> {
    Object::open(shared(place)?, place)
}

/// The objects right under a prefix, sorted.
pub(crate) fn list(prefix: &Path) -> Result<Vec<PathBuf>, Error> {
    shared(prefix)?.list(prefix)
}

fn shared(place: &Path) -> Result<&'static Remote, Error> {
    static SHARED: OnceLock<Result<Remote, String>> = OnceLock::new();
    let shared = SHARED.get_or_init(|| {
        let disk = Disk::from_environment().map_err(|error| error.to_string())?;
        Remote::new(RequestSettings::default(), disk).map_err(|error| error.to_string())
    });
    shared.as_ref().map_err(|reason| {
        let path = place.to_owned();
        Error::Io { path, cause: io::Error::other(reason.clone()) }
    })
}

impl Remote {
    fn new(settings: RequestSettings, disk: Option<Disk>) -> io::Result<Remote> {
        // Another part of the program may have chosen a provider already, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let runtime = Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("salamander-remote")
            .enable_all()
            .build()?;
        Ok(Remote {
            runtime,
            settings,
            stores: Mutex::default(),
            blocks: PartCache::new(MEMORY_BYTES),
            disk: disk.map(Arc::new),
            ahead: Arc::new(Semaphore::new(AHEAD)),
        })
    }

    /// Runs a request on the runtime and waits for it here. Unlike `block_on` this may be called from a
    /// thread of another runtime.
    fn wait<T: Send + 'static>(
        &self,
        request: impl Future<Output = io::Result<T>> + Send + 'static,
    ) -> io::Result<T> {
        let (sender, receiver) = mpsc::sync_channel(1);
        let patience = self.settings.patience;
        self.runtime.spawn(async move {
            let late = |_| {
                let seconds = patience.as_secs_f32();
                let message = format!("no answer within {seconds} seconds, retries included");
                io::Error::new(io::ErrorKind::TimedOut, message)
            };
            let result = tokio::time::timeout(patience, request).await.map_err(late);
            // Nobody waits any more only when the waiting thread is gone.
            let _ = sender.send(result.and_then(|result| result));
        });
        receiver.recv().map_err(|_| io::Error::other("the request was abandoned"))?
    }

    /// The client for a URL.
    fn store(&self, location: &store::Location) -> io::Result<Arc<dyn ObjectStore>> {
        let mut stores = self.stores.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(store) = stores.get(&location.base) {
            return Ok(Arc::clone(store));
        }
        let store = store::connect(location, self.settings).map_err(store::refusal)?;
        stores.insert(location.base.clone(), Arc::clone(&store));
        Ok(store)
    }

    fn list(&self, prefix: &Path) -> Result<Vec<PathBuf>, Error> {
        let location = store::Location::parse(prefix)?;
        if location.is_http() {
            return Err(Error::form(prefix, "http has no listing: name the files"));
        }
        let store = self.store(&location).map_err(Error::io(prefix))?;
        let folder = location.path.clone();
        let request =
            async move { store.list_with_delimiter(Some(&folder)).await.map_err(store::refusal) };
        let found = self.wait(request).map_err(Error::io(prefix))?;
        let mut paths: Vec<_> = found.objects.into_iter().map(|object| object.location).collect();
        paths.retain(|path| {
            let hidden = path.filename().is_none_or(|name| name.starts_with('.'));
            !hidden && *path != location.path
        });
        let paths = in_order(paths, prefix)?;
        Ok(paths.iter().map(|path| location.with_path(path)).collect())
    }
}

impl std::fmt::Debug for Remote {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Remote").field("settings", &self.settings).finish_non_exhaustive()
    }
}
