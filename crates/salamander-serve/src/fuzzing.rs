//! Doors for the fuzz target into decoders that are private, so that these can stay private for all others.

use bytes::Bytes;
use hyper::HeaderMap;
use hyper::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderValue};
use prost::Message as _;
use salamander_proto::inference::ModelInferRequest;

use crate::input::Input;
use crate::{grpc, http};

/// Reads the body of a request over REST as every address would. `choice` says how long its JSON is said to be, and
/// whether it is compressed or a form; returns how many records there were.
pub fn rest(choice: u16, body: &[u8]) -> usize {
    let mut headers = HeaderMap::new();
    let (length, packed) = (choice >> 2, choice & 3);
    if length > 0 {
        headers.insert("inference-header-content-length", HeaderValue::from(length - 1));
    }
    if packed == 1 {
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    } else if packed == 2 {
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static("deflate"));
    } else if packed == 3 {
        let form = HeaderValue::from_static("multipart/form-data; boundary=XX");
        headers.insert(CONTENT_TYPE, form);
    }
    http::decode_all(&headers, Bytes::copy_from_slice(body)).iter().map(use_up).sum()
}

/// Reads a message of gRPC; returns how many records there were.
pub fn grpc(body: &[u8]) -> usize {
    let Ok(message) = ModelInferRequest::decode(body) else { return 0 };
    grpc::decode(message).map_or(0, |input| use_up(&input))
}

/// Looks at every value, as a decoder of a model does.
fn use_up(input: &Input) -> usize {
    let mut records = 0;
    let _ = input.each(&mut |row| {
        records += 1;
        row.columns()
            .for_each(|(name, value)| assert!(!name.is_empty() || value.count() < usize::MAX));
        Ok(())
    });
    records
}
