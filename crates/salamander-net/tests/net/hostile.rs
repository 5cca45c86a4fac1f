//! Connections that are none of ours are refused, and disturb nobody.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use salamander_net::handshake::{
    ClientHandshake, ConnectionKind, HandshakeVerdict, NONCE, Purpose,
};
use salamander_net::{Cancel, Error, Listener, Ring, Token};

use crate::group::{Group, Way, keys, listener};

/// Far less than the timeout of silence.
const AT_ONCE: Duration = Duration::from_secs(1);

/// Whether something is done at once, in one of some tries: a busy machine may hold up any of them.
fn is_at_once(mut done: impl FnMut() -> Duration) -> bool {
    (0..5).any(|_| done() < AT_ONCE)
}

/// Reads until the other side closes; how long it took.
fn wait_for_end(mut stream: impl Read) -> Duration {
    let start = Instant::now();
    let mut bytes = Vec::new();
    // A reset is as good an end as any.
    let _ = stream.read_to_end(&mut bytes);
    start.elapsed()
}

fn tcp(listener: &Listener) -> TcpStream {
    let stream = TcpStream::connect(listener.endpoint().tcp).expect("it listens");
    stream.set_read_timeout(Some(Duration::from_secs(120))).expect("a timeout");
    stream
}

fn unix(listener: &Listener) -> UnixStream {
    let name = listener.endpoint().unix;
    let address = std::os::unix::net::SocketAddr::from_abstract_name(name).expect("a name");
    UnixStream::connect_addr(&address).expect("it listens")
}

fn purpose(generation: u64) -> Purpose {
    Purpose { generation, rank: 1, size: 2, link: ConnectionKind::Ring, bf16: false }
}

/// Says hello and proves the token; what the listener thinks of it.
fn introduce(
    stream: &mut (impl Read + Write),
    token: &Token,
    generation: u64,
) -> Option<HandshakeVerdict> {
    let client = ClientHandshake::new(token, &purpose(generation), &[7; NONCE]);
    stream.write_all(client.hello()).ok()?;
    let mut challenge = [0; 64];
    stream.read_exact(&mut challenge).ok()?;
    stream.write_all(&client.answer(&challenge).ok()?).ok()?;
    let mut verdict = [0];
    stream.read_exact(&mut verdict).ok()?;
    HandshakeVerdict::decode(verdict[0])
}

#[test]
fn wrong_bytes_are_refused_at_once() {
    let listener = listener(&keys(Way::Tcp));
    let garbage: [&[u8]; 4] = [
        b"GET / HTTP/1.1\r\n\r\n",
        &[0xff; 4096],
        // A length of 4 GB and of far more, where other protocols have one.
        &[0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0],
        b"salamnet-but-not-really-and-with-a-purpose-that-makes-no-sense--and-more",
    ];
    for bytes in garbage {
        assert!(is_at_once(|| {
            let mut stream = tcp(&listener);
            stream.write_all(bytes).expect("it listens");
            wait_for_end(stream)
        }));
        assert!(is_at_once(|| {
            let mut stream = unix(&listener);
            stream.write_all(bytes).expect("it listens");
            wait_for_end(stream)
        }));
    }
}

#[test]
fn wrong_token_is_refused_on_both_sides() {
    let group = Group::new(2, Way::Tcp);
    let stranger = Token::random().expect("randomness");
    let listener = &group.listeners[0];
    assert_eq!(introduce(&mut tcp(listener), &stranger, 1), None);
    assert_eq!(introduce(&mut unix(listener), &stranger, 1), None);
    // A client that answers anything is not let in either.
    assert!(is_at_once(|| {
        let mut stream = tcp(listener);
        let client = ClientHandshake::new(&stranger, &purpose(1), &[7; NONCE]);
        stream.write_all(client.hello()).expect("it listens");
        stream.read_exact(&mut [0; 64]).expect("a challenge");
        stream.write_all(&[9; 32]).expect("it listens");
        wait_for_end(stream)
    }));
    let other = crate::group::listener(&stranger.into());
    let members = [group.members[0].clone(), other.endpoint()];
    let outcome = Ring::connect(&other, 1, 1, &members, &group.options, &Cancel::new()).map(drop);
    assert!(matches!(outcome, Err(Error::Refused(_))), "{outcome:?}");
}

#[test]
fn silence_ends_after_a_deadline_and_holds_up_nobody() {
    let keys = keys(Way::Tcp);
    let (listener, token) = (listener(&keys), keys.token);
    let silent: Vec<_> = (0..10).map(|_| tcp(&listener)).collect();
    let mut half = tcp(&listener);
    half.write_all(b"salamnet").expect("it listens");
    assert_eq!(introduce(&mut tcp(&listener), &token, 1), Some(HandshakeVerdict::Accepted));
    // Before any of the silent ones was given up.
    half.set_nonblocking(true).expect("an option");
    let still_there = half.read(&mut [0]).expect_err("nothing was said");
    assert_eq!(still_there.kind(), std::io::ErrorKind::WouldBlock);
    half.set_nonblocking(false).expect("an option");
    // Less than it is read for: one that is not closed takes longer.
    assert!(wait_for_end(half) < Duration::from_secs(60));
    for stream in silent {
        wait_for_end(stream);
    }
}

#[test]
fn flood_of_silent_connections_lets_a_member_in() {
    let keys = keys(Way::Tcp);
    let (listener, token) = (listener(&keys), keys.token);
    let silent: Vec<_> = (0..200).map(|_| unix(&listener)).collect();
    assert_eq!(introduce(&mut tcp(&listener), &token, 1), Some(HandshakeVerdict::Accepted));
    drop(silent);
}

#[test]
fn old_generation_is_refused() {
    let group = Group::new(2, Way::Tcp);
    let listener = &group.listeners[0];
    listener.fence(5);
    let verdict = introduce(&mut tcp(listener), &group.keys.token, 4);
    assert_eq!(verdict, Some(HandshakeVerdict::OldGeneration));
    let outcome = group.connect(4, 1, &Cancel::new()).map(drop);
    assert!(matches!(outcome, Err(Error::Refused(_))), "{outcome:?}");
    let outcome = group.connect(4, 0, &Cancel::new()).map(drop);
    assert!(matches!(outcome, Err(Error::Refused(_))), "{outcome:?}");
}

#[test]
fn early_member_of_a_later_generation_is_kept() {
    for way in [Way::Shm, Way::Tcp] {
        let group = Group::new(2, way);
        std::thread::scope(|scope| {
            let early = scope.spawn(|| {
                let mut ring = group.connect(9, 1, &Cancel::new()).expect("connected");
                ring.all_gather(b"early").expect("gathered")
            });
            std::thread::sleep(Duration::from_millis(30));
            group.listeners[0].fence(9);
            let mut ring = group.connect(9, 0, &Cancel::new()).expect("connected");
            let gathered = ring.all_gather(b"late").expect("gathered");
            assert_eq!(gathered, [b"late".to_vec(), b"early".to_vec()]);
            assert_eq!(early.join().expect("no panic"), gathered);
        });
    }
}

#[test]
fn other_options_are_a_mismatch() {
    let group = Group::new(2, Way::Tcp);
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            let options = salamander_net::RingOptions { bf16: true, ..group.options.clone() };
            let listener = &group.listeners[1];
            Ring::connect(listener, 1, 1, &group.members, &options, &Cancel::new()).map(drop)
        });
        let mine = group.connect(1, 0, &Cancel::new()).map(drop);
        assert!(matches!(mine, Err(Error::Mismatch(_) | Error::Lost { .. })), "{mine:?}");
        let other = other.join().expect("no panic");
        assert!(matches!(other, Err(Error::Mismatch(_) | Error::Lost { .. })), "{other:?}");
    });
}

#[test]
fn running_ring_is_not_disturbed() {
    for way in [Way::Shm, Way::Tcp] {
        let group = Group::new(2, way);
        let connected = std::sync::Barrier::new(3);
        let strangers = || {
            connected.wait();
            for _ in 0..20 {
                let mut stream = tcp(&group.listeners[0]);
                let _ = stream.write_all(&[0xff; 100]);
                let wrong = Token::random().expect("randomness");
                introduce(&mut unix(&group.listeners[1]), &wrong, 1);
                // Who knows the token can take no place in a ring that is connected.
                introduce(&mut tcp(&group.listeners[0]), &group.keys.token, 1);
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(strangers);
            group.run(1, |mut ring| {
                connected.wait();
                for _ in 0..200 {
                    ring.bucket(5000).expect("a bucket").fill(1.0);
                    let sums = ring.all_reduce(5000).expect("undisturbed");
                    assert!(sums.iter().all(|sum| *sum == 2.0));
                }
            });
        });
    }
}
