//! Bodies: bounded before memory is taken, compressed or not, with JSON before bytes where tensors are binary.

use std::io::{Read, Write};

use bytes::Bytes;
use flate2::Compression;
use flate2::read::{GzDecoder, ZlibDecoder};
use flate2::write::{GzEncoder, ZlibEncoder};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::HeaderMap;
use hyper::body::Body;
use hyper::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH};

use crate::refusal::Refusal;

/// Says how many bytes of a body are JSON; what follows are tensors.
pub(crate) const JSON_LENGTH: &str = "inference-header-content-length";

/// Answers below this are not worth being compressed.
const WORTH: usize = 4096;

/// How a body is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Encoding {
    Gzip,
    /// As HTTP has it: with zlib's frame.
    Deflate,
}

impl Encoding {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Encoding::Gzip => "gzip",
            Encoding::Deflate => "deflate",
        }
    }

    fn of_request(headers: &HeaderMap) -> Result<Option<Self>, Refusal> {
        let Some(name) = headers.get(CONTENT_ENCODING) else { return Ok(None) };
        match name.to_str().unwrap_or_default() {
            "" | "identity" => Ok(None),
            "gzip" => Ok(Some(Encoding::Gzip)),
            "deflate" => Ok(Some(Encoding::Deflate)),
            other => Err(Refusal::Invalid(format!(
                "content-encoding \"{other}\" is not known: use gzip or deflate"
            ))),
        }
    }

    /// One that the client takes, if the answer is worth it.
    pub(crate) fn of_answer(headers: &HeaderMap, bytes: usize) -> Option<Self> {
        if bytes < WORTH {
            return None;
        }
        let accepted = headers.get(ACCEPT_ENCODING)?.to_str().ok()?;
        let takes = |name: &str| {
            accepted.split(',').any(|part| {
                let mut words = part.split(';').map(str::trim);
                words.next() == Some(name) && words.all(|word| word != "q=0")
            })
        };
        [Encoding::Gzip, Encoding::Deflate].into_iter().find(|encoding| takes(encoding.name()))
    }
}

/// Reads a body of at most so many bytes, also when it is unpacked.
pub(crate) async fn read<B>(headers: &HeaderMap, body: B, most: usize) -> Result<Bytes, Refusal>
where
    B: Body<Data = Bytes>,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let too_large = || Refusal::TooLarge(format!("the body has more than {most} bytes"));
    let said = headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    if said.is_some_and(|length: usize| length > most) {
        return Err(too_large());
    }
    let encoding = Encoding::of_request(headers)?;
    let packed = match Limited::new(body, most).collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) if error.is::<LengthLimitError>() => return Err(too_large()),
        Err(error) => return Err(Refusal::Invalid(format!("the body ended early: {error}"))),
    };
    let Some(encoding) = encoding else { return Ok(packed) };
    let unpacked = unpack(encoding, &packed, most);
    unpacked
        .map_err(|error| Refusal::Invalid(format!("{}: {error}", encoding.name())))?
        .ok_or_else(too_large)
}

/// Unpacks a body; nothing where it has more bytes than allowed.
fn unpack(encoding: Encoding, packed: &[u8], most: usize) -> std::io::Result<Option<Bytes>> {
    let mut unpacked = Vec::new();
    let bound = most as u64 + 1;
    match encoding {
        Encoding::Gzip => GzDecoder::new(packed).take(bound).read_to_end(&mut unpacked)?,
        Encoding::Deflate => ZlibDecoder::new(packed).take(bound).read_to_end(&mut unpacked)?,
    };
    Ok((unpacked.len() <= most).then(|| unpacked.into()))
}

/// Packs an answer, quickly rather than well.
pub(crate) fn pack(encoding: Encoding, plain: &[u8]) -> std::io::Result<Vec<u8>> {
    match encoding {
        Encoding::Gzip => {
            let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
            packed.write_all(plain)?;
            packed.finish()
        }
        Encoding::Deflate => {
            let mut packed = ZlibEncoder::new(Vec::new(), Compression::fast());
            packed.write_all(plain)?;
            packed.finish()
        }
    }
}

/// Cuts a body into its JSON and its tensors.
pub(crate) fn split(headers: &HeaderMap, mut body: Bytes) -> Result<(Bytes, Bytes), Refusal> {
    let Some(length) = headers.get(JSON_LENGTH) else { return Ok((body, Bytes::new())) };
    let length = length.to_str().ok().and_then(|length| length.parse::<usize>().ok());
    match length.filter(|length| *length <= body.len()) {
        Some(length) => {
            let json = body.split_to(length);
            Ok((json, body))
        }
        None => {
            let bytes = body.len();
            let reason = format!("{JSON_LENGTH} is no number up to {bytes}, the body's length");
            Err(Refusal::Invalid(reason))
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_packed_is_unpacked_up_to_the_bound() {
        let plain = vec![7; 10_000];
        for encoding in [Encoding::Gzip, Encoding::Deflate] {
            let packed = pack(encoding, &plain).unwrap();
            assert_eq!(unpack(encoding, &packed, 10_000).unwrap().unwrap(), plain);
            assert_eq!(unpack(encoding, &packed, 9_999).unwrap(), None);
            assert!(unpack(encoding, &packed[..packed.len() / 2], 10_000).is_err());
        }
    }

    #[test]
    fn the_client_says_what_it_takes() {
        let check = |accepted: &'static str, bytes, expected| {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT_ENCODING, hyper::header::HeaderValue::from_static(accepted));
            assert_eq!(Encoding::of_answer(&headers, bytes), expected, "{accepted}");
        };
        check("gzip, deflate", WORTH, Some(Encoding::Gzip));
        check("deflate;q=0.5", WORTH, Some(Encoding::Deflate));
        check("gzip;q=0, br", WORTH, None);
        check("gzip", WORTH - 1, None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_unpacked_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            for encoding in [Encoding::Gzip, Encoding::Deflate] {
                let _ = unpack(encoding, &bytes, 1000);
            }
        }

        #[test]
        fn any_length_is_taken_or_refused(length in "[0-9]{0,20}|-1|x", bytes in 0..50usize) {
            let mut headers = HeaderMap::new();
            headers.insert(JSON_LENGTH, length.parse().unwrap());
            if let Ok((json, rest)) = split(&headers, vec![0; bytes].into()) {
                prop_assert_eq!(json.len() + rest.len(), bytes);
            }
        }
    }
}
