//! Encrypted connections to a Postgres server, as `sslmode` and `sslrootcert` of its address ask for: those of libpq,
//! with the same meaning.

use std::fmt;
use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use postgres::Socket;
use postgres::config::SslMode;
use postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::TlsConnector;

use crate::Error;

/// Where the certificates are that a system trusts.
const SYSTEM_ROOTS: [&str; 2] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt"];
const MODES: &str = "disable, prefer, require, verify-ca or verify-full";

/// What an address says of encryption.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Encryption {
    Disable,
    Prefer,
    Require,
    VerifyCa,
    VerifyFull,
}

/// How connections to a server are encrypted.
#[derive(Clone)]
pub(crate) struct PgTls {
    pub(crate) mode: SslMode,
    connector: TlsConnector,
}

impl PgTls {
    /// Takes what is about encryption out of an address; the rest is the driver's.
    pub(crate) fn of(url: &str) -> Result<(String, Self), Error> {
        let (place, query) = url.split_once('?').unwrap_or((url, ""));
        let (mut mode, mut roots, mut others) = (Encryption::Prefer, None, Vec::new());
        for part in query.split('&').filter(|part| !part.is_empty()) {
            match part.split_once('=') {
                Some(("sslmode", value)) => mode = Encryption::named(value)?,
                Some(("sslrootcert", path)) => roots = Some(PathBuf::from(decoded(path))),
                _ => others.push(part),
            }
        }
        let rest = match others.as_slice() {
            [] => place.to_string(),
            others => format!("{place}?{}", others.join("&")),
        };
        Ok((rest, Self::new(mode, roots.as_deref())?))
    }

    fn new(mode: Encryption, roots: Option<&Path>) -> Result<Self, Error> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let system = || SYSTEM_ROOTS.map(Path::new).into_iter().find(|path| path.is_file());
        let roots = match mode {
            Encryption::VerifyCa | Encryption::VerifyFull => match roots.or_else(system) {
                Some(roots) => Some(roots),
                None => {
                    let reason = "sslmode: nothing says whose certificates are trusted: name a file with sslrootcert";
                    return Err(Error::Invalid(reason.to_string()));
                }
            },
            // As libpq has it: whoever names one wants it to be used.
            Encryption::Require | Encryption::Prefer => roots,
            Encryption::Disable => None,
        };
        let chain = roots.map(|path| verifier(path, &provider)).transpose()?;
        let checks_name = mode == Encryption::VerifyFull;
        let verifier = Arc::new(PgVerifier { chain, checks_name, provider: Arc::clone(&provider) });
        let wrong = |error: rustls::Error| Error::Invalid(format!("TLS: {error}"));
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(wrong)?
            .dangerous()
            .with_custom_certificate_verifier(verifier)
            .with_no_client_auth();
        let mode = match mode {
            Encryption::Disable => SslMode::Disable,
            Encryption::Prefer => SslMode::Prefer,
            _ => SslMode::Require,
        };
        Ok(Self { mode, connector: TlsConnector::from(Arc::new(config)) })
    }
}

impl Encryption {
    fn named(text: &str) -> Result<Self, Error> {
        match text {
            "disable" => Ok(Self::Disable),
            "prefer" => Ok(Self::Prefer),
            "require" => Ok(Self::Require),
            "verify-ca" => Ok(Self::VerifyCa),
            "verify-full" => Ok(Self::VerifyFull),
            other => Err(Error::Invalid(format!("sslmode: {other:?} is none of {MODES}"))),
        }
    }
}

/// `%2F` and the like, as addresses have them.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, more)) = rest.split_first() {
        let hex = more.get(..2).and_then(|hex| std::str::from_utf8(hex).ok());
        match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()).filter(|_| *first == b'%') {
            Some(byte) => {
                bytes.push(byte);
                rest = &more[2..];
            }
            None => {
                bytes.push(*first);
                rest = more;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn verifier(
    path: &Path,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<WebPkiServerVerifier>, Error> {
    let wrong = |error: String| Error::Invalid(format!("sslrootcert {}: {error}", path.display()));
    let certificates = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| wrong(error.to_string()))?;
    let mut roots = RootCertStore::empty();
    if roots.add_parsable_certificates(certificates).0 == 0 {
        return Err(wrong("there is no certificate in it".to_string()));
    }
    let built = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider));
    built.build().map_err(|error| wrong(error.to_string()))
}

/// Checks as much of a certificate as was asked for.
struct PgVerifier {
    /// None: anything is taken, as long as it is encrypted.
    chain: Option<Arc<WebPkiServerVerifier>>,
    checks_name: bool,
    provider: Arc<CryptoProvider>,
}

impl fmt::Debug for PgVerifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PgVerifier").field("checks_name", &self.checks_name).finish_non_exhaustive()
    }
}

impl ServerCertVerifier for PgVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let Some(chain) = &self.chain else { return Ok(ServerCertVerified::assertion()) };
        let verified = chain.verify_server_cert(end_entity, intermediates, server_name, ocsp, now);
        match verified {
            Err(rustls::Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if !self.checks_name => Ok(ServerCertVerified::assertion()),
            other => other,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

impl MakeTlsConnect<Socket> for PgTls {
    type Stream = PgStream;
    type TlsConnect = PgHandshake;
    type Error = io::Error;

    fn make_tls_connect(&mut self, host: &str) -> Result<PgHandshake, io::Error> {
        // A socket of this machine has no name, and is not encrypted.
        let host = if host.is_empty() { "localhost" } else { host };
        let name = ServerName::try_from(host.to_string()).map_err(io::Error::other)?;
        Ok(PgHandshake { connector: self.connector.clone(), name })
    }
}

/// A connection that is about to be encrypted.
pub(crate) struct PgHandshake {
    connector: TlsConnector,
    name: ServerName<'static>,
}

impl TlsConnect<Socket> for PgHandshake {
    type Stream = PgStream;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = Result<PgStream, io::Error>> + Send>>;

    fn connect(self, socket: Socket) -> Self::Future {
        Box::pin(async move { self.connector.connect(self.name, socket).await.map(PgStream) })
    }
}

/// An encrypted connection.
pub(crate) struct PgStream(tokio_rustls::client::TlsStream<Socket>);

impl TlsStream for PgStream {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl AsyncRead for PgStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buffer)
    }
}

impl AsyncWrite for PgStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_says_how_it_is_encrypted() {
        let (rest, tls) =
            PgTls::of("postgres://h/d?sslmode=require&connect_timeout=3").expect("valid");
        assert_eq!(
            (rest.as_str(), tls.mode),
            ("postgres://h/d?connect_timeout=3", SslMode::Require)
        );
        let (rest, tls) = PgTls::of("postgres://h/d").expect("valid");
        assert_eq!((rest.as_str(), tls.mode), ("postgres://h/d", SslMode::Prefer));
        let wrong = |text: &str| PgTls::of(text).err().expect("refused").to_string();
        assert_eq!(
            wrong("postgres://h/d?sslmode=requires"),
            "sslmode: \"requires\" is none of disable, prefer, require, verify-ca or verify-full"
        );
        let missing = wrong("postgres://h/d?sslmode=verify-full&sslrootcert=%2Fno%2Fwhere.pem");
        assert!(missing.starts_with("sslrootcert /no/where.pem: "), "{missing}");
    }
}
