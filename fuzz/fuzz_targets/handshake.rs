//! What strangers can send to a worker's port: the handshake, and the texts and headers around it.
//! The first byte says in which pieces the bytes come.
#![no_main]

use libfuzzer_sys::fuzz_target;
use salamander_net::handshake::{ClientHandshake, ConnectionKind, NONCE, Purpose, ServerHandshake, ServerStep};
use salamander_net::{Endpoint, Token, frame};

fuzz_target!(|bytes: &[u8]| {
    let Some((&piece, bytes)) = bytes.split_first() else { return };
    let token = Token::from_hex(&"5a".repeat(32)).expect("a token");
    let mut server = ServerHandshake::new(token.clone(), [7; NONCE]);
    let mut rest = bytes;
    while !rest.is_empty() && !server.space().is_empty() {
        let space = server.space();
        let count = space.len().min(rest.len()).min(usize::from(piece).max(1));
        space[..count].copy_from_slice(&rest[..count]);
        rest = &rest[count..];
        match server.received(count) {
            Ok(ServerStep::Proven(_)) => panic!("nobody proves a token that it does not know"),
            Ok(_) => {}
            Err(_) => break,
        }
    }
    if let Some(header) = bytes.first_chunk::<{ frame::LENGTH }>()
        && let Ok(frame) = frame::Frame::decode(header)
    {
        assert_eq!(frame.encode(), *header, "a header has one form");
    }
    if let Some(challenge) = bytes.first_chunk() {
        let purpose =
            Purpose { generation: 1, rank: 0, size: 1, link: ConnectionKind::Ring, bf16: false };
        let client = ClientHandshake::new(&token, &purpose, &[9; NONCE]);
        assert!(client.answer(challenge).is_err(), "no server without the token is believed");
    }
    if let Ok(text) = std::str::from_utf8(bytes)
        && let Ok(endpoint) = text.parse::<Endpoint>()
    {
        assert_eq!(endpoint.to_string().parse(), Ok(endpoint), "an endpoint's text is read back");
    }
});
