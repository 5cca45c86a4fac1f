//! The real program, run as a user runs it: trained, killed, starved of disk, fed with nonsense.

mod assets;
mod asynchronous;
mod cluster;
mod commands;
mod data;
mod elastic;
mod exact;
mod examples;
mod faults;
mod first_run;
mod from_code;
mod hosts;
mod interop;
mod interrupted;
mod new_crate;
mod outputs;
mod places;
mod precision;
mod servers;
mod stored;
mod support;
mod tables;
mod tasks;
mod weights;
