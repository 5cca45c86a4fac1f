//! Bodies: bounded before memory is taken, compressed or not, with JSON before bytes where tensors are binary.

use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use flate2::Compression;
use flate2::read::{GzDecoder, ZlibDecoder};
use flate2::write::{GzEncoder, ZlibEncoder};
use http_body_util::BodyExt;
use hyper::HeaderMap;
use hyper::body::Body;
use hyper::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH};
use tokio::time::{Instant, timeout_at};

use crate::refusal::Refusal;

/// Says how many bytes of a body are JSON; what follows are tensors.
pub(crate) const JSON_LENGTH: &str = "inference-header-content-length";

/// Bytes that are counted for each value of JSON, besides those of the body: `{},` is three of them, and a record in
/// memory.
const VALUE: usize = 64;

/// Bodies above this take milliseconds to be read.
const HEAVY: usize = 256 << 10;

/// Answers below this are not worth being compressed.
const WORTH: usize = 4096;

/// Bytes per second that are slow enough: who sends fewer over longer than patience lasts is given up.
pub(crate) const SLOWEST: usize = 16 << 10;

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
        match name.to_str().unwrap_or_default().trim().to_ascii_lowercase().as_str() {
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

/// Reads bodies: none may be longer than a bound or slower than a rate, and all of them together may not take more
/// memory than they are given.
#[derive(Clone)]
pub(crate) struct BodyReader {
    /// The most bytes of a body, also when it is unpacked.
    most: usize,
    /// How long the first byte may take; each byte earns more time.
    patience: Duration,
    room: Arc<BodyRoom>,
}

/// What all bodies may take together.
struct BodyRoom {
    most: usize,
    taken: AtomicUsize,
}

/// A body, with the room that it takes as long as this lives.
pub(crate) struct ReadBody {
    pub(crate) bytes: Bytes,
    pub(crate) room: TakenRoom,
}

/// What one request takes of the room, until this is dropped.
pub(crate) struct TakenRoom {
    room: Arc<BodyRoom>,
    bytes: AtomicUsize,
}

impl TakenRoom {
    pub(crate) fn take(&self, bytes: usize) -> Result<(), Refusal> {
        let before = self.room.taken.fetch_add(bytes, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        match before + bytes <= self.room.most {
            true => Ok(()),
            false => Err(Refusal::Busy("too many large requests at a time: try again".to_string())),
        }
    }

    /// Takes more for what became of the request's bytes in memory.
    pub(crate) fn take_values(&self, bytes: usize) -> Result<(), Refusal> {
        if bytes > self.room.most {
            let reason = "the values of the request take too much memory: send fewer of them";
            return Err(Refusal::TooLarge(reason.to_string()));
        }
        self.take(bytes).inspect_err(|_| self.give_back(bytes))
    }

    /// Gives back what a part of the request took that is answered.
    pub(crate) fn give_back(&self, bytes: usize) {
        let less = |taken: usize| Some(taken.saturating_sub(bytes));
        let before = self.bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        let given = before.unwrap_or_default().min(bytes);
        self.room.taken.fetch_sub(given, Ordering::Relaxed);
    }
}

impl Drop for TakenRoom {
    fn drop(&mut self) {
        self.room.taken.fetch_sub(*self.bytes.get_mut(), Ordering::Relaxed);
    }
}

impl BodyReader {
    /// Bodies of so many bytes at most, all of them together of `room`; one that sends nothing for `patience` is given
    /// up.
    pub(crate) fn new(most: usize, room: usize, patience: Duration) -> Self {
        let room = BodyRoom { most: room.max(most), taken: AtomicUsize::new(0) };
        Self { most, patience, room: Arc::new(room) }
    }

    /// Room of which nothing is taken yet.
    pub(crate) fn room(&self) -> TakenRoom {
        TakenRoom { room: Arc::clone(&self.room), bytes: AtomicUsize::new(0) }
    }

    /// How long nothing may come.
    pub(crate) fn patience(&self) -> Duration {
        self.patience
    }

    fn too_large(&self) -> Refusal {
        Refusal::TooLarge(format!("the body has more than {} bytes", self.most))
    }

    /// Reads a body.
    pub(crate) async fn read<B>(&self, headers: &HeaderMap, body: B) -> Result<ReadBody, Refusal>
    where
        B: Body<Data = Bytes>,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let said = headers.get(CONTENT_LENGTH).and_then(|said| said.to_str().ok()?.parse().ok());
        if said.is_some_and(|length: usize| length > self.most) {
            return Err(self.too_large());
        }
        let encoding = Encoding::of_request(headers)?;
        let room = self.room();
        let packed = self.collect(body, &room).await?;
        let bytes = match encoding {
            None => packed,
            Some(encoding) => {
                let unpacked = apart(packed.len(), || unpack(encoding, &packed, self.most))
                    .map_err(|error| Refusal::Invalid(format!("{}: {error}", encoding.name())))?
                    .ok_or_else(|| self.too_large())?;
                room.take(unpacked.len())?;
                unpacked
            }
        };
        let values = json_values(headers, &bytes);
        if values.saturating_mul(VALUE) > self.room.most {
            return Err(Refusal::TooLarge(format!(
                "{values} values of JSON take too much memory: send fewer, or tensors as bytes"
            )));
        }
        room.take(values * VALUE)?;
        Ok(ReadBody { bytes, room })
    }

    async fn collect<B>(&self, body: B, room: &TakenRoom) -> Result<Bytes, Refusal>
    where
        B: Body<Data = Bytes>,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let mut body = std::pin::pin!(body);
        let (mut first, mut rest) = (None, BytesMut::new());
        let (begin, mut received) = (Instant::now(), 0usize);
        loop {
            let earned = Duration::from_secs((received / SLOWEST) as u64);
            let frame = match timeout_at(begin + self.patience + earned, body.frame()).await {
                Ok(frame) => frame,
                Err(_) => {
                    let reason = format!("the body stopped after {received} bytes");
                    return Err(Refusal::Slow(reason));
                }
            };
            let Some(frame) = frame else { break };
            let frame = frame.map_err(|error| {
                Refusal::Invalid(format!("the body ended early: {}", error.into()))
            })?;
            let Ok(data) = frame.into_data() else { continue };
            received += data.len();
            if received > self.most {
                return Err(self.too_large());
            }
            room.take(data.len())?;
            match (&first, rest.is_empty()) {
                // Most bodies come in one piece, which need not be copied.
                (None, true) => first = Some(data),
                _ => {
                    if let Some(first) = first.take() {
                        rest.extend_from_slice(&first);
                    }
                    rest.extend_from_slice(&data);
                }
            }
        }
        Ok(first.unwrap_or_else(|| rest.freeze()))
    }
}

/// How many values there may be in the part of a body that is JSON, or would be taken for it: commas are between them.
fn json_values(headers: &HeaderMap, body: &[u8]) -> usize {
    let length = headers.get(JSON_LENGTH).and_then(|said| said.to_str().ok()?.parse().ok());
    let length = length.unwrap_or(body.len()).min(body.len());
    body[..length].iter().filter(|byte| **byte == b',').count()
}

/// Does something with so many bytes of a body: much of it apart from the threads that wait for others.
pub(crate) fn apart<T>(bytes: usize, work: impl FnOnce() -> T) -> T {
    match bytes > HEAVY {
        true => tokio::task::block_in_place(work),
        false => work(),
    }
}

/// A body as it was before it was compressed, of a megabyte at most.
pub(crate) fn unpacked(headers: &HeaderMap, body: Bytes) -> Result<Bytes, Refusal> {
    match Encoding::of_request(headers)? {
        None => Ok(body),
        Some(encoding) => match unpack(encoding, &body, 1 << 20) {
            Ok(Some(body)) => Ok(body),
            _ => Err(Refusal::Invalid("it cannot be unpacked".to_string())),
        },
    }
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

    /// Bytes of a body of so many empty records.
    async fn read_records(bodies: &BodyReader, records: usize) -> Result<usize, Refusal> {
        let body = format!("[{}{{}}]", "{},".repeat(records - 1));
        let body = http_body_util::Full::new(Bytes::from(body));
        bodies.read(&HeaderMap::new(), body).await.map(|body| body.bytes.len())
    }

    #[tokio::test]
    async fn values_of_json_are_counted_before_they_take_memory() {
        let bodies = BodyReader::new(1000, 1000, Duration::from_secs(60));
        assert_eq!(read_records(&bodies, 10).await, Ok(31));
        let refused = read_records(&bodies, 100).await;
        let reason = refused.expect_err("more than all bodies may take").to_string();
        assert!(reason.starts_with("99 values of JSON take too much memory"), "{reason}");
        assert_eq!(read_records(&bodies, 10).await, Ok(31), "the room is given back");
        let mut headers = HeaderMap::new();
        headers.insert(JSON_LENGTH, 2.into());
        assert_eq!(json_values(&headers, b"{},,,,"), 0, "tensors are no JSON");
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
