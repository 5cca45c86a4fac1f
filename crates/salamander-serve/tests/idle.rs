//! Thousands of connections that ask nothing: others are answered beside them. In a program of its own, because it
//! takes nearly all file descriptors that there are: ten thousand connections where the hard limit of open files allows
//! them, and as many as it allows where it does not, which is printed.
#![allow(clippy::unwrap_used, reason = "a test that unwraps fails with a line number")]

#[path = "serve/support.rs"]
#[allow(dead_code, reason = "one test uses some of it")]
mod support;

use std::net::TcpStream;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use salamander_serve::{Batching, ServerOptions};
use support::{Running, Times, post, registry};

/// Where the machine allows that many; both ends are in this process.
const CONNECTIONS: usize = 10_000;

/// Files that this process may have open, after asking for all that it is allowed.
fn descriptors() -> usize {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    // No limit at all is nothing.
    let current = getrlimit(Resource::Nofile).current;
    current.map_or(usize::MAX, |current| usize::try_from(current).unwrap_or(usize::MAX))
}

#[test]
fn idle_connections_in_thousands_disturb_nobody() {
    let allowed = descriptors();
    let registry = registry(&[("double", &Times::new(2.0))], Batching::default());
    let server = Running::start(registry, ServerOptions::default());
    let count = CONNECTIONS.min(allowed.saturating_sub(200) / 2);
    if count < CONNECTIONS {
        println!("{count} connections instead of {CONNECTIONS}: {allowed} files may be open");
    }
    let idle: Vec<TcpStream> =
        (0..count).map(|_| TcpStream::connect(server.address).expect("taken")).collect();
    println!("{} idle connections", idle.len());
    for _ in 0..100 {
        let answer = post(server.address, "/v2/models/double/infer", "", br#"{"x": 4}"#);
        assert_eq!(answer.status, 200);
    }
}
