//! Servers and clients over real sockets: what is asked is done once, whoever dies in between.
//!
//! # Layout
//! - `cluster`: servers as threads, which can be killed and started again
//! - `rows`: pulls, stages, pushes, what changed
//! - `ahead`: pushes whose acknowledgements are collected later
//! - `managing`: histories, files, partitions
//! - `slow`: servers that take their time to give partitions away
//! - `failures`: servers that go away and come back
//! - `hostile`: bytes that are none of ours, and too many of them

mod ahead;
mod cluster;
mod failures;
mod hostile;
mod managing;
mod rows;
mod slow;
