//! Bytes that are no requests, from somebody who knows the token: a bug or a worker that dies within
//! a frame. They cost a connection at most.

use std::time::Duration;

use salamander_net::{Cancel, Patience, Stream};
use salamander_ps::client::ClientOptions;
use salamander_ps::wire::{Code, Failure, Header, MessageKind, header};
use salamander_ps::{Mode, TableSpec, server};

use crate::cluster::{Cluster, LONG, Over};

struct Raw {
    stream: Stream,
    cancel: Cancel,
}

impl Raw {
    fn dial(cluster: &Cluster) -> Self {
        let cancel = Cancel::new();
        let patience = Patience::new(&cancel, LONG);
        let stream = Stream::dial(&cluster.endpoint(0), &cluster.keys, &patience);
        Self { stream: stream.expect("dialled"), cancel }
    }

    fn send(&self, bytes: &[u8]) {
        self.stream.send(&[bytes], &Patience::new(&self.cancel, LONG)).expect("sent");
    }

    /// The next answer, which has to be a failure.
    fn failure(&self) -> Failure {
        let patience = Patience::new(&self.cancel, LONG);
        let mut bytes = [0; header::LENGTH];
        self.stream.receive(&mut bytes, &patience).expect("an answer");
        let header = Header::decode(&bytes).expect("a header");
        assert_eq!(header.kind, MessageKind::Failed);
        let mut body = vec![0u64; header.length as usize / 8];
        self.stream.receive(bytemuck::cast_slice_mut(&mut body), &patience).expect("a body");
        Failure::decode(bytemuck::cast_slice(&body)).expect("a failure")
    }

    fn assert_closed(&self) {
        let patience = Patience::new(&self.cancel, LONG);
        match self.stream.receive(&mut [0], &patience) {
            Err(salamander_net::Error::Io(error)) => {
                assert_eq!(error.kind(), std::io::ErrorKind::UnexpectedEof);
            }
            other => panic!("{other:?}"),
        }
    }
}

fn cluster() -> Cluster {
    let silence = Duration::from_millis(100);
    let allowed =
        server::ServerOptions { silence, limit: 1 << 20, ..server::ServerOptions::default() };
    Cluster::with(1, Mode::Staged, Over::Unix, allowed)
}

fn assert_serves(cluster: &Cluster) {
    let mut client = cluster.client(ClientOptions::default());
    let table = client.declare(TableSpec::new("item", 4)).expect("declared");
    assert_eq!(client.pull(&[(table, &[1, 2])]).expect("pulled")[0].len(), 8);
}

#[test]
fn half_a_frame_and_silence_ends_the_connection() {
    let cluster = cluster();
    let head = Header { kind: MessageKind::Stage, bf16: false, tag: 0, number: 1, length: 4096 };
    for bytes in [head.encode()[..11].to_vec(), [&head.encode()[..], &[0; 100]].concat()] {
        let raw = Raw::dial(&cluster);
        raw.send(&bytes);
        raw.assert_closed();
    }
    assert_serves(&cluster);
}

#[test]
fn lengths_beyond_the_limit_are_refused_before_memory_is_taken() {
    let cluster = cluster();
    for length in [(1 << 20) + 1, 4 << 30, u64::MAX] {
        let raw = Raw::dial(&cluster);
        let header = Header { kind: MessageKind::Stage, bf16: false, tag: 0, number: 5, length };
        raw.send(&header.encode());
        assert_eq!(raw.failure().code, Code::TooLarge);
        raw.assert_closed();
    }
    // So are small requests for large answers.
    let mut client = cluster.client(ClientOptions::default());
    let table = client.declare(TableSpec::new("wide", 1 << 16)).expect("declared");
    let outcome = client.pull(&[(table, &[1, 2, 3, 4, 5])]);
    match outcome {
        Err(salamander_ps::client::Error::Refused { failure, .. }) => {
            assert_eq!(failure.code, Code::TooLarge);
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(client.pull(&[(table, &[1])]).expect("pulled")[0].len(), 1 << 16);
    assert_serves(&cluster);
}

#[test]
fn garbage_ends_the_connection_and_wrong_bodies_do_not() {
    let cluster = cluster();
    let raw = Raw::dial(&cluster);
    raw.send(&[0xff; 200]);
    raw.assert_closed();
    let raw = Raw::dial(&cluster);
    for kind in MessageKind::ALL {
        // No request has a body of two such words.
        let header = Header { kind, bf16: true, tag: 0, number: 9, length: 16 };
        raw.send(&[&header.encode()[..], &[0xff; 16]].concat());
        assert_eq!(raw.failure().code, Code::Malformed, "{kind:?}");
    }
    assert_serves(&cluster);
}

#[test]
fn connections_beyond_the_bound_are_closed_and_make_room_when_they_end() {
    let allowed = server::ServerOptions { connections: 2, ..server::ServerOptions::default() };
    let cluster = Cluster::with(1, Mode::Staged, Over::Unix, allowed);
    let kept = [Raw::dial(&cluster), Raw::dial(&cluster)];
    for raw in &kept {
        // It is served, and so counted.
        raw.send(&Header { number: 1, ..header_of(MessageKind::Failed) }.encode());
        assert_eq!(raw.failure().code, Code::Malformed);
    }
    Raw::dial(&cluster).assert_closed();
    drop(kept);
    assert_serves(&cluster);
}

#[test]
fn idle_connections_are_closed_and_clients_do_not_notice() {
    let idle = Duration::from_millis(20);
    let allowed = server::ServerOptions { idle, ..server::ServerOptions::default() };
    let cluster = Cluster::with(1, Mode::Staged, Over::Unix, allowed);
    let mut client = cluster.client(ClientOptions::default());
    Raw::dial(&cluster).assert_closed();
    client.ping().expect("it connects again");
}

fn header_of(kind: MessageKind) -> Header {
    Header { kind, bf16: false, tag: 0, number: 0, length: 0 }
}
