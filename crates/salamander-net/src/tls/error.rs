//! Why a folder of certificates or a connection is refused, in words that say what to do about it.

use std::path::Path;

use rustls::{AlertDescription, CertificateError};

/// What to do where certificates do not fit.
const SAME_FOLDER: &str = "all roles of a run need the certificates of the same --tls folder";
/// What to do where they are too old. They are made for ten years.
const NEW_FOLDER: &str =
    "make others with `salamander tls NEW_DIR` in their place, and start the roles again";

/// Refused certificates.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A file of this side.
    #[error("{file}: {reason}")]
    File {
        /// Its path, or its name where it has none.
        file: String,
        /// What is wrong with it.
        reason: String,
    },
    /// What the other side said or presented.
    #[error("TLS: {0}")]
    Peer(String),
}

impl Error {
    pub(super) fn file(file: &str, reason: impl ToString) -> Self {
        Self::File { file: file.to_string(), reason: reason.to_string() }
    }

    /// The certificate of this side, checked like one of another.
    pub(super) fn own(error: &rustls::Error) -> Self {
        let reason = match error {
            rustls::Error::InvalidCertificate(wrong) => certificate(wrong),
            error => error.to_string(),
        };
        Self::file(super::CERTIFICATE, reason)
    }

    /// Names the folder.
    pub(super) fn of(self, folder: &Path) -> Self {
        match self {
            Self::File { file, reason } => {
                Self::File { file: folder.join(file).display().to_string(), reason }
            }
            error => error,
        }
    }

    /// What an error of a connection means.
    pub fn of_peer(error: &rustls::Error) -> Self {
        use rustls::Error::{
            AlertReceived, InvalidCertificate, InvalidMessage, NoCertificatesPresented,
        };
        Self::Peer(match error {
            InvalidCertificate(wrong) => format!("its certificate: {}", certificate(wrong)),
            NoCertificatesPresented => format!("it presents no certificate; {SAME_FOLDER}"),
            InvalidMessage(_) => {
                format!("it does not speak TLS, or not as it should; {SAME_FOLDER}")
            }
            AlertReceived(alert) => match alert {
                AlertDescription::CertificateExpired => {
                    format!("it says that this side's certificate has expired; {NEW_FOLDER}")
                }
                AlertDescription::UnknownCA
                | AlertDescription::BadCertificate
                | AlertDescription::DecryptError
                | AlertDescription::CertificateUnknown
                | AlertDescription::CertificateRequired => {
                    format!("it does not accept this side's certificate; {SAME_FOLDER}")
                }
                alert => format!("it gives up: {alert:?}"),
            },
            error => error.to_string(),
        })
    }

    /// What an error of an asynchronous connection means, if it is about TLS.
    pub fn of_io(error: &std::io::Error) -> Option<Self> {
        let inner = error.get_ref()?;
        let known = inner.downcast_ref::<Self>().cloned();
        known.or_else(|| inner.downcast_ref::<rustls::Error>().map(Self::of_peer))
    }

    /// A plain client where the other side answers with an alert.
    pub fn wanted() -> Self {
        Self::Peer(format!("it wants TLS, and this side has no certificates; {SAME_FOLDER}"))
    }

    /// A client with TLS at a plain port.
    pub fn unwanted() -> Self {
        Self::Peer(format!("it speaks TLS, and this side has no certificates; {SAME_FOLDER}"))
    }
}

/// The error of a handshake that the other side broke off.
pub fn broken_off() -> std::io::Error {
    let reason = "it closed the connection during the TLS handshake, perhaps because it was started without TLS";
    std::io::Error::new(std::io::ErrorKind::ConnectionReset, reason)
}

impl From<Error> for std::io::Error {
    fn from(error: Error) -> Self {
        Self::new(std::io::ErrorKind::InvalidData, error)
    }
}

impl From<Error> for crate::Error {
    fn from(error: Error) -> Self {
        Self::Refused(error.to_string())
    }
}

fn certificate(wrong: &CertificateError) -> String {
    use CertificateError::{
        BadSignature, Expired, ExpiredContext, NotValidForName, NotValidForNameContext,
        NotValidYet, NotValidYetContext, UnknownIssuer,
    };
    match wrong {
        Expired | ExpiredContext { .. } => format!("it has expired; {NEW_FOLDER}"),
        NotValidYet | NotValidYetContext { .. } => {
            "it is not valid yet; compare the clocks of the hosts".to_string()
        }
        UnknownIssuer | BadSignature => {
            format!("the job's authority has not signed it; {SAME_FOLDER}")
        }
        NotValidForName | NotValidForNameContext { .. } => {
            format!("it is not for the name {}; {SAME_FOLDER}", super::NAME)
        }
        other => other.to_string(),
    }
}
