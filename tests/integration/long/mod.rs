//! What takes minutes: `cargo xtask test --all` compiles it in with the feature `long` and runs it.
//!
//! # Layout
//! - `aimed`: faults that hit a state on its way, a checkpoint, single bits, a full disk
//! - `chaos`: many faults in one run, and every record counted
//! - `cluster`: the real program in pods
//! - `hosts`: runs on several hosts, which are network namespaces
//! - `hub`: a hub and its trials, killed thirty times
//! - `models`: those that people have, under kills; what takes them long to learn
//! - `new_crate`: what `salamander new` writes, built from nothing
//! - `recommenders`: every recommender learns, on servers too
//! - `search`: searches that are killed many times
//! - `servers`: parameter servers that are killed, have no disk, or show their figures
//! - `serving`: the batch client, killed twenty times

mod aimed;
mod chaos;
mod cluster;
mod hosts;
mod hub;
mod models;
mod new_crate;
mod recommenders;
mod search;
mod servers;
mod serving;
