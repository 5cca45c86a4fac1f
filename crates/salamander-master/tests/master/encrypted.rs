//! A master with certificates: who has them works as ever, who has not is told why.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use salamander_core::status::{State, Status};
use salamander_net::Tls;
use salamander_net::tls::Files;
use salamander_proto::client::{Admin, Error, Session, SessionOptions};

use crate::hostile::{Stranger, stranger};
use crate::support::{Run, TOKEN, Worker, together, wait_until};

fn certificates() -> Tls {
    Tls::new(&Files::create().expect("certificates")).expect("certificates")
}

fn options(run: &Run, tls: Option<&Tls>) -> SessionOptions {
    SessionOptions { tls: tls.cloned(), ..SessionOptions::new(run.master(), TOKEN) }
}

/// What a command is told.
fn answer(options: &SessionOptions) -> Result<Status, Error> {
    Admin::connect(options, Duration::from_secs(5)).and_then(|mut admin| admin.status())
}

/// What a worker is told.
fn refusal(options: &SessionOptions) -> String {
    let refused = Arc::new(Mutex::new(None));
    let session = Session::open(options, stranger(), Stranger(refused.clone())).expect("open");
    wait_until("it is refused", || refused.lock().expect("not poisoned").is_some());
    drop(session);
    refused.lock().expect("not poisoned").clone().unwrap_or_default()
}

fn check(run: &Run, tls: Option<&Tls>, words: &str) {
    let error = answer(&options(run, tls)).expect_err("refused").to_string();
    assert!(error.contains(words), "{error:?} does not say {words:?}");
    let told = refusal(&options(run, tls));
    assert!(told.contains(words), "{told:?} does not say {words:?}");
}

#[test]
fn members_with_certificates_work_and_others_are_told_why_not() {
    let tls = certificates();
    let run = Run::encrypted(2, &tls);
    let workers = [1, 2].map(|id| Worker::join(&run, id));
    together(&workers.each_ref());
    assert_eq!(answer(&options(&run, Some(&tls))).expect("a status").state, State::Running);
    check(&run, None, "it wants TLS, and this side has no certificates");
    check(&run, Some(&certificates()), "the job's authority has not signed it");
    // The token is still asked for inside.
    let wrong = SessionOptions { token: "00".to_string(), ..options(&run, Some(&tls)) };
    let error = answer(&wrong).expect_err("refused").to_string();
    assert!(error.contains("does not carry the token"), "{error}");
    assert!(workers.iter().all(|worker| worker.seen().connected));
}

#[test]
fn a_client_with_certificates_is_told_that_the_master_has_none() {
    let run = Run::new(1);
    let _admin = run.admin();
    let error = answer(&options(&run, Some(&certificates()))).expect_err("refused").to_string();
    assert!(error.contains("does not speak TLS") || error.contains("without TLS"), "{error}");
}

#[test]
fn garbage_and_silence_hold_up_nobody() {
    let tls = certificates();
    let run = Run::encrypted(1, &tls);
    let worker = Worker::join(&run, 1);
    together(&[&worker]);
    let strangers: Vec<TcpStream> = (0..50u8)
        .map(|number| {
            let mut stream = TcpStream::connect(run.address).expect("connected");
            let bytes: &[u8] = match number % 4 {
                0 => b"",
                1 => &[22, 3, 1],
                2 => &[22, 3, 3, 0xff, 0xff, 1, 2, 3],
                _ => b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            };
            let _ = stream.write_all(bytes);
            stream
        })
        .collect();
    assert_eq!(answer(&options(&run, Some(&tls))).expect("a status").state, State::Running);
    assert!(worker.seen().connected);
    for mut stream in strangers {
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a socket");
        let ended = stream.read_to_end(&mut Vec::new());
        let late = ended.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock);
        assert!(!late, "a stranger is still connected");
    }
}
