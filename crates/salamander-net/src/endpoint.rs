//! Where a member listens, as one line of text that the control plane passes on to the others.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

/// Where a member listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Its TCP address.
    pub tcp: SocketAddr,
    /// Its machine and network namespace: members with equal hosts can reach each other's Unix
    /// sockets, and so share memory.
    pub host: String,
    /// The name of its abstract Unix socket.
    pub unix: String,
}

/// A text that is no endpoint.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum Error {
    /// Not three parts.
    #[error("an endpoint is written address,host,socket")]
    Parts,
    /// The first part.
    #[error("the first part of an endpoint is an address such as 10.0.0.1:4000")]
    Address,
    /// The other parts.
    #[error("host and socket of an endpoint have 1 to 100 of the characters a-z A-Z 0-9 . _ -")]
    Name,
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{},{},{}", self.tcp, self.host, self.unix)
    }
}

impl FromStr for Endpoint {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let parts: Vec<&str> = text.split(',').collect();
        let [tcp, host, unix] = parts[..] else { return Err(Error::Parts) };
        let tcp = tcp.parse().map_err(|_| Error::Address)?;
        if !is_name(host) || !is_name(unix) {
            return Err(Error::Name);
        }
        Ok(Self { tcp, host: host.to_string(), unix: unix.to_string() })
    }
}

/// A name for this machine and network namespace; see [`Endpoint::host`].
pub(crate) fn this_host() -> Result<String, crate::Error> {
    use std::os::unix::fs::MetadataExt;
    // The boot id tells machines apart, and also a machine from a copy of its disk.
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    let namespace = std::fs::metadata("/proc/self/ns/net")?.ino();
    Ok(format!("{}-{namespace}", boot.trim()))
}

/// What can neither break the line of text nor a log, and fits into the address of a socket.
fn is_name(text: &str) -> bool {
    (1..=100).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_gives_the_endpoint_back() {
        for tcp in ["127.0.0.1:80", "[::1]:65535"] {
            let tcp = tcp.parse().expect("an address");
            let host = this_host().expect("a name of this machine");
            let endpoint = Endpoint { tcp, host, unix: "salamander-1.x".to_string() };
            assert_eq!(endpoint.to_string().parse(), Ok(endpoint));
        }
    }

    #[test]
    fn wrong_text_is_an_error() {
        let check = |text: &str, error| assert_eq!(text.parse::<Endpoint>(), Err(error), "{text}");
        check("", Error::Parts);
        check("127.0.0.1:80,a", Error::Parts);
        check("127.0.0.1:80,a,b,c", Error::Parts);
        check("localhost,a,b", Error::Address);
        check("127.0.0.1:80,,b", Error::Name);
        check("127.0.0.1:80,a,b\n", Error::Name);
        check(&format!("127.0.0.1:80,a,{}", "x".repeat(101)), Error::Name);
    }
}
