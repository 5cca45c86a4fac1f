//! The binary files of CIFAR-10.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    salamander_fuzz::read_all("data_batch_1.bin", bytes);
});
