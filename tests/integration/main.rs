//! The real program, run as a user runs it: trained, killed, starved of disk, fed with nonsense.

mod commands;
mod exact;
mod examples;
mod faults;
mod first_run;
mod interrupted;
mod new_crate;
mod support;
mod weights;
