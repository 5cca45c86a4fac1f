//! Streams: bytes of any length over both transports, deadlines, ends, and who is let in.

use std::time::Duration;

use salamander_net::{Cancel, Endpoint, Error, Keys, Listener, Patience, Stream, Token};

use crate::group::{Way, keys, listener};

/// Longer than any test takes.
const LONG: Duration = Duration::from_secs(30);

/// A listener over a Unix socket, over TCP and over TLS.
fn places() -> [(Keys, Listener, Endpoint); 3] {
    [(Way::Shm, true), (Way::Tcp, false), (Way::Tls, false)].map(|(way, is_near)| {
        let keys = keys(way);
        let listener = listener(&keys);
        let near = listener.endpoint();
        let far = Endpoint { host: "elsewhere".to_string(), ..near.clone() };
        (keys, listener, if is_near { near } else { far })
    })
}

/// Both ends of a stream.
fn pair(listener: &Listener, endpoint: &Endpoint, keys: &Keys) -> (Stream, Stream) {
    let cancel = Cancel::new();
    let there = Stream::dial(endpoint, keys, &Patience::new(&cancel, LONG)).expect("dialled");
    (there, listener.accept(&cancel).expect("accepted"))
}

#[test]
fn parts_of_any_length_arrive_in_order() {
    let lengths = [0, 1, 0, 7, 3_000_000, 40, 0];
    let bytes: Vec<u8> =
        (0..lengths.iter().sum()).map(|at: usize| ((at * 31) >> 3) as u8).collect();
    for (keys, listener, endpoint) in places() {
        let (there, here) = pair(&listener, &endpoint, &keys);
        let mut rest = &bytes[..];
        // More parts than the system takes at once.
        let mut parts = vec![&rest[..0]; 1500];
        for length in lengths {
            let (part, others) = rest.split_at(length);
            parts.push(part);
            rest = others;
        }
        let received = std::thread::scope(|scope| {
            let cancel = Cancel::new();
            scope.spawn(move || {
                there.send(&parts, &Patience::new(&Cancel::new(), LONG)).expect("sent");
            });
            let mut received = vec![0; bytes.len()];
            let (front, back) = received.split_at_mut(17);
            here.receive(front, &Patience::new(&cancel, LONG)).expect("received");
            here.receive(back, &Patience::new(&cancel, LONG)).expect("received");
            received
        });
        assert!(received == bytes);
    }
}

#[test]
fn waits_end_at_the_deadline_and_when_cancelled() {
    for (keys, listener, endpoint) in places() {
        let (there, here) = pair(&listener, &endpoint, &keys);
        let cancel = Cancel::new();
        let soon = Patience::new(&cancel, Duration::from_millis(20));
        let timed_out = |outcome: Result<(), Error>| match outcome {
            Err(Error::Io(error)) => assert_eq!(error.kind(), std::io::ErrorKind::TimedOut),
            other => panic!("{other:?}"),
        };
        there.send(&[b"half"], &soon).expect("sent");
        timed_out(here.receive(&mut [0; 8], &soon));
        let soon = Patience::new(&cancel, Duration::from_millis(20));
        timed_out(here.send(&[&vec![0; 64 << 20]], &soon));
        assert!(!here.wait(Duration::from_millis(1)).expect("no error"));
        cancel.cancel();
        let outcome = here.receive(&mut [0; 8], &Patience::new(&cancel, LONG));
        assert!(matches!(outcome, Err(Error::Cancelled)), "{outcome:?}");
    }
}

#[test]
fn end_of_the_other_side_is_noticed() {
    let cancel = Cancel::new();
    let long = Patience::new(&cancel, LONG);
    for (keys, listener, endpoint) in places() {
        let (there, here) = pair(&listener, &endpoint, &keys);
        assert!(!here.has_ended());
        drop(there);
        assert!(here.wait(LONG).expect("no error"));
        assert!(here.has_ended());
        assert!(here.receive(&mut [0], &long).is_err());
        // What one thread closes, another one sees.
        let (_there, here) = pair(&listener, &endpoint, &keys);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| here.wait(LONG));
            here.close();
            assert!(waiting.join().expect("no panic").expect("no error"));
        });
        assert!(here.send(&[b"more"], &long).is_err());
    }
}

#[test]
fn stranger_gets_no_stream() {
    for (own, listener, endpoint) in places() {
        let cancel = Cancel::new();
        // With the same certificates, and another token inside.
        let stranger = Keys { token: Token::random().expect("randomness"), ..own };
        let outcome = Stream::dial(&endpoint, &stranger, &Patience::new(&cancel, LONG));
        assert!(matches!(outcome, Err(Error::Refused(_))), "{outcome:?}");
        cancel.cancel();
        let outcome = listener.accept(&cancel);
        assert!(matches!(outcome, Err(Error::Cancelled)), "{outcome:?}");
    }
}

#[test]
fn fence_of_generations_does_not_end_streams() {
    let keys = keys(Way::Tls);
    let listener = listener(&keys);
    let cancel = Cancel::new();
    let long = Patience::new(&cancel, LONG);
    listener.fence(7);
    let early = Stream::dial(&listener.endpoint(), &keys, &long).expect("dialled");
    listener.fence(8);
    let here = listener.accept(&cancel).expect("accepted");
    early.send(&[b"x"], &long).expect("sent");
    here.receive(&mut [0], &long).expect("received");
}

#[test]
fn listener_that_was_started_again_on_its_port_is_found() {
    let keys = keys(Way::Tls);
    let first = listener(&keys);
    let endpoint = first.endpoint();
    drop(first);
    let second = Listener::bind(endpoint.tcp, keys.clone()).expect("the port is free again");
    let _streams = pair(&second, &endpoint, &keys);
}

#[test]
fn nobody_there_is_an_error() {
    let keys = keys(Way::Tls);
    let cancel = Cancel::new();
    let gone = listener(&keys).endpoint();
    for endpoint in [gone.clone(), Endpoint { host: "elsewhere".to_string(), ..gone }] {
        let outcome = Stream::dial(&endpoint, &keys, &Patience::new(&cancel, LONG));
        assert!(matches!(outcome, Err(Error::Io(_))), "{outcome:?}");
    }
}
