//! The master's journal, from a disk or a store that may have done anything to it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use salamander_master::journal::{records_of, sign, signature};
use salamander_master::record::Record;

fuzz_target!(|bytes: &[u8]| {
    let _ = signature(bytes);
    let Ok(records) = records_of::<Record>(bytes) else { return };
    let copy = sign(bytes, [7; 16]);
    assert_eq!(signature(&copy), Some([7; 16]), "a signature is read back");
    // What a crash has torn is cut off, with or without a signature after it.
    if let Ok(again) = records_of::<Record>(&copy) {
        assert!(again.len() <= records.len() + 1, "a signature adds no records");
    }
});
