//! A hub from outside: folders in, HTTP out.

mod folders;
mod full_disk;
mod hostile;
mod mlflow;
#[path = "../support/open_metrics.rs"]
mod open_metrics;
#[path = "place_sqlite.rs"]
mod place;
mod queue;
mod read;
mod rebuilt;
mod schema;
mod searches;
mod upkeep;
