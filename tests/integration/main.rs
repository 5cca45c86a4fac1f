//! The real program, run as a user runs it: trained, killed, starved of disk, fed with nonsense. What takes long
//! is in [`long`], which `cargo xtask test --all` adds.

mod assets;
mod asynchronous;
mod bits;
mod columns;
mod commands;
mod data;
mod elastic;
mod exact;
mod examples;
mod faults;
mod first_run;
mod from_code;
mod hub;
mod hub_disk;
mod hub_page;
mod hub_rebuild;
mod hub_told;
mod hub_upkeep;
#[cfg(feature = "long")]
#[path = "../../model_zoo/tests/zoo/support.rs"]
mod hugging_face;
mod interop;
mod interrupted;
#[cfg(feature = "long")]
mod long;
mod old_master;
mod outputs;
mod pipelines;
mod places;
#[path = "../../crates/salamander-hub/tests/page/playwright.rs"]
mod playwright;
#[path = "../../crates/salamander-hub/tests/support/postgres.rs"]
#[allow(dead_code, reason = "the hub's own tests use more of it")]
mod postgres;
mod precision;
mod recommenders;
mod resumed;
mod search;
mod serving;
mod steered;
mod stored;
mod streamed;
mod support;
mod tables;
mod tasks;
mod tracked;
mod weights;
