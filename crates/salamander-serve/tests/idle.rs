//! Thousands of connections that ask nothing: others are answered beside them. In a program of its own, because it
//! takes nearly all file descriptors that there are.
#![allow(clippy::unwrap_used, reason = "a test that unwraps fails with a line number")]

#[path = "serve/support.rs"]
#[allow(dead_code, reason = "one test uses some of it")]
mod support;

use std::net::TcpStream;

use salamander_serve::{Batching, ServerOptions};
use support::{Running, Times, post, registry};

/// Files that this process may have open.
fn descriptors() -> usize {
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap_or_default();
    line.split_whitespace().nth(3).and_then(|soft| soft.parse().ok()).unwrap_or(1024)
}

#[test]
fn ten_thousand_idle_connections_disturb_nobody() {
    let registry = registry(&[("double", &Times::new(2.0))], Batching::default());
    let server = Running::start(registry, ServerOptions::default());
    // Both ends are in this process.
    let count = 10_000.min(descriptors().saturating_sub(200) / 2);
    let idle: Vec<TcpStream> =
        (0..count).map(|_| TcpStream::connect(server.address).expect("taken")).collect();
    println!("{} idle connections", idle.len());
    for _ in 0..100 {
        let answer = post(server.address, "/v2/models/double/infer", "", br#"{"x": 4}"#);
        assert_eq!(answer.status, 200);
    }
}
