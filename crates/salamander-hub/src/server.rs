//! Listening: plain on this machine, with TLS or behind a proxy elsewhere, and never without a login there.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::{HeaderMap, Request};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use salamander_net::Refusals;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use tokio_rustls::TlsAcceptor;
use tower::ServiceExt;

use crate::Error;
use crate::api::{Access, PeerAddress};
use crate::store::Store;

/// Connections at a time; more wait to be accepted.
const CONNECTIONS: usize = 2048;
/// How long a client may take for the head of a request, and for a handshake.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long requests may still take when the hub ends.
const GRACE: Duration = Duration::from_secs(2);

/// Where and how a hub listens.
#[derive(Clone, Debug)]
pub struct Listen {
    /// The address.
    pub address: SocketAddr,
    /// A certificate and its key, in PEM files.
    pub tls: Option<(PathBuf, PathBuf)>,
    /// The proxy that speaks TLS for the hub: only it may connect.
    pub proxy: Option<IpAddr>,
    /// Whether a token is asked for on this machine, too.
    pub login: bool,
}

impl Listen {
    /// How it may be reached; refuses what would let strangers in.
    pub fn access(&self, store: &Store) -> Result<Access, Error> {
        // What a proxy passes on comes from wherever the proxy can be reached.
        let stays_here = self.address.ip().is_loopback() && self.proxy.is_none();
        if stays_here && !self.login {
            return Ok(Access::Open);
        }
        let address = self.address;
        if !self.address.ip().is_loopback() && self.tls.is_none() && self.proxy.is_none() {
            return Err(Error::Invalid(format!(
                "{address} can be reached from other machines: give --tls-cert and --tls-key, or --proxy IP of the \
                 proxy that speaks TLS for this hub, or listen on 127.0.0.1"
            )));
        }
        if !store.has_tokens()? {
            return Err(Error::Invalid(format!(
                "{address} needs a login, and nobody has a token yet: \
                 `salamander hub token NAME --role admin` makes one"
            )));
        }
        Ok(Access::Tokens)
    }

    fn acceptor(&self) -> Result<Option<TlsAcceptor>, Error> {
        let Some((certificate, key)) = &self.tls else { return Ok(None) };
        let wrong =
            |path: &Path, error: String| Error::Invalid(format!("{}: {error}", path.display()));
        let chain = CertificateDer::pem_file_iter(certificate)
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .map_err(|error| wrong(certificate, error.to_string()))?;
        let private = PrivateKeyDer::from_pem_file(key).map_err(|e| wrong(key, e.to_string()))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .and_then(|config| config.with_no_client_auth().with_single_cert(chain, private))
            .map_err(|error| wrong(certificate, error.to_string()))?;
        Ok(Some(TlsAcceptor::from(Arc::new(config))))
    }
}

/// Serves until `stop` is true, or its sender is gone.
pub async fn serve(
    listener: TcpListener,
    listen: &Listen,
    routes: Router,
    mut stop: watch::Receiver<bool>,
) -> Result<(), Error> {
    let acceptor = listen.acceptor()?;
    let (places, refusals) = (Arc::new(Semaphore::new(CONNECTIONS)), Refusals::default());
    loop {
        let place = Arc::clone(&places).acquire_owned();
        let accepted = tokio::select! {
            () = asked(&mut stop) => break,
            accepted = async { (place.await, listener.accept().await) } => accepted,
        };
        let (Ok(place), Ok((stream, peer))) = accepted else {
            // No more files may be open for now.
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        if listen.proxy.is_some_and(|proxy| proxy != peer.ip()) {
            refusals.log(&peer.ip().to_string(), "only the proxy may connect");
            continue;
        }
        let (acceptor, stop) = (acceptor.clone(), stop.clone());
        let routes = HttpConnection {
            routes: routes.clone(),
            peer: peer.ip(),
            proxied: listen.proxy.is_some(),
        };
        tokio::spawn(async move {
            match acceptor {
                None => answer(stream, routes, stop).await,
                Some(acceptor) => {
                    let handshake = tokio::time::timeout(PATIENCE, acceptor.accept(stream)).await;
                    if let Ok(Ok(stream)) = handshake {
                        answer(stream, routes, stop).await;
                    }
                }
            }
            drop(place);
        });
    }
    // Streams of events end with their connections.
    let _ = tokio::time::timeout(GRACE, places.acquire_many(CONNECTIONS as u32)).await;
    Ok(())
}

/// What a connection's requests are answered by, and where they come from.
struct HttpConnection {
    routes: Router,
    peer: IpAddr,
    proxied: bool,
}

/// Where a request comes from: behind a proxy, as that says last.
fn origin(peer: IpAddr, proxied: bool, headers: &HeaderMap) -> PeerAddress {
    let said = headers.get("x-forwarded-for").filter(|_| proxied);
    let said = said.and_then(|value| value.to_str().ok()?.rsplit(',').next()?.trim().parse().ok());
    PeerAddress(said.unwrap_or(peer))
}

async fn answer<S>(stream: S, connection: HttpConnection, mut stop: watch::Receiver<bool>)
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    let mut builder = Builder::new(TokioExecutor::new()).http1_only();
    builder.http1().timer(TokioTimer::new()).header_read_timeout(PATIENCE);
    let HttpConnection { routes, peer, proxied } = connection;
    let named = routes.map_request(move |mut request: Request<Incoming>| {
        let from = origin(peer, proxied, request.headers());
        request.extensions_mut().insert(from);
        request
    });
    let service = TowerToHyperService::new(named);
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    tokio::select! {
        ended = connection.as_mut() => {
            if let Err(error) = ended {
                tracing::debug!(%error, "a connection ended early");
            }
        }
        () = asked(&mut stop) => {
            connection.as_mut().graceful_shutdown();
            let _ = tokio::time::timeout(GRACE, connection).await;
        }
    }
}

/// Until the hub is asked to end.
async fn asked(stop: &mut watch::Receiver<bool>) {
    // An error: whoever could ask is gone.
    let _ = stop.wait_for(|stop| *stop).await;
}

/// Listens; port 0 becomes a free one.
pub async fn bind(address: SocketAddr) -> Result<TcpListener, Error> {
    let wrong = |error| Error::Invalid(format!("cannot listen on {address}: {error}"));
    TcpListener::bind(address).await.map_err(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::users::UserRole;

    #[test]
    fn a_proxy_on_this_machine_opens_nothing_to_those_who_reach_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let store = Store::open(&folder.path().join("hub.sqlite")).expect("made");
        let listen = |proxy: Option<IpAddr>| {
            let address = SocketAddr::from(([127, 0, 0, 1], 0));
            Listen { address, tls: None, proxy, login: false }
        };
        assert_eq!(listen(None).access(&store).expect("open"), Access::Open);
        let proxied = listen(Some(IpAddr::from([127, 0, 0, 1])));
        let refused = proxied.access(&store).expect_err("nobody could log in");
        assert!(refused.to_string().contains("salamander hub token"), "{refused}");
        store.set_user("ada", UserRole::Admin, 0).expect("made");
        store.new_token("ada", 0, None).expect("made");
        assert_eq!(proxied.access(&store).expect("with a login"), Access::Tokens);
    }

    #[test]
    fn only_a_proxy_says_where_a_request_comes_from() {
        let peer = IpAddr::from([10, 0, 0, 1]);
        let mut headers = HeaderMap::new();
        headers.insert("x-forwarded-for", "6.6.6.6, 10.1.2.3".parse().expect("a value"));
        assert_eq!(origin(peer, false, &headers), PeerAddress(peer));
        assert_eq!(origin(peer, true, &headers), PeerAddress(IpAddr::from([10, 1, 2, 3])));
        headers.insert("x-forwarded-for", "nobody".parse().expect("a value"));
        assert_eq!(origin(peer, true, &headers), PeerAddress(peer));
    }
}
