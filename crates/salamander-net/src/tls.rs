//! TLS between the members of a job that are on several hosts.
//!
//! A job has a certificate authority of its own, whose key is thrown away as soon as it has signed the one
//! certificate that all members share. Both sides of a connection present it, and check the other's
//! against the authority and for the fixed name [`NAME`]: addresses of members change, and only members
//! have the key. Who reads or changes what travels between hosts is kept out; who can read a member's files
//! is not, nor is one member kept from another.
//!
//! # Layout
//! - `files`: making, writing and reading the certificates
//! - `session`: one connection
//! - [`Error`] (`error`): why a connection or a folder is refused, in words that say what to do

mod error;
mod files;
mod session;

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use rustls::client::Resumption;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::{ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::{CipherSuite, ClientConfig, ClientConnection, RootCertStore, ServerConfig};
use rustls::{Connection, ServerConnection};

pub use error::{Error, broken_off};
pub use files::{AUTHORITY, CERTIFICATE, Files, KEY};
pub(crate) use session::{HandshakeStep, TlsSession};

/// How a TLS server begins to tell a client that does not speak TLS: as an alert.
pub const ALERT: [u8; 3] = [21, 3, 3];
/// What every TLS client begins with: a handshake.
pub const HANDSHAKE: u8 = 22;
/// The name in the certificates of all jobs.
pub const NAME: &str = "salamander.job";

/// A member's certificates, ready for connections in both directions; cheap to clone.
#[derive(Clone)]
pub struct Tls {
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
}

impl Tls {
    /// Reads `ca.crt`, `tls.crt` and `tls.key` of a folder, and checks that they fit together and are valid
    /// now.
    pub fn load(folder: &Path) -> Result<Self, Error> {
        Self::new(&Files::read(folder)?).map_err(|error| error.of(folder))
    }

    /// From certificates in memory.
    pub fn new(files: &Files) -> Result<Self, Error> {
        Self::with(files, provider())
    }

    fn with(files: &Files, provider: CryptoProvider) -> Result<Self, Error> {
        let (mut roots, chain) = (RootCertStore::empty(), files.chain()?);
        for authority in files.authorities()? {
            roots.add(authority).map_err(|error| Error::file(AUTHORITY, error))?;
        }
        let (roots, provider) = (Arc::new(roots), Arc::new(provider));
        let verifier = rustls::client::WebPkiServerVerifier::builder_with_provider(
            roots.clone(),
            provider.clone(),
        );
        let verifier = verifier.build().map_err(|error| Error::file(AUTHORITY, error))?;
        // The others would refuse it too, but cannot say which file is wrong.
        let (own, between) = chain.split_first().expect("an empty chain is an error before");
        let checked = verifier.verify_server_cert(own, between, &name(), &[], UnixTime::now());
        checked.map_err(|error| Error::own(&error))?;
        let callers = WebPkiClientVerifier::builder_with_provider(roots.clone(), provider.clone());
        let callers = callers.build().map_err(|error| Error::file(AUTHORITY, error))?;
        let versions = [&rustls::version::TLS13];
        let mismatch = |error: rustls::Error| Error::file(KEY, error);
        let mut client = ClientConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&versions)
            .map_err(mismatch)?
            .with_root_certificates(roots)
            .with_client_auth_cert(chain.clone(), files.key()?)
            .map_err(mismatch)?;
        let mut server = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&versions)
            .map_err(mismatch)?
            .with_client_cert_verifier(callers)
            .with_single_cert(chain, files.key()?)
            .map_err(mismatch)?;
        // Connections live long: tickets for later ones would only be more that travels.
        client.resumption = Resumption::disabled();
        server.send_tls13_tickets = 0;
        Ok(Self { client: Arc::new(client), server: Arc::new(server) })
    }

    /// For those who connect, to [`NAME`].
    pub fn client(&self) -> Arc<ClientConfig> {
        self.client.clone()
    }

    /// For those who listen.
    pub fn server(&self) -> Arc<ServerConfig> {
        self.server.clone()
    }

    pub(crate) fn call(&self) -> Result<TlsSession, Error> {
        let connection = ClientConnection::new(self.client(), name());
        Ok(TlsSession::new(Connection::Client(connection.map_err(|error| Error::of_peer(&error))?)))
    }

    pub(crate) fn be_called(&self) -> Result<TlsSession, Error> {
        let connection = ServerConnection::new(self.server());
        Ok(TlsSession::new(Connection::Server(connection.map_err(|error| Error::of_peer(&error))?)))
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tls(..)")
    }
}

/// Whom a client expects.
pub fn name() -> ServerName<'static> {
    ServerName::try_from(NAME).expect("the name is one")
}

/// Ring's algorithms, the fastest first: keys of 128 bits are as far out of reach as longer ones.
fn provider() -> CryptoProvider {
    let mut provider = ring::default_provider();
    provider
        .cipher_suites
        .sort_by_key(|suite| suite.suite() != CipherSuite::TLS13_AES_128_GCM_SHA256);
    provider
}
