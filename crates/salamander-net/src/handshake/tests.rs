//! Handshakes over plain memory: right ones in any cut, and wrong ones of every kind.

use proptest::prelude::*;

use super::*;

fn purpose() -> impl Strategy<Value = Purpose> {
    (any::<u64>(), any::<u32>(), any::<bool>(), any::<bool>())
        .prop_map(|(generation, rank, ring, bf16)| {
            let link = if ring { ConnectionKind::Ring } else { ConnectionKind::Mesh };
            Purpose { generation, rank: rank / 2, size: rank / 2 + 1, link, bf16 }
        })
        .boxed()
        .prop_union(Just(Purpose::STREAM).boxed())
}

/// Puts bytes into the server in pieces of a length; stops at the first answer that is not `More`.
fn feed(server: &mut ServerHandshake, mut bytes: &[u8], piece: usize) -> Result<ServerStep, Error> {
    while !bytes.is_empty() {
        let space = server.space();
        let count = piece.min(space.len()).min(bytes.len());
        if count == 0 {
            break;
        }
        space[..count].copy_from_slice(&bytes[..count]);
        bytes = &bytes[count..];
        match server.received(count)? {
            ServerStep::More => {}
            progress => return Ok(progress),
        }
    }
    Ok(ServerStep::More)
}

fn token(byte: &str) -> Token {
    Token::from_hex(&byte.repeat(32)).expect("a token")
}

proptest! {
    #[test]
    fn same_token_is_proven_in_any_pieces(purpose in purpose(), piece in 1usize..100) {
        let token = token("5a");
        let client = ClientHandshake::new(&token, &purpose, &[1; NONCE]);
        let mut server = ServerHandshake::new(token.clone(), [2; NONCE]);
        let Ok(ServerStep::Reply(challenge)) = feed(&mut server, client.hello(), piece) else {
            panic!("no challenge");
        };
        let answer = client.answer(&challenge).expect("the server knows the token");
        prop_assert_eq!(feed(&mut server, &answer, piece), Ok(ServerStep::Proven(purpose)));
        prop_assert!(server.space().is_empty());
    }

    #[test]
    fn other_token_is_refused_by_both(purpose in purpose()) {
        let (mine, other) = (token("5a"), token("5b"));
        let client = ClientHandshake::new(&other, &purpose, &[1; NONCE]);
        let mut server = ServerHandshake::new(mine, [2; NONCE]);
        let Ok(ServerStep::Reply(challenge)) = feed(&mut server, client.hello(), 64) else {
            panic!("no challenge");
        };
        prop_assert_eq!(client.answer(&challenge), Err(Error::Proof));
        // A client that does not care who it talks to gets no further.
        prop_assert_eq!(feed(&mut server, &[3; PROOF], 64), Err(Error::Proof));
    }

    #[test]
    fn any_bytes_end_without_panic(bytes: Vec<u8>, piece in 1usize..100) {
        let mut server = ServerHandshake::new(token("5a"), [2; NONCE]);
        let outcome = feed(&mut server, &bytes, piece);
        prop_assert!(!matches!(outcome, Ok(ServerStep::Proven(_))));
    }

    #[test]
    fn changed_hello_is_refused(purpose in purpose(), at in 8usize..HELLO, flip in 1u8..) {
        let token = token("5a");
        let client = ClientHandshake::new(&token, &purpose, &[1; NONCE]);
        let mut server = ServerHandshake::new(token.clone(), [2; NONCE]);
        let mut hello = *client.hello();
        hello[at] ^= flip;
        match feed(&mut server, &hello, 64) {
            Ok(ServerStep::Reply(challenge)) => {
                prop_assert_eq!(client.answer(&challenge), Err(Error::Proof));
            }
            outcome => prop_assert_eq!(outcome, Err(Error::Purpose)),
        }
    }
}

#[test]
fn stream_of_a_generation_makes_no_sense() {
    let token = token("5a");
    let purpose = Purpose { generation: 1, ..Purpose::STREAM };
    let client = ClientHandshake::new(&token, &purpose, &[1; NONCE]);
    let mut server = ServerHandshake::new(token.clone(), [2; NONCE]);
    assert_eq!(feed(&mut server, client.hello(), 64), Err(Error::Purpose));
}

#[test]
fn proof_cannot_be_reflected() {
    let token = token("5a");
    let purpose =
        Purpose { generation: 1, rank: 0, size: 1, link: ConnectionKind::Ring, bf16: false };
    let client = ClientHandshake::new(&token, &purpose, &[1; NONCE]);
    let mut server = ServerHandshake::new(token.clone(), [2; NONCE]);
    let Ok(ServerStep::Reply(challenge)) = feed(&mut server, client.hello(), 64) else {
        panic!("no challenge");
    };
    assert_eq!(feed(&mut server, &challenge[NONCE..], 64), Err(Error::Proof));
}

#[test]
fn garbage_is_refused_at_its_first_wrong_byte() {
    let mut server = ServerHandshake::new(token("5a"), [2; NONCE]);
    assert_eq!(feed(&mut server, b"s", 1), Ok(ServerStep::More));
    assert_eq!(feed(&mut server, b"G", 1), Err(Error::Magic));
}

#[test]
fn verdicts_survive_the_wire() {
    for verdict in
        [HandshakeVerdict::Accepted, HandshakeVerdict::OldGeneration, HandshakeVerdict::NoRoom]
    {
        assert_eq!(HandshakeVerdict::decode(verdict.encode()), Some(verdict));
    }
    assert_eq!(HandshakeVerdict::decode(0), None);
}
