//! Servers as threads of the test, each with its own listener and engine, as processes would have.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use salamander_core::progress::StepCount;
use salamander_net::tls::Files;
use salamander_net::{Cancel, Endpoint, Keys, Listener, Tls, Token};
use salamander_ps::client::{Ack, Client, ClientOptions, Error};
use salamander_ps::role::{self, Config};
use salamander_ps::{Engine, EngineOptions, Mode, Push, TableRows, partitions_of, server};

/// Longer than any request of a test takes.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// How servers are reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Over {
    Unix,
    Tcp,
    Tls,
}

/// A job's servers.
pub(crate) struct Cluster {
    pub(crate) keys: Keys,
    /// Where each server listens now.
    pub(crate) endpoints: Vec<String>,
    pub(crate) mode: Mode,
    pub(crate) over: Over,
    pub(crate) allowed: server::ServerOptions,
    servers: Vec<Option<Server>>,
}

struct Server {
    engine: Engine,
    incarnation: u64,
    listener: Arc<Listener>,
    shutdown: Cancel,
    thread: JoinHandle<()>,
}

impl Cluster {
    pub(crate) fn new(servers: usize, mode: Mode) -> Self {
        Self::with(servers, mode, Over::Unix, server::ServerOptions::default())
    }

    pub(crate) fn with(
        servers: usize,
        mode: Mode,
        over: Over,
        allowed: server::ServerOptions,
    ) -> Self {
        let files = || Files::create().expect("certificates");
        let tls = (over == Over::Tls).then(|| Tls::new(&files()).expect("certificates"));
        let keys = Keys { tls, ..Keys::from(Token::random().expect("randomness")) };
        let endpoints = vec![String::new(); servers];
        let mut cluster = Self { keys, endpoints, mode, over, allowed, servers: Vec::new() };
        for server in 0..servers {
            cluster.servers.push(None);
            cluster.start(server, "127.0.0.1:0");
        }
        cluster
    }

    /// Ends a server and starts it again on its port: with nothing in its tables, and another life.
    pub(crate) fn restart(&mut self, server: usize) {
        let address = self.endpoint(server).tcp.to_string();
        self.kill(server);
        self.start(server, &address);
    }

    /// Starts a server.
    pub(crate) fn start(&mut self, server: usize, address: &str) {
        let partitions = partitions_of(server, self.endpoints.len());
        let options =
            EngineOptions { mode: self.mode, seed: 11, threads: 2, partitions, slices: 4 };
        let address = address.parse().expect("an address");
        let (listener, endpoint) = role::bind(address, self.keys.clone()).expect("a listener");
        let mut endpoint: Endpoint = endpoint.parse().expect("an endpoint");
        if self.over != Over::Unix {
            endpoint.host = "elsewhere".to_string();
        }
        self.endpoints[server] = endpoint.to_string();
        let mut config = Config::new(options).expect("a life");
        config.server = self.allowed.clone();
        let engine = Engine::new(config.engine.clone()).expect("an engine");
        let (listener, shutdown) = (Arc::new(listener), Cancel::new());
        let thread = std::thread::spawn({
            let (engine, listener, shutdown) = (engine.clone(), listener.clone(), shutdown.clone());
            let config = config.clone();
            move || role::serve(&engine, &config, &listener, &shutdown).expect("served")
        });
        let incarnation = config.incarnation;
        self.servers[server] = Some(Server { engine, incarnation, listener, shutdown, thread });
    }

    /// Ends a server; its tables are gone.
    pub(crate) fn kill(&mut self, server: usize) {
        let server = self.servers[server].take().expect("a server");
        server.shutdown.cancel();
        server.thread.join().expect("no panic");
    }

    /// Connects a client with these options.
    pub(crate) fn client(&self, options: ClientOptions) -> Client {
        let options = ClientOptions { patience: LONG, ..options };
        Client::connect(self.endpoints.clone(), self.keys.clone(), options).expect("connected")
    }

    /// The engine behind a server.
    pub(crate) fn engine(&self, server: usize) -> &Engine {
        &self.server(server).engine
    }

    pub(crate) fn incarnation(&self, server: usize) -> u64 {
        self.server(server).incarnation
    }

    pub(crate) fn endpoint(&self, server: usize) -> Endpoint {
        self.server(server).listener.endpoint()
    }

    fn server(&self, server: usize) -> &Server {
        self.servers[server].as_ref().expect("a server")
    }
}

/// Requests whose acknowledgements are waited for.
pub(crate) trait Waiting {
    fn push(&mut self, push: &Push<'_>) -> Result<Vec<Ack>, Error>;
    fn stage(
        &mut self,
        version: StepCount,
        k: u32,
        rows: &[TableRows<'_>],
    ) -> Result<Vec<Ack>, Error>;
}

impl Waiting for Client {
    fn push(&mut self, push: &Push<'_>) -> Result<Vec<Ack>, Error> {
        let sent = self.begin_push(push, None)?;
        self.finish(sent)
    }

    fn stage(
        &mut self,
        version: StepCount,
        k: u32,
        rows: &[TableRows<'_>],
    ) -> Result<Vec<Ack>, Error> {
        let sent = self.begin_stage(version, k, rows)?;
        self.finish(sent)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for server in 0..self.servers.len() {
            if self.servers[server].is_some() {
                self.kill(server);
            }
        }
    }
}
