//! Authenticated bulk connections between workers, and the AllReduce over them.
//!
//! Workers of one *generation* form a [`Ring`]: they sum gradients, gather small messages and hand
//! a state on. On one host they do it through shared memory, otherwise over TCP. The control plane
//! says who is a member; this crate finds out who has gone, and tells it with [`Error::Lost`]. It
//! uses plain threads and sockets, so that nothing else of a worker can slow an exchange down.
//!
//! ```
//! use salamander_net::{Cancel, Listener, RingOptions, Ring, Token};
//!
//! let token = Token::random()?;
//! let listener = Listener::bind("127.0.0.1:0".parse().expect("an address"), token)?;
//! let members = [listener.endpoint()];
//! let mut ring = Ring::connect(&listener, 1, 0, &members, &RingOptions::default(), &Cancel::new())?;
//! ring.bucket(3)?.copy_from_slice(&[1.0, 2.0, 3.0]);
//! assert_eq!(ring.all_reduce(3)?, &[1.0, 2.0, 3.0]);
//! # Ok::<(), salamander_net::Error>(())
//! ```
//!
//! # Layout
//! - [`Ring`] (`ring`): the collectives; connects a generation and picks the transport
//! - `shared`: the collectives in shared memory; `shared::segment` has the only `unsafe` code
//! - `wire`: the collectives round a ring of TCP or Unix sockets
//! - [`Fold`] (`fold`): in which order the parts of all members are added up
//! - [`Listener`] (`listener`, `waiting_room`): accepts connections and keeps them until asked for;
//!   [`Refusals`] says in the log who was refused; [`Backoff`] and [`retry()`] try again
//! - [`Stream`] (`stream`): a connection for anything else, such as a parameter server's rows
//! - [`tls`]: encrypted connections between hosts, with an authority per job
//! - [`handshake`], [`frame`]: what travels ahead of data, as pure functions over bytes
//! - `connect`, `dial`, `socket`: who calls whom; connecting; sockets that can be cancelled
//! - `kernel`, [`bf16`]: sums and conversions of slices with the widest instructions that the CPU has
//! - [`Endpoint`], [`Keys`], [`Token`], [`Cancel`], [`Patience`], [`Error`]: addresses, the job's secret, giving
//!   up, failing

#[cfg(target_endian = "big")]
compile_error!("the wire format is the memory of little-endian machines");

pub mod bf16;
mod cancel;
mod connect;
mod dial;
pub mod endpoint;
mod error;
mod fold;
pub mod frame;
pub mod handshake;
mod kernel;
mod keys;
mod listener;
mod refusals;
mod retry;
mod ring;
mod shared;
mod socket;
mod stream;
pub mod tls;
mod token;
mod waiting_room;
mod wire;

pub use cancel::{Cancel, Patience};
pub use endpoint::Endpoint;
pub use error::Error;
pub use fold::Fold;
pub use keys::Keys;
pub use listener::Listener;
pub use refusals::Refusals;
pub use retry::{Backoff, retry};
pub use ring::{Ring, RingOptions, Transport};
pub use stream::Stream;
pub use tls::Tls;
pub use token::{Token, random_number};
