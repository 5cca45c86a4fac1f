//! Whole jobs on a cluster in a test: the shipped operator, platform and master, over HTTP, with real processes
//! as containers.

mod commands;
mod definition;
mod election;
mod faults;
mod jobs;
mod life;
mod manifests;
mod program;
mod roles;
mod server;
mod servers;
mod support;
