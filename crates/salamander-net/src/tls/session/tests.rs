//! Two sessions over a pair of small sockets: every byte arrives once and in order, also when keys are renewed.

use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use proptest::prelude::*;
use rustix::net::sockopt;
use rustls::crypto::{CipherSuiteCommon, CryptoProvider, ring};
use rustls::{SupportedCipherSuite, Tls13CipherSuite};

use super::*;
use crate::tls::{Files, Tls};

struct End {
    session: TlsSession,
    socket: UnixStream,
}

impl End {
    fn shake_hands(&mut self) -> HandshakeStep {
        self.session.shake_hands(self.socket.as_fd()).expect("it fits")
    }
}

/// Both ends of a connection, hands shaken.
fn pair(provider: CryptoProvider) -> [End; 2] {
    let files = Files::create().expect("certificates");
    let tls = Tls::with(&files, provider).expect("certificates");
    let (near, far) = UnixStream::pair().expect("a pair");
    for socket in [&near, &far] {
        sockopt::set_socket_send_buffer_size(socket, 20_000).expect("an option");
    }
    let mut ends = [
        End { session: tls.call().expect("a session"), socket: near },
        End { session: tls.be_called().expect("a session"), socket: far },
    ];
    while ends.each_mut().map(End::shake_hands) != [HandshakeStep::Done; 2] {}
    ends
}

/// Keys that last for a few records only.
fn frugal() -> CryptoProvider {
    let SupportedCipherSuite::Tls13(suite) = ring::cipher_suite::TLS13_AES_128_GCM_SHA256 else {
        panic!("a suite of TLS 1.3");
    };
    let Tls13CipherSuite { ref common, hkdf_provider, aead_alg, quic } = *suite;
    let (suite, hash_provider) = (common.suite, common.hash_provider);
    let common = CipherSuiteCommon { suite, hash_provider, confidentiality_limit: 20 };
    let suite = Tls13CipherSuite { common, hkdf_provider, aead_alg, quic };
    let cipher_suites = vec![SupportedCipherSuite::Tls13(Box::leak(Box::new(suite)))];
    CryptoProvider { cipher_suites, ..ring::default_provider() }
}

/// Sends bytes in pieces of some length and receives them in pieces of another.
fn pass(from: &mut End, to: &mut End, bytes: &[u8], (out, into): (usize, usize)) {
    let (mut sent, mut received) = (0, Vec::<u8>::new());
    let mut space = vec![0; into];
    while received.len() < bytes.len() {
        let offered = &bytes[sent..bytes.len().min(sent + out)];
        let (head, body) = offered.split_at(offered.len() / 3);
        let parts = [IoSlice::new(head), IoSlice::new(&[]), IoSlice::new(body)];
        if !offered.is_empty() {
            sent += from.session.send(from.socket.as_fd(), &parts).expect("sent");
        }
        match to.session.receive(to.socket.as_fd(), &mut space).expect("received") {
            Received::Bytes(count) => received.extend(&space[..count]),
            Received::Nothing => {}
            Received::End => panic!("it ended"),
        }
    }
    assert!(received == bytes);
    assert_eq!(sent, bytes.len());
    assert!(!to.session.has_more());
}

fn some_bytes(length: usize) -> Vec<u8> {
    (0..length).map(|at| ((at * 31) >> 3) as u8).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20))]
    #[test]
    fn bytes_arrive_in_any_pieces(
        length in 1usize..500_000, out in 1000usize..400_000, into in 1000usize..400_000,
    ) {
        let [mut near, mut far] = pair(crate::tls::provider());
        pass(&mut near, &mut far, &some_bytes(length), (out, into));
        pass(&mut far, &mut near, &some_bytes(length / 2 + 1), (into, out));
    }
}

#[test]
fn keys_are_renewed_on_the_way() {
    let [mut near, mut far] = pair(frugal());
    // 5 MB are more than 300 records, and a key lasts for 20.
    pass(&mut near, &mut far, &some_bytes(5_000_000), (100_000, 300_000));
    pass(&mut far, &mut near, &some_bytes(5_000_000), (300_000, 100_000));
}
