//! What the roles of a run say to each other over gRPC, and the clients that say it for programs without async.
//!
//! # Layout
//! - [`v1`]: generated from `salamander/v1/*.proto`
//! - [`inference`], [`health`]: what clients of served models call
//! - [`bounded`]: requests of theirs are counted before they take memory
//! - [`convert`]: between generated messages and the types of the state machines
//! - [`status`]: errors to gRPC codes, in one place
//! - [`token`]: how clients show that they have the run's token
//! - [`limits`]: sizes and deadlines
//! - [`client`]: a worker's [`client::Session`], a person's [`client::Admin`] and a platform's
//!   [`client::PlatformClient`]

pub mod bounded;
pub mod client;
pub mod convert;
#[doc(hidden)]
pub mod fuzzing;
pub mod limits;
pub mod status;
pub mod token;

/// Generated from `salamander/v1/*.proto`.
#[allow(
    missing_docs,
    unreachable_pub,
    clippy::all,
    reason = "generated; documented in salamander/v1"
)]
pub mod v1 {
    tonic::include_proto!("salamander.v1");
}

/// The Open Inference Protocol, generated from `inference/service.proto`.
#[allow(
    missing_docs,
    unreachable_pub,
    clippy::all,
    reason = "generated; documented by the protocol"
)]
pub mod inference {
    tonic::include_proto!("inference");
}

/// gRPC's health check, generated from `health/health.proto`.
#[allow(missing_docs, unreachable_pub, clippy::all, reason = "generated; documented by gRPC")]
pub mod health {
    tonic::include_proto!("grpc.health.v1");
}
