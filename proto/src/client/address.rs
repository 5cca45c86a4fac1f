//! The way to a master: its address, the limits of connecting, and TLS if the job has certificates.

use std::sync::{Arc, Mutex, PoisonError};

use hyper_util::rt::TokioIo;
use salamander_net::{Keys, Tls, Token};
use tonic::transport::{Channel, Endpoint, Uri};

use super::stream::ControlStream;
use super::{Error, SessionOptions, root};
use crate::limits;
use crate::token::{self, Bearer};

/// Connects as often as it is asked to.
#[derive(Debug)]
pub(super) struct MasterAddress {
    endpoint: Endpoint,
    tls: Option<Tls>,
    token: Token,
    refusal: LastRefusal,
}

/// What the last line learnt about TLS or the token: errors lose their causes on their way through HTTP/2.
#[derive(Clone, Debug, Default)]
pub(super) struct LastRefusal(Arc<Mutex<Option<String>>>);

impl LastRefusal {
    pub(super) fn note(&self, reason: String) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(reason);
    }
}

impl MasterAddress {
    pub(super) fn new(options: &SessionOptions) -> Result<Self, Error> {
        let (master, tls) = (options.master.as_str(), options.tls.clone());
        let wrong = || Error::Address { master: master.to_string() };
        if !master.contains(':') || master.contains('/') {
            return Err(wrong());
        }
        // Encrypted or not is the line's business, so the scheme is the same.
        let endpoint = Endpoint::from_shared(format!("http://{master}")).map_err(|_| wrong())?;
        let endpoint = endpoint
            .connect_timeout(limits::CONNECT)
            .http2_keep_alive_interval(limits::KEEP_ALIVE)
            .keep_alive_timeout(limits::KEEP_ALIVE_ANSWER)
            .keep_alive_while_idle(true);
        let token = token::of_connections(&options.token);
        Ok(Self { endpoint, tls, token, refusal: LastRefusal::default() })
    }

    /// What goes along with every call: the token, where the connection hides it.
    pub(super) fn bearer(&self, options: &SessionOptions) -> Result<Bearer, Error> {
        match self.tls {
            Some(_) => Ok(Bearer::new(&options.token)?),
            None => Ok(Bearer::unsent()),
        }
    }

    /// Connects once; the error is the reason.
    pub(super) async fn connect(&self) -> Result<Channel, String> {
        let keys = Keys { token: self.token.clone(), tls: self.tls.clone() };
        let refusal = self.refusal.clone();
        let connector = tower::service_fn(move |to: Uri| {
            let (keys, refusal) = (keys.clone(), refusal.clone());
            async move { ControlStream::open(&to, &keys, refusal).await.map(TokioIo::new) }
        });
        let connected = self.endpoint.connect_with_connector(connector).await;
        connected.map_err(|error| root(&error))
    }

    /// Why the other side or this one wants no connection, if it is about certificates or the token: trying again will
    /// not help soon.
    pub(super) fn refusal(&self) -> Option<String> {
        self.refusal.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}
