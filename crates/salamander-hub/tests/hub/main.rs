//! A hub from outside: folders in, HTTP out.

mod folders;
mod queue;
mod mlflow;
mod read;
