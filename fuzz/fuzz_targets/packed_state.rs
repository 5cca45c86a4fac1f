//! The state that a worker sends to one that joins.
#![no_main]

use libfuzzer_sys::fuzz_target;
use salamander_train::fuzzing::unpack_state;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(names) = unpack_state(bytes) {
        assert!(names.len() <= bytes.len(), "every parameter has bytes");
    }
});
