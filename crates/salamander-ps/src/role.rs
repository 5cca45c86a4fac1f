//! The role of a parameter server process: an engine behind a listener, until told to stop.

use std::net::SocketAddr;

use salamander_net::{Cancel, Keys, Listener, random_number};

use crate::{Engine, EngineOptions, TableStats, server};

/// What a parameter server process is told.
#[derive(Clone, Debug)]
pub struct Config {
    /// Its tables.
    pub engine: EngineOptions,
    /// What it allows.
    pub server: server::ServerOptions,
    /// The name of its life: acknowledgements carry it, so that the master knows what a server that
    /// was started again has forgotten.
    pub incarnation: u64,
}

/// Why a parameter server process ends.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Its network.
    #[error("parameter server: {0}")]
    Net(#[from] salamander_net::Error),
    /// Its tables.
    #[error("parameter server: {0}")]
    Engine(#[from] crate::Error),
}

impl Config {
    /// A new life with these tables.
    pub fn new(engine: EngineOptions) -> Result<Self, Error> {
        let incarnation = random_number()?;
        Ok(Self { engine, server: server::ServerOptions::default(), incarnation })
    }
}

/// Listens on this address, where port 0 means any; the text is what clients find it by.
pub fn bind(address: SocketAddr, keys: impl Into<Keys>) -> Result<(Listener, String), Error> {
    let listener = Listener::bind(address, keys)?;
    let endpoint = listener.endpoint().to_string();
    Ok((listener, endpoint))
}

/// Serves until told to stop.
///
/// ```
/// use salamander_net::{Cancel, Token};
/// use salamander_ps::client::{Client, ClientOptions};
/// use salamander_ps::{EngineOptions, TableSpec, role};
///
/// let (token, shutdown) = (Token::random()?, Cancel::new());
/// let (listener, endpoint) = role::bind("127.0.0.1:0".parse()?, token.clone())?;
/// let config = role::Config::new(EngineOptions::default())?;
/// std::thread::scope(|scope| {
///     let server = scope.spawn(|| role::run(&config, &listener, &shutdown));
///     let mut client = Client::connect(vec![endpoint], token, ClientOptions::default())?;
///     let user = client.declare(TableSpec::new("user", 4))?;
///     assert_eq!(client.pull(&[(user, &[7, 9])])?[0].len(), 8);
///     shutdown.cancel();
///     server.join().expect("no panic")?;
///     Ok(())
/// })
/// # .map_err(|error: Box<dyn std::error::Error>| error)
/// # .map(|()| assert!(config.incarnation > 0))?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn run(config: &Config, listener: &Listener, shutdown: &Cancel) -> Result<(), Error> {
    let engine = Engine::new(config.engine.clone())?;
    serve(&engine, config, listener, shutdown)
}

/// Like [`run`], for an engine that the caller holds on to. Ends by itself, with an error and `shutdown` cancelled,
/// when one of its threads has panicked.
pub fn serve(
    engine: &Engine,
    config: &Config,
    listener: &Listener,
    shutdown: &Cancel,
) -> Result<(), Error> {
    server::serve(engine, listener, config.incarnation, &config.server, shutdown)?;
    if engine.is_broken() {
        return Err(crate::Error::Gone.into());
    }
    for table in engine.stats()? {
        let TableStats { name, rows, bytes, admitted, waiting, expired, evicted, lookups } = table;
        tracing::info!(name, rows, bytes, admitted, waiting, expired, evicted, lookups, "table");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use salamander_net::Token;

    use super::*;
    use crate::client::{Client, ClientOptions};
    use crate::{Mode, TableSpec};

    #[test]
    fn a_server_whose_thread_has_panicked_ends_with_an_error() {
        let token = Token::random().expect("randomness");
        let address = "127.0.0.1:0".parse().expect("an address");
        let (listener, endpoint) = bind(address, token.clone()).expect("a listener");
        let options = EngineOptions { mode: Mode::Staged, threads: 2, ..EngineOptions::default() };
        let config = Config::new(options).expect("a life");
        let engine = Engine::new(config.engine.clone()).expect("an engine");
        let shutdown = Cancel::new();
        std::thread::scope(|scope| {
            let server = scope.spawn(|| serve(&engine, &config, &listener, &shutdown));
            let mut client = Client::connect(vec![endpoint], token, ClientOptions::default());
            let client = client.as_mut().expect("connected");
            let user = client.declare(TableSpec::new("user", 4)).expect("declared");
            engine.panic_in_a_thread();
            // Nobody is told that all is well by a server that has lost rows.
            client.pull(&[(user, &(0..99).collect::<Vec<u64>>())]).expect_err("rows are lost");
            let ended = server.join().expect("no panic").expect_err("it is broken");
            assert!(matches!(ended, Error::Engine(crate::Error::Gone)), "{ended}");
            assert!(shutdown.is_cancelled());
        });
    }
}
