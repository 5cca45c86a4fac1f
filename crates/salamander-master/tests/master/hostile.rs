//! Strangers on the port: refused, and the run does not notice.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use salamander_core::elastic::WorkerId;
use salamander_proto::client::{Admin, Registration, Role, Session, SessionOptions};
use salamander_proto::convert::FromProcess;
use salamander_proto::token::Bearer;
use salamander_proto::v1;
use salamander_proto::v1::control_client::ControlClient;
use tonic::service::Interceptor;
use tonic::transport::Endpoint;
use tonic::{Code, Request, Status};

use crate::support::{Run, TOKEN, Worker, together, wait_until};

/// Calls everything and returns the codes.
async fn call_all(address: String, intercept: impl Interceptor + Clone) -> Vec<Code> {
    let endpoint = Endpoint::from_shared(format!("http://{address}")).expect("an address");
    let channel = endpoint.connect().await.expect("connected");
    let mut client = ControlClient::with_interceptor(channel, intercept);
    let code = |status: Option<Status>| status.map_or(Code::Ok, |status| status.code());
    let nothing = || tokio_stream::iter(Vec::<v1::ProcessMessage>::new());
    vec![
        code(client.join(nothing()).await.err()),
        code(client.watch(v1::WatchRequest::default()).await.err()),
        code(client.status(v1::StatusRequest {}).await.err()),
        code(client.scale(v1::ScaleRequest { workers: Some(9), servers: None }).await.err()),
        code(client.stop(v1::StopRequest {}).await.err()),
        code(client.lease(v1::LeaseRequest::default()).await.err()),
        code(client.finish(v1::FinishRequest::default()).await.err()),
        code(client.micro_batches(v1::MicroBatchRequest::default()).await.err()),
    ]
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

#[test]
fn without_the_token_nothing_is_answered() {
    let run = Run::new(1);
    let _admin = run.admin();
    let none = |request: Request<()>| -> Result<Request<()>, Status> { Ok(request) };
    let codes = runtime().block_on(call_all(run.master(), none));
    assert_eq!(codes, [Code::Unauthenticated; 8]);
    let wrong = Bearer::new("c0ffee00c0ffee01").expect("visible");
    let codes = runtime().block_on(call_all(run.master(), wrong));
    assert_eq!(codes, [Code::Unauthenticated; 8]);
    assert_eq!(run.status()["wanted"], 1);
}

#[test]
fn a_worker_with_a_wrong_token_is_told_so() {
    let run = Run::new(1);
    let mut worker = Worker::join(&run, 1);
    drop(worker.session.take());
    let error = Admin::connect(&SessionOptions::new(run.master(), "00"), Duration::from_secs(5));
    let error = error.and_then(|mut admin| admin.status()).expect_err("refused").to_string();
    assert!(error.contains("does not carry the token"), "{error}");
    let options = SessionOptions::new(run.master(), "00");
    let refused = std::sync::Arc::new(std::sync::Mutex::new(None));
    let session = Session::open(&options, stranger(), Stranger(refused.clone())).expect("open");
    wait_until("it is refused", || refused.lock().expect("not poisoned").is_some());
    drop(session);
}

/// Somebody who has a master's port, and keeps what is sent there.
struct Impostor {
    address: SocketAddr,
    heard: Arc<Mutex<Vec<u8>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Impostor {
    /// Answers as a server of HTTP/2 does, or with as many bytes as a proof has.
    fn at(address: SocketAddr, answer: &'static [u8]) -> Self {
        let listener = TcpListener::bind(address).expect("the port is free");
        let address = listener.local_addr().expect("bound");
        listener.set_nonblocking(true).expect("a socket");
        let (heard, stop) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
        let (keeps, stops) = (heard.clone(), stop.clone());
        let thread = std::thread::spawn(move || {
            while !stops.load(Ordering::Relaxed) {
                let Ok((mut stream, _)) = listener.accept() else {
                    std::thread::sleep(Duration::from_millis(5));
                    continue;
                };
                stream.set_nonblocking(false).expect("a socket");
                stream.set_read_timeout(Some(Duration::from_millis(200))).expect("a socket");
                let _ = stream.write_all(answer);
                let mut bytes = [0; 4096];
                while let Ok(read @ 1..) = stream.read(&mut bytes) {
                    keeps.lock().expect("not poisoned").extend(&bytes[..read]);
                }
            }
        });
        Self { address, heard, stop, thread: Some(thread) }
    }

    fn heard(&self) -> Vec<u8> {
        self.heard.lock().expect("not poisoned").clone()
    }
}

impl Drop for Impostor {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

const HTTP2_SETTINGS: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];

#[test]
fn whoever_has_the_masters_port_hears_nothing_of_the_token() {
    for answer in [HTTP2_SETTINGS, &[7; 64], b"HTTP/1.1 400 Bad Request\r\n\r\n", b""] {
        let impostor = Impostor::at(SocketAddr::from(([127, 0, 0, 1], 0)), answer);
        let options = SessionOptions::new(impostor.address.to_string(), TOKEN);
        let asked = Admin::connect(&options, Duration::from_secs(2));
        let asked = asked.and_then(|mut admin| admin.status());
        asked.expect_err("it is no master");
        wait_until("it has heard something", || !impostor.heard().is_empty());
        let heard = impostor.heard();
        let has = |part: &[u8]| heard.windows(part.len()).any(|window| window == part);
        assert!(!has(TOKEN.as_bytes()) && !has(b"authorization"), "{heard:?}");
    }
}

#[test]
fn an_impostor_on_the_port_ends_no_worker() {
    let mut run = Run::new(1);
    let worker = Worker::join(&run, 1);
    together(&[&worker]);
    run.kill();
    let impostor = Impostor::at(run.address, &[7; 64]);
    wait_until("the worker has asked it", || !impostor.heard().is_empty());
    wait_until("and asks again", || impostor.heard().len() > 64);
    drop(impostor);
    assert_eq!(worker.seen().refused, None);
    assert_eq!(worker.seen().ended, None);
    run.start(|_| {});
    wait_until("it is with its master again", || worker.seen().connected);
}

/// What it says of itself matters to nobody.
pub(crate) fn stranger() -> Registration {
    let role = Role::Server;
    Registration { id: WorkerId(0), endpoint: String::new(), slot: 0, process: 0, role }
}

/// A worker that is refused.
pub(crate) struct Stranger(pub(crate) std::sync::Arc<std::sync::Mutex<Option<String>>>);

impl salamander_proto::client::Handler for Stranger {
    fn message(&mut self, _message: salamander_core::elastic::ToMember) {}
    fn refused(&mut self, reason: &str) {
        *self.0.lock().expect("not poisoned") = Some(reason.to_string());
    }
}

/// Sends bytes and waits until the other side hangs up, or goes on if it only listens.
fn pester(run: &Run, bytes: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(run.address).expect("connected");
    stream.set_read_timeout(Some(Duration::from_millis(200))).expect("a socket");
    // It may hang up in the middle.
    let _ = stream.write_all(bytes);
    let mut answer = [0; 64];
    let _ = stream.read(&mut answer);
    stream
}

#[test]
fn garbage_does_not_disturb_the_run() {
    let run = Run::with(2, crate::membership::patient);
    let workers = [1, 2].map(|id| Worker::join(&run, id));
    together(&workers.each_ref());
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    // A frame whose length says 16 MB, of type headers.
    let huge = [&preface[..], &[0xff, 0xff, 0xff, 1, 4, 0, 0, 0, 1]].concat();
    let mut open = Vec::new();
    for round in 0..4u8 {
        open.push(pester(&run, b"GET / HTTP/1.1\r\n\r\n"));
        open.push(pester(&run, &preface[..10]));
        open.push(pester(&run, &[round; 999]));
        open.push(pester(&run, &huge));
    }
    assert!(workers.iter().all(|worker| worker.seen().activations.len() == 1));
    assert!(workers.iter().all(|worker| worker.seen().connected));
    assert_eq!(run.status()["state"], "running");
}

#[test]
fn a_message_that_is_too_long_ends_its_session_only() {
    let run = Run::new(1);
    let worker = Worker::join(&run, 1);
    together(&[&worker]);
    let outcome = Some(v1::finish_request::Outcome::Err("x".repeat(5 << 20)));
    let long = v1::FinishRequest { outcome, ..Default::default() };
    let (address, bearer) = (run.master(), Bearer::new(TOKEN).expect("visible"));
    let status = runtime().block_on(async move {
        let endpoint = Endpoint::from_shared(format!("http://{address}")).expect("an address");
        let channel = endpoint.connect().await.expect("connected");
        ControlClient::with_interceptor(channel, bearer).finish(long).await.expect_err("too long")
    });
    assert_eq!(status.code(), Code::OutOfRange);
    // A session that does not begin with a hello ends with a reason.
    let bearer = Bearer::new(TOKEN).expect("visible");
    let address = run.master();
    let status = runtime().block_on(async move {
        let endpoint = Endpoint::from_shared(format!("http://{address}")).expect("an address");
        let channel = endpoint.connect().await.expect("connected");
        let mut client = ControlClient::with_interceptor(channel, bearer);
        let words = vec![v1::ProcessMessage::from(FromProcess::Failed("too soon".into()))];
        let mut answers = client.join(tokio_stream::iter(words)).await.expect("open").into_inner();
        answers.message().await.expect_err("refused")
    });
    assert_eq!(status.message(), "a session begins with a hello or an inventory, within 5 s");
    assert!(worker.seen().connected);
    assert_eq!(worker.id, WorkerId(1));
    assert_eq!(run.status()["state"], "running");
}
