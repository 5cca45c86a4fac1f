//! What takes minutes: `cargo xtask test --all` compiles it in with the feature `long` and runs it.
//!
//! # Layout
//! - `chaos`: many faults in one run, and every record counted
//! - `cluster`: the real program in pods
//! - `hub`: a hub and its trials, killed thirty times
//! - `models`: those that people have, under kills
//! - `new_crate`: what `salamander new` writes, built from nothing
//! - `recommenders`: every recommender learns, on servers too
//! - `search`: searches that are killed many times
//! - `serving`: the batch client, killed twenty times

mod chaos;
mod cluster;
mod hub;
mod models;
mod new_crate;
mod recommenders;
mod search;
mod serving;
