//! Serves the tables of an [`Engine`] to workers and to the master: a thread per connection, which
//! receives a request, does it and answers before it looks at the next, and a second one where requests
//! are large, which receives the next one meanwhile.
//!
//! # Layout
//! - `connection`: frames in, answers out; the buffers that a connection keeps
//! - `service`: what each request does; `guard`: what it goes by: the gate and the tables
//! - `placing`: where partitions of another lineage come from; `outgoing`: those that go to others
//! - `saves`: copies on their way to files

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use salamander_net::{Cancel, Listener, Stream};

use crate::Engine;

mod connection;
mod guard;
mod outgoing;
mod placing;
mod saves;
mod service;

use connection::Connection;
use service::RowService;

/// What a server allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerOptions {
    /// The longest body of a frame.
    pub limit: u64,
    /// How long the other side may stop within a frame.
    pub silence: Duration,
    /// How long a connection may go without a request; its client connects again when it has one.
    pub idle: Duration,
    /// How long a server that has partitions for this one may take to hear of it. Once it has, it may take as long as
    /// it needs to put them apart.
    pub hearsay: Duration,
    /// So many connections are served at the same time.
    pub connections: usize,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            limit: 1 << 30,
            silence: Duration::from_secs(30),
            idle: Duration::from_secs(600),
            hearsay: Duration::from_secs(60),
            connections: 1024,
        }
    }
}

/// Serves until told to stop. Requests that are being done then are finished; their clients, and
/// those that wait, find the connection closed.
pub fn serve(
    engine: &Engine,
    listener: &Listener,
    incarnation: u64,
    options: &ServerOptions,
    shutdown: &Cancel,
) -> Result<(), salamander_net::Error> {
    let service = RowService::new(engine.clone(), incarnation, options, listener.keys());
    let connections = Connections::default();
    std::thread::scope(|scope| {
        let outcome = loop {
            let stream = match listener.accept(shutdown) {
                Ok(stream) => Arc::new(stream),
                Err(salamander_net::Error::Cancelled) => break Ok(()),
                Err(error) => break Err(error),
            };
            let Some(number) = connections.enter(&stream, options.connections) else {
                tracing::warn!(limit = options.connections, "too many connections; one is closed");
                continue;
            };
            let (service, connections) = (&service, &connections);
            let serving = std::thread::Builder::new().name(format!("ps-{number}"));
            let spawned = serving.spawn_scoped(scope, move || {
                Connection::new(service, &stream, options, shutdown).attend();
                connections.leave(number);
            });
            if let Err(error) = spawned {
                tracing::warn!(%error, "no thread for a connection; it is closed");
                connections.leave(number);
            }
        };
        // The threads wait for requests, and would do so for long.
        connections.close_all();
        service.placing.give_up();
        outcome
    })
}

/// The connections that are served, so that they can be closed.
#[derive(Default)]
struct Connections(Mutex<(u64, HashMap<u64, Arc<Stream>>)>);

impl Connections {
    fn enter(&self, stream: &Arc<Stream>, limit: usize) -> Option<u64> {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (number, streams) = &mut *open;
        if streams.len() >= limit {
            return None;
        }
        *number += 1;
        streams.insert(*number, stream.clone());
        Some(*number)
    }

    fn leave(&self, number: u64) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).1.remove(&number);
    }

    fn close_all(&self) {
        for stream in self.0.lock().unwrap_or_else(PoisonError::into_inner).1.values() {
            stream.close();
        }
    }
}
