//! Encrypted connections of a client: whose certificates it believes.

use std::io;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::{ClientError, ClientOptions, later};

/// What questions travel over.
pub(super) trait ClientTransport: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> ClientTransport for S {}

/// How connections to a server are encrypted.
pub(super) struct Secure {
    connector: TlsConnector,
    name: ServerName<'static>,
}

impl Secure {
    pub(super) fn new(host: &str, options: &ClientOptions) -> Result<Self, String> {
        let name = options.server_name.as_deref().unwrap_or(host.trim_matches(['[', ']']));
        let name = ServerName::try_from(name.to_string());
        let name = name.map_err(|_| format!("\"{host}\" is no name of a server"))?;
        let mut roots = RootCertStore::empty();
        match &options.authorities {
            Some(pem) => {
                for certificate in CertificateDer::pem_slice_iter(pem) {
                    let added = certificate.map_err(|error| error.to_string());
                    let added = added.and_then(|own| roots.add(own).map_err(|e| e.to_string()));
                    added.map_err(|reason| format!("the authority's certificate: {reason}"))?;
                }
            }
            None => {
                roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            }
        }
        if roots.is_empty() {
            let reason = "no authority is trusted: name the file with the one that signed the server's certificate";
            return Err(reason.to_string());
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Self { connector: Arc::new(config).into(), name })
    }

    /// Encrypts a connection; a certificate that is not believed is not tried again.
    pub(super) async fn wrap(
        &self,
        stream: TcpStream,
        authority: &str,
    ) -> Result<Box<dyn ClientTransport>, ClientError> {
        match self.connector.connect(self.name.clone(), stream).await {
            Ok(stream) => Ok(Box::new(stream)),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                Err(ClientError::Refused(format!("{authority}: {error}")))
            }
            Err(error) => Err(later(format!("{authority}: {error}"))),
        }
    }
}
