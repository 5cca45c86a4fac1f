//! What a checkpoint says of itself, and the list of those that count, from a disk or a store.
#![no_main]

use libfuzzer_sys::fuzz_target;
use salamander_train::fuzzing::{counted, manifest};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(read) = manifest(bytes) {
        let text = serde_json::to_vec(&read).expect("a manifest is JSON");
        // As text, since a metric may be no number.
        let again = manifest(&text).map(|again| serde_json::to_vec(&again).expect("JSON"));
        assert_eq!(again, Ok(text), "a manifest is read back");
    }
    if let Ok(list) = counted(bytes) {
        assert_eq!(counted(&list.to_bytes()), Ok(list), "a list is read back");
    }
});
