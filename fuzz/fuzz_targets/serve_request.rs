//! What a client can send to a server of models: bodies over REST, compressed or not, with tensors behind the JSON or
//! without, and messages of gRPC. The first byte says which; the next two how long the JSON is said to be.
#![no_main]

use libfuzzer_sys::fuzz_target;
use salamander_serve::fuzzing;

fuzz_target!(|bytes: &[u8]| {
    let Some((&[first, low, high], body)) = bytes.split_first_chunk::<3>() else { return };
    let _ = match first % 2 {
        0 => fuzzing::grpc(body),
        _ => fuzzing::rest(u16::from_le_bytes([low, high]), body),
    };
});
