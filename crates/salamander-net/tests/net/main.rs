//! Rings of real members: threads with their own listeners, and processes where they are killed.
//!
//! # Layout
//! - `group`: members as threads
//! - `sums`, `messages`: what collectives return
//! - `failures`: members that die or give up, and the generation after them
//! - `cut`: a member that nothing is heard of any more
//! - `streams`: connections for bulk data that belong to no ring
//! - `hostile`: connections that are none of ours
//! - `encrypted`: the same with TLS, and certificates that do not fit

mod cut;
mod encrypted;
mod failures;
mod group;
mod hostile;
mod messages;
mod streams;
mod sums;
