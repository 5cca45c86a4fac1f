//! The same hub with its store on a Postgres server: the same tests, and those of a server that goes away.

mod encrypted;
mod folders;
mod hostile;
mod mlflow;
#[path = "../support/open_metrics.rs"]
mod open_metrics;
mod outage;
#[path = "place_postgres.rs"]
mod place;
mod queue;
mod read;
mod rebuilt;
mod searches;
#[path = "../support/postgres.rs"]
mod server;
mod upkeep;
