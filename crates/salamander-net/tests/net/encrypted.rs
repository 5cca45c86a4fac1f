//! TLS: who is refused and what both sides are told, bytes that are changed on their way, and keys that are renewed.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use salamander_net::tls::{Error as TlsError, Files, name};
use salamander_net::{Cancel, Endpoint, Error, Keys, Listener, Patience, Stream, Tls, Token};

use crate::group::{Way, keys, listener};

/// Longer than any test takes.
const LONG: Duration = Duration::from_secs(30);

fn dial(listener: &Listener, keys: &Keys) -> Result<Stream, Error> {
    dial_at(listener, keys, listener.endpoint().tcp)
}

fn dial_at(listener: &Listener, keys: &Keys, tcp: std::net::SocketAddr) -> Result<Stream, Error> {
    let cancel = Cancel::new();
    let far = Endpoint { host: "elsewhere".to_string(), tcp, ..listener.endpoint() };
    Stream::dial(&far, keys, &Patience::new(&cancel, LONG))
}

fn says(outcome: Result<Stream, Error>, words: &str) {
    let text = outcome.expect_err("it is refused").to_string();
    assert!(text.contains(words), "{text:?} does not say {words:?}");
}

/// A client of rustls, without any of our code, with these certificates or none.
fn client(trusted: &Files, own: Option<&Files>) -> ClientConnection {
    let mut roots = RootCertStore::empty();
    let authority = CertificateDer::from_pem_slice(trusted.authority.as_bytes());
    roots.add(authority.expect("a certificate")).expect("an authority");
    let config =
        ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(roots);
    let config = match own {
        None => config.with_no_client_auth(),
        Some(files) => {
            let chain = CertificateDer::from_pem_slice(files.certificate.as_bytes());
            let key = PrivateKeyDer::from_pem_slice(files.key.as_bytes()).expect("a key");
            config
                .with_client_auth_cert(vec![chain.expect("a certificate")], key)
                .expect("they fit")
        }
    };
    ClientConnection::new(Arc::new(config), name()).expect("a connection")
}

/// What such a client is told.
fn refusal(listener: &Listener, mut client: ClientConnection) -> String {
    let mut tcp = TcpStream::connect(listener.endpoint().tcp).expect("it listens");
    tcp.set_read_timeout(Some(LONG)).expect("a timeout");
    let mut stream = rustls::Stream::new(&mut client, &mut tcp);
    let error = stream.write_all(b"salamnet").and_then(|()| stream.read_exact(&mut [0]));
    let error = error.expect_err("it is refused");
    TlsError::of_io(&error).map_or(error.to_string(), |error| error.to_string())
}

fn with_tls(files: &Files) -> Keys {
    let tls = Some(Tls::new(files).expect("certificates"));
    Keys { tls, ..Keys::from(Token::random().expect("randomness")) }
}

#[test]
fn certificates_of_another_job_are_refused_on_both_sides() {
    let (ours, theirs) =
        (Files::create().expect("certificates"), Files::create().expect("certificates"));
    let keys = with_tls(&ours);
    let listener = listener(&keys);
    let stranger = Keys { token: keys.token.clone(), ..with_tls(&theirs) };
    says(dial(&listener, &stranger), "the job's authority has not signed it");
    // A client that trusts everybody is refused by the listener, and hears why.
    let told = refusal(&listener, client(&ours, Some(&theirs)));
    assert!(told.contains("does not accept this side's certificate"), "{told}");
    let told = refusal(&listener, client(&ours, None));
    assert!(told.contains("does not accept this side's certificate"), "{told}");
}

#[test]
fn expired_certificates_are_refused_at_the_start_and_by_others() {
    let old = Files::valid(2001, 2011).expect("certificates");
    let refused = Tls::new(&old).expect_err("they are too old").to_string();
    assert!(refused.starts_with("tls.crt: it has expired; make others"), "{refused}");
    let early = Files::valid(2190, 2199).expect("certificates");
    let refused = Tls::new(&early).expect_err("they are too new").to_string();
    assert!(refused.contains("compare the clocks"), "{refused}");
    // Two authorities, as while certificates are replaced; a member was forgotten.
    let mut ours = Files::create().expect("certificates");
    let only = ours.clone();
    ours.authority.push_str(&old.authority);
    let listener = listener(&with_tls(&ours));
    let told = refusal(&listener, client(&only, Some(&old)));
    assert!(told.contains("says that this side's certificate has expired; make others"), "{told}");
    dial(&listener, &Keys { token: listener.keys().token.clone(), ..with_tls(&only) })
        .expect("both fit");
}

#[test]
fn files_that_are_missing_or_wrong_are_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let check = |words: &str| {
        let error = Tls::load(&folder.path().join("tls")).expect_err("it is refused").to_string();
        assert!(error.contains(words), "{error:?} does not say {words:?}");
        assert!(!error.contains("PRIVATE"), "{error}");
    };
    check("tls/ca.crt: No such file");
    let (files, other) =
        (Files::create().expect("certificates"), Files::create().expect("certificates"));
    files.write(&folder.path().join("tls")).expect("written");
    assert!(Tls::load(&folder.path().join("tls")).is_ok());
    let wrong = |name: &str, text: &str| {
        std::fs::write(folder.path().join("tls").join(name), text).expect("written");
    };
    wrong("tls.key", &other.key);
    check("tls/tls.key: ");
    wrong("tls.key", "-----BEGIN PRIVATE KEY-----\nabc\n");
    check("tls/tls.key: it is no private key in PEM");
    wrong("tls.key", &files.key);
    wrong("ca.crt", &other.authority);
    check("tls/tls.crt: the job's authority has not signed it");
    wrong("ca.crt", "");
    check("tls/ca.crt: it is no certificate in PEM");
    wrong("ca.crt", &files.authority);
    wrong("tls.crt", "");
    check("tls/tls.crt: it is no certificate in PEM");
    wrong("tls.crt", &files.authority);
    check("tls/tls.crt: ");
}

#[test]
fn plain_and_encrypted_sides_tell_each_other_apart() {
    let encrypted = keys(Way::Tls);
    let plain = Keys::from(encrypted.token.clone());
    says(dial(&listener(&encrypted), &plain), "it wants TLS, and this side has no certificates");
    says(dial(&listener(&plain), &encrypted), "perhaps because it was started without TLS");
}

#[test]
fn wrong_bytes_disturb_nobody() {
    let keys = keys(Way::Tls);
    let listener = listener(&keys);
    let mut hello = Vec::new();
    let mut other = client(&Files::create().expect("certificates"), None);
    other.write_tls(&mut hello).expect("written");
    let (half, mut changed, mut doubled) = (hello[..50].to_vec(), hello.clone(), hello.clone());
    changed[40] ^= 0xff;
    doubled.extend(&hello);
    let garbage = [
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        vec![0xff; 100_000],
        vec![22, 3, 3, 0xff, 0xff],
        vec![21, 3, 3, 0, 2, 1, 0],
        [hello.clone(), vec![0; 100_000]].concat(),
        half,
        changed,
        doubled,
    ];
    let streams: Vec<TcpStream> = garbage
        .iter()
        .map(|bytes| {
            let mut stream = TcpStream::connect(listener.endpoint().tcp).expect("it listens");
            // It may be refused before all is written.
            let _ = stream.write_all(bytes);
            stream
        })
        .collect();
    let silent: Vec<TcpStream> = (0..100)
        .map(|_| TcpStream::connect(listener.endpoint().tcp).expect("it listens"))
        .collect();
    let there = dial(&listener, &keys).expect("dialled");
    let here = listener.accept(&Cancel::new()).expect("accepted");
    let cancel = Cancel::new();
    there.send(&[b"x"], &Patience::new(&cancel, LONG)).expect("sent");
    here.receive(&mut [0], &Patience::new(&cancel, LONG)).expect("received");
    for mut stream in streams.into_iter().chain(silent) {
        stream.set_read_timeout(Some(LONG)).expect("a timeout");
        let mut rest = Vec::new();
        // A reset is as good an end as any; that none comes is not.
        let ended = stream.read_to_end(&mut rest);
        let late = ended.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock);
        assert!(!late, "a stranger is still connected");
    }
}

/// Speaks no TLS, hears that it is refused, and then sends until it is told to stop; whether it could all the time.
fn sends_on(mut stream: TcpStream, refused: &Sender<()>, stop: &AtomicBool) -> bool {
    let garbage = [0xff; 16 << 10];
    let heard = stream.write_all(&garbage).and_then(|()| stream.read_to_end(&mut Vec::new()));
    if heard.is_err() || refused.send(()).is_err() {
        return false;
    }
    while !stop.load(Ordering::Relaxed) {
        if stream.write_all(&garbage).is_err() {
            return false;
        }
    }
    true
}

/// Whether somebody is let in while one that was refused goes on sending.
fn lets_in_beside_a_sender(listener: &Listener, keys: &Keys) -> bool {
    let (refused, hears) = channel();
    let stop = AtomicBool::new(false);
    let stream = TcpStream::connect(listener.endpoint().tcp).expect("it listens");
    stream.set_read_timeout(Some(LONG)).expect("a timeout");
    stream.set_write_timeout(Some(LONG)).expect("a timeout");
    std::thread::scope(|scope| {
        let stop = &stop;
        let sender = scope.spawn(move || sends_on(stream, &refused, stop));
        if hears.recv().is_ok() {
            dial(listener, keys).expect("dialled");
            listener.accept(&Cancel::new()).expect("accepted");
        }
        stop.store(true, Ordering::Relaxed);
        sender.join().expect("no panic")
    })
}

#[test]
fn one_that_was_refused_and_goes_on_sending_holds_up_nobody() {
    let keys = keys(Way::Tls);
    let listener = listener(&keys);
    // It is cut off in the end: on a busy machine perhaps before somebody was let in, and then it is tried again.
    assert!((0..5).any(|_| lets_in_beside_a_sender(&listener, &keys)));
}

/// Passes bytes on in both directions, and flips a bit of one that the client sends.
fn meddle(to: std::net::SocketAddr, at: usize) -> std::net::SocketAddr {
    let proxy = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = proxy.local_addr().expect("its address");
    std::thread::spawn(move || {
        let (mut near, _) = proxy.accept().expect("a client");
        let mut far = TcpStream::connect(to).expect("it listens");
        let (mut back, mut forth) =
            (far.try_clone().expect("a copy"), near.try_clone().expect("a copy"));
        std::thread::spawn(move || {
            let _ = std::io::copy(&mut back, &mut forth);
            let _ = forth.shutdown(std::net::Shutdown::Both);
        });
        let (mut bytes, mut passed) = ([0; 1000], 0);
        while let Ok(count @ 1..) = near.read(&mut bytes) {
            if (passed..passed + count).contains(&at) {
                bytes[at - passed] ^= 1;
            }
            passed += count;
            if far.write_all(&bytes[..count]).is_err() {
                break;
            }
        }
        let _ = far.shutdown(std::net::Shutdown::Both);
    });
    address
}

#[test]
fn changed_bytes_are_noticed_and_none_of_them_arrives() {
    let keys = keys(Way::Tls);
    let listener = listener(&keys);
    // In the handshake, or far behind it.
    for at in [5, 300, 30_000, 70_000] {
        let through = meddle(listener.endpoint().tcp, at);
        let Ok(there) = dial_at(&listener, &keys, through) else { continue };
        assert!(at >= 30_000, "a handshake was changed at byte {at}");
        let here = listener.accept(&Cancel::new()).expect("accepted");
        let cancel = Cancel::new();
        let sent = there.send(&[&vec![7; 100_000]], &Patience::new(&cancel, LONG));
        let mut received = vec![0; 100_000];
        let outcome = here.receive(&mut received, &Patience::new(&cancel, LONG));
        assert!(outcome.is_err(), "{sent:?} and then {outcome:?}");
        assert!(received.iter().all(|byte| [0, 7].contains(byte)));
    }
}
