//! How both ends of a new connection prove that they know the token, without sending it.
//!
//! The client says hello with a nonce and its purpose; the server answers with its own nonce and
//! a keyed hash over all that; the client answers with another. Nonces are fresh, so nothing can
//! be replayed, and each side's proof is labelled, so none can be reflected. All messages have fixed
//! lengths: there is no length to lie about. No I/O happens here, so that any bytes can be tried.

use crate::token::random_bytes;
use crate::{Token, tls};

/// Bytes of the client's first message.
pub const HELLO: usize = 64;
/// Bytes of the server's answer.
pub const CHALLENGE: usize = 64;
/// Bytes of the client's proof.
pub const PROOF: usize = 32;
/// Bytes of each side's nonce.
pub const NONCE: usize = 32;

/// The first bytes of a client's first message.
pub const MAGIC: [u8; 8] = *b"salamnet";

/// Bytes that nobody has sent before, for one connection.
pub fn nonce() -> Result<[u8; NONCE], crate::Error> {
    random_bytes()
}

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Purpose {
    /// The generation that the client wants to be connected for.
    pub generation: u64,
    /// The client's rank in it.
    pub rank: u32,
    /// How many members it has.
    pub size: u32,
    /// What will travel.
    pub link: ConnectionKind,
    /// Whether sums travel in 16 bits.
    pub bf16: bool,
}

/// What travels on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionKind {
    /// The client's part of a ring: data to its right neighbour.
    Ring = 1,
    /// Descriptors of shared memory.
    Mesh = 2,
    /// Whatever the two sides agreed on; see [`crate::Stream`].
    Stream = 3,
    /// Parts of sums between two members of a ring that are not neighbours.
    Direct = 4,
}

/// Why a connection is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Error {
    /// The first bytes are something else.
    #[error("it does not speak this protocol")]
    Magic,
    /// A TLS client at a port without TLS.
    #[error("{}", tls::Error::unwanted())]
    Tls,
    /// The purpose makes no sense.
    #[error("its purpose makes no sense")]
    Purpose,
    /// The proof is wrong.
    #[error("it does not know the token")]
    Proof,
}

/// What the server says to a client that has proven itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandshakeVerdict {
    /// Data may follow.
    Accepted = 1,
    /// The generation is over.
    OldGeneration = 2,
    /// Too many connections wait already.
    NoRoom = 3,
}

/// The client's side.
pub struct ClientHandshake<'a> {
    token: &'a Token,
    hello: [u8; HELLO],
}

impl<'a> ClientHandshake<'a> {
    /// A client with a fresh nonce.
    pub fn new(token: &'a Token, purpose: &Purpose, nonce: &[u8; NONCE]) -> Self {
        let mut hello = [0; HELLO];
        hello[..8].copy_from_slice(&MAGIC);
        hello[8..40].copy_from_slice(nonce);
        hello[40..].copy_from_slice(&purpose.encode());
        Self { token, hello }
    }

    /// The first message.
    pub fn hello(&self) -> &[u8; HELLO] {
        &self.hello
    }

    /// Checks the server's proof, and gives the client's.
    pub fn answer(&self, challenge: &[u8; CHALLENGE]) -> Result<[u8; PROOF], Error> {
        let (nonce, proof) = challenge.split_at(NONCE);
        if self.token.prove(&[b"server", &self.hello, nonce]) != *as_proof(proof) {
            return Err(Error::Proof);
        }
        Ok(*self.token.prove(&[b"client", &self.hello, nonce]).as_bytes())
    }
}

/// The server's side: bytes go in, and what to do comes out.
pub struct ServerHandshake {
    token: Token,
    nonce: [u8; NONCE],
    hello: [u8; HELLO],
    proof: [u8; PROOF],
    received: usize,
}

/// What to do after some bytes.
#[derive(Debug, PartialEq, Eq)]
pub enum ServerStep {
    /// Wait for more.
    More,
    /// Send this.
    Reply([u8; CHALLENGE]),
    /// The client has proven itself.
    Proven(Purpose),
}

impl ServerHandshake {
    /// A server with a fresh nonce.
    pub fn new(token: Token, nonce: [u8; NONCE]) -> Self {
        Self { token, nonce, hello: [0; HELLO], proof: [0; PROOF], received: 0 }
    }

    /// Where the next bytes go; never more than the message that is due, so that what the client
    /// sends afterwards stays in the socket. Empty once all is said.
    pub fn space(&mut self) -> &mut [u8] {
        if self.received < HELLO {
            &mut self.hello[self.received..]
        } else {
            &mut self.proof[self.received - HELLO..]
        }
    }

    /// Takes notice of `count` bytes that were put into [`ServerHandshake::space`].
    pub fn received(&mut self, count: usize) -> Result<ServerStep, Error> {
        self.received += count.min(self.space().len());
        let magic = self.received.min(MAGIC.len());
        if self.hello[..magic] != MAGIC[..magic] {
            let is_tls = self.hello[0] == tls::HANDSHAKE;
            return Err(if is_tls { Error::Tls } else { Error::Magic });
        }
        if self.received == HELLO {
            Purpose::decode(&self.hello)?;
            let mut challenge = [0; CHALLENGE];
            challenge[..NONCE].copy_from_slice(&self.nonce);
            let proof = self.token.prove(&[b"server", &self.hello, &self.nonce]);
            challenge[NONCE..].copy_from_slice(proof.as_bytes());
            return Ok(ServerStep::Reply(challenge));
        }
        if self.received < HELLO + PROOF {
            return Ok(ServerStep::More);
        }
        if self.token.prove(&[b"client", &self.hello, &self.nonce]) != *as_proof(&self.proof) {
            return Err(Error::Proof);
        }
        Ok(ServerStep::Proven(Purpose::decode(&self.hello)?))
    }
}

impl Purpose {
    /// The purpose of every [`crate::Stream`]: streams belong to no generation.
    pub const STREAM: Self =
        Self { generation: 0, rank: 0, size: 1, link: ConnectionKind::Stream, bf16: false };

    fn encode(&self) -> [u8; 24] {
        let mut bytes = [0; 24];
        bytes[..8].copy_from_slice(&self.generation.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.rank.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.size.to_le_bytes());
        bytes[16] = self.link as u8;
        bytes[17] = self.bf16.into();
        bytes
    }

    fn decode(hello: &[u8; HELLO]) -> Result<Self, Error> {
        let number = |at: usize| {
            u32::from_le_bytes([hello[at], hello[at + 1], hello[at + 2], hello[at + 3]])
        };
        let members = [ConnectionKind::Ring, ConnectionKind::Mesh, ConnectionKind::Direct];
        let mut links = members.into_iter().chain([ConnectionKind::Stream]);
        let link = links.find(|link| *link as u8 == hello[56]).ok_or(Error::Purpose)?;
        let generation = u64::from(number(40)) | u64::from(number(44)) << 32;
        let (rank, size, bf16) = (number(48), number(52), hello[57] == 1);
        let purpose = Self { generation, rank, size, link, bf16 };
        // What is not used must be zero, so that a purpose has one form only.
        let is_exact = purpose.encode() == hello[40..];
        let makes_sense = link != ConnectionKind::Stream || purpose == Self::STREAM;
        if rank < size && is_exact && makes_sense { Ok(purpose) } else { Err(Error::Purpose) }
    }
}

impl HandshakeVerdict {
    /// As it travels.
    pub fn encode(self) -> u8 {
        self as u8
    }

    /// Reads what [`HandshakeVerdict::encode`] wrote.
    pub fn decode(byte: u8) -> Option<Self> {
        [Self::Accepted, Self::OldGeneration, Self::NoRoom]
            .into_iter()
            .find(|verdict| verdict.encode() == byte)
    }
}

/// For a comparison with a hash, which takes the same time wherever they differ.
fn as_proof(bytes: &[u8]) -> &[u8; PROOF] {
    bytes.try_into().expect("a proof has the length of a hash")
}

#[cfg(test)]
mod tests;
