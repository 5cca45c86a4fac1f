//! The hub and all that is asked of one, from a terminal.
//!
//! # Layout
//! - `serve`: `salamander hub`; `webhook`: who is told of ends;
//! - `connect`: which hub a command talks to
//! - `experiment`, `create`, `follow`: experiments; `gc`: checkpoints that go;
//! - `trial`, `checkpoint`, `model`, `job`: the rest; `add`: versions of models from runs that lie elsewhere
//! - `table`: how they look

mod add;
pub(crate) mod checkpoint;
mod connect;
mod create;
pub(crate) mod experiment;
mod follow;
mod gc;
pub(crate) mod job;
pub(crate) mod model;
pub(crate) mod serve;
mod table;
pub(crate) mod trial;
mod webhook;

use std::process::ExitCode;

use anyhow::Result;

/// Prints the completions of a shell.
pub(crate) fn completions(
    shell: clap_complete::Shell,
    command: &mut clap::Command,
) -> Result<ExitCode> {
    let mut text = Vec::new();
    clap_complete::generate(shell, command, "salamander", &mut text);
    crate::out::text(&String::from_utf8_lossy(&text))?;
    Ok(ExitCode::SUCCESS)
}
