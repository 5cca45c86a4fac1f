//! The real program, run as a user runs it: trained, killed, starved of disk, fed with nonsense. What takes long
//! is in [`long`], which `cargo xtask test --all` adds.

mod assets;
mod asynchronous;
mod bits;
mod commands;
mod data;
mod elastic;
mod exact;
mod examples;
mod faults;
mod first_run;
mod from_code;
mod hosts;
mod hub;
mod hub_upkeep;
mod interop;
mod interrupted;
#[cfg(feature = "long")]
mod long;
mod outputs;
mod pipelines;
mod places;
mod precision;
mod recommenders;
mod search;
mod servers;
mod serving;
mod steered;
mod stored;
mod support;
mod tables;
mod tasks;
mod weights;
