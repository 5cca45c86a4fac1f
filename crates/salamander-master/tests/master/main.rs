//! A real master on a real port, with workers that have no model but the shipped state machine.

mod encrypted;
mod hostile;
mod local;
mod membership;
mod messages;
mod platform;
mod servers;
mod support;
mod tasks;
