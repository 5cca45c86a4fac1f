//! Whole jobs on a cluster in a test: the shipped operator, platform and master, over HTTP, with real processes
//! as containers. `tests/integration/long/cluster.rs` runs the real program on the same cluster.

mod changes;
mod commands;
mod definition;
mod election;
mod faults;
mod foreign;
mod helm;
mod life;
mod limits;
mod manifest_jobs;
mod manifests;
#[path = "../../../salamander-hub/tests/support/open_metrics.rs"]
mod open_metrics;
mod outcome;
mod policies;
mod refusals;
mod roles;
mod server;
mod servers;
mod versions;
