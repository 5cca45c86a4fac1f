//! The server's tests in one program, which is linked once.
#![allow(clippy::unwrap_used, reason = "a test that unwraps fails with a line number")]

mod abuse;
mod batching;
mod clients;
mod grpc;
mod many;
mod mutations;
#[path = "../../../salamander-hub/tests/support/open_metrics.rs"]
mod open_metrics;
mod openapi;
mod page;
mod rest;
mod support;
mod versions;
