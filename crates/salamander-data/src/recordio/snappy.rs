//! Snappy in the two forms of the dialects, decompressed straight to where the payload stays: the readers of
//! the snap crate go through a buffer of their own, and copying from there takes a fifth of the time.

use std::io;

use crate::tfrecord::masked_crc;

/// What a framed stream begins with.
const IDENTIFIER: &[u8] = b"sNaPpY";
/// Bytes of a frame's content, at most.
const MAX_FRAME_BYTES: usize = 1 << 16;
/// Snappy's densest element turns three bytes into 64.
const MAX_RATIO: u64 = 22;

/// Decompresses a framed stream (<https://github.com/google/snappy/blob/main/framing_format.txt>); `payload`
/// is written over and takes no more memory than the stream can fill, nor more than `limit` bytes.
/// `each` sees the payload so far after every frame.
pub(super) fn framed(
    stream: &[u8],
    limit: usize,
    payload: &mut Vec<u8>,
    each: &mut dyn FnMut(&[u8]),
) -> io::Result<()> {
    let room = announced(stream).min(stream.len().saturating_mul(MAX_RATIO as usize)).min(limit);
    payload.reserve_exact(room.saturating_sub(payload.len()));
    let (mut rest, mut length) = (stream, 0);
    while !rest.is_empty() {
        let first = rest.len() == stream.len();
        let (kind, body, after) = frame(rest)?;
        match kind {
            0xff if body == IDENTIFIER => {}
            0xff => return Err(broken("the stream's identifier is not snappy's")),
            _ if first => return Err(broken("the stream does not begin with snappy's identifier")),
            0x00 | 0x01 => {
                length += content(kind, body, length, limit, payload)?;
                each(&payload[..length]);
            }
            0x02..=0x7f => return Err(broken(&format!("a frame of unknown kind {kind:#04x}"))),
            // Padding, and kinds that a reader may pass over.
            0x80..=0xfe => {}
        }
        rest = after;
    }
    payload.truncate(length);
    Ok(())
}

/// Decompresses one raw block; `payload` is written over.
pub(super) fn raw(block: &[u8], limit: u64, payload: &mut Vec<u8>) -> io::Result<()> {
    // Memory is taken for what the block announces, so that number is checked first.
    let announced = snap::raw::decompress_len(block)? as u64;
    let possible = (block.len() as u64 * MAX_RATIO).min(limit);
    if announced > possible {
        let message = format!("announces {announced} bytes, but at most {possible} are possible");
        return Err(io::Error::other(message));
    }
    payload.resize(announced as usize, 0);
    snap::raw::Decoder::new().decompress(block, payload)?;
    Ok(())
}

/// What the frames say that they hold, so that the payload need not grow step by step.
fn announced(stream: &[u8]) -> usize {
    let (mut rest, mut total) = (stream, 0_usize);
    while let Ok((kind, body, after)) = frame(rest) {
        let data = body.get(4..).unwrap_or_default();
        let length = match kind {
            0x00 => snap::raw::decompress_len(data).unwrap_or(0),
            0x01 => data.len(),
            _ => 0,
        };
        total = total.saturating_add(length);
        rest = after;
    }
    total
}

/// The kind and body of the first frame, and what comes after it.
fn frame(stream: &[u8]) -> io::Result<(u8, &[u8], &[u8])> {
    let ended = || broken("the stream ends inside a frame");
    let (&[kind, a, b, c], rest) = stream.split_first_chunk::<4>().ok_or_else(ended)?;
    let length = u32::from_le_bytes([a, b, c, 0]) as usize;
    let (body, after) = rest.split_at_checked(length).ok_or_else(ended)?;
    Ok((kind, body, after))
}

/// Puts the content of a frame at `start` of the payload and gives its length.
fn content(
    kind: u8,
    body: &[u8],
    start: usize,
    limit: usize,
    payload: &mut Vec<u8>,
) -> io::Result<usize> {
    let (&checksum, data) =
        body.split_first_chunk::<4>().ok_or_else(|| broken("a frame without its checksum"))?;
    let length = if kind == 0 { snap::raw::decompress_len(data)? } else { data.len() };
    if length > MAX_FRAME_BYTES {
        return Err(broken(&format!("a frame of {length} bytes, but 65536 are the most")));
    }
    if length > limit - start {
        return Err(broken(&format!("more than {limit} bytes")));
    }
    if payload.len() < start + length {
        payload.resize(start + length, 0);
    }
    let out = &mut payload[start..start + length];
    match kind {
        0 => {
            snap::raw::Decoder::new().decompress(data, out)?;
        }
        _ => out.copy_from_slice(data),
    }
    let (found, expected) = (masked_crc(out), u32::from_le_bytes(checksum));
    if found != expected {
        let message = format!("a frame's checksum is {found:#010x}, but it says {expected:#010x}");
        return Err(broken(&message));
    }
    Ok(length)
}

fn broken(reason: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("snappy: {reason}"))
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use proptest::prelude::*;

    use super::*;

    fn packed(payload: &[u8]) -> Vec<u8> {
        let mut encoder = snap::write::FrameEncoder::new(Vec::new());
        encoder.write_all(payload).unwrap();
        encoder.into_inner().unwrap()
    }

    fn unpacked(stream: &[u8]) -> Result<Vec<u8>, String> {
        // What was there before must not show through.
        let mut payload = vec![9; 100];
        framed(stream, 1 << 20, &mut payload, &mut |_| ()).map_err(|error| error.to_string())?;
        Ok(payload)
    }

    #[test]
    fn broken_streams_say_what_is_wrong() {
        let check = |stream: &[u8], expected: &str| {
            assert_eq!(unpacked(stream), Err(format!("snappy: {expected}")));
        };
        let good = packed(b"abc");
        check(&good[..9], "the stream ends inside a frame");
        check(&good[10..], "the stream does not begin with snappy's identifier");
        check(b"\xff\x06\0\0sNaPpX", "the stream's identifier is not snappy's");
        check(&[&good[..10], b"\x02\0\0\0"].concat(), "a frame of unknown kind 0x02");
        check(&[&good[..10], b"\x01\x02\0\0ab"].concat(), "a frame without its checksum");
        check(
            &[&good[..10], b"\x01\x05\0\0\0\0\0\0x"].concat(),
            "a frame's checksum is 0x61aa3d50, but it says 0x00000000",
        );
        check(
            &[&good[..10], b"\0\x08\0\0\0\0\0\0\xff\xff\xff\x0f"].concat(),
            "a frame of 33554431 bytes, but 65536 are the most",
        );
        check(&packed(&vec![0; (1 << 20) + 1]), "more than 1048576 bytes");
    }

    #[test]
    fn padding_and_repeated_identifiers_are_passed_over() {
        let good = packed(b"abc");
        let stream = [&good[..], b"\xfe\x03\0\0???", &good[..], b"\x80\0\0\0"].concat();
        assert_eq!(unpacked(&stream).unwrap(), b"abcabc");
        assert_eq!(unpacked(&[]).unwrap(), b"");
    }

    /// The snap crate's own reader is what ours must agree with.
    fn reference(stream: &[u8]) -> Option<Vec<u8>> {
        let mut payload = Vec::new();
        snap::read::FrameDecoder::new(stream).read_to_end(&mut payload).ok()?;
        Some(payload)
    }

    proptest! {
        #[test]
        fn streams_of_others_are_read(byte: u8, runs in prop::collection::vec(0usize..90_000, 0..4)) {
            let payload: Vec<u8> =
                runs.iter().flat_map(|&run| (0..run).map(move |i| byte ^ (i % 251) as u8)).collect();
            prop_assert_eq!(unpacked(&packed(&payload)).unwrap(), payload);
        }

        #[test]
        fn damage_is_read_as_the_reference_reads_it(
            payload: Vec<u8>,
            at in any::<prop::sample::Index>(),
            byte: u8,
        ) {
            let mut stream = packed(&payload);
            if !stream.is_empty() {
                let at = at.index(stream.len());
                stream[at] = byte;
            }
            prop_assert_eq!(unpacked(&stream).ok(), reference(&stream));
        }
    }
}
