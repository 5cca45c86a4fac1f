//! What anybody can send to a master's port, or a master to its workers: every message of the control plane.
#![no_main]

use libfuzzer_sys::fuzz_target;
use salamander_proto::fuzzing::control;

fuzz_target!(|bytes: &[u8]| control(bytes));
