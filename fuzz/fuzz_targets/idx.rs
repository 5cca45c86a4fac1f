//! The images and labels files of MNIST; the first byte says how long the labels file is.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((&length, bytes)) = bytes.split_first() else { return };
    let (labels, images) = bytes.split_at(bytes.len().min(length.into()));
    salamander_fuzz::write_beside("t-labels-idx1-ubyte", labels);
    salamander_fuzz::read_all("t-images-idx3-ubyte", images);
});
