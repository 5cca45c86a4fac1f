//! A hub from outside: folders in, HTTP out.

mod folders;
mod mlflow;
mod queue;
mod read;
mod upkeep;
