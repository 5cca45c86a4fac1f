//! Clients that mean harm or know no better, over sockets: each is refused or given up, and others are answered
//! meanwhile.

use std::io::{BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use crate::support::{Running, Times, ask, post, read_answer, registry};
use salamander_serve::{Batching, ServerOptions};

/// How long something may take that has to happen; nothing is measured by it.
const LIMIT: Duration = Duration::from_secs(120);
const INFER: &str = "/v2/models/double/infer";

/// With little patience, so that a test need not wait for minutes.
fn running() -> Running {
    let registry = registry(&[("double", &Times::new(2.0))], Batching::default());
    let idle = Duration::from_millis(500);
    Running::start(registry, ServerOptions { body: 1 << 20, idle, ..ServerOptions::default() })
}

fn others_are_answered(server: &Running) {
    let answer = post(server.address, INFER, "", br#"{"x": 4}"#);
    assert_eq!((answer.status, answer.json()["outputs"][0]["data"][0].as_f64()), (200, Some(8.0)));
}

/// What comes until the server closes the connection, which it has to.
fn until_closed(mut stream: TcpStream) -> String {
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    let mut told = Vec::new();
    match stream.read_to_end(&mut told) {
        Err(error) if matches!(error.kind(), std::io::ErrorKind::WouldBlock) => {
            panic!("the server keeps it")
        }
        _ => String::from_utf8_lossy(&told).into_owned(),
    }
}

/// The same numbers on every machine.
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

#[test]
fn garbage_is_refused() {
    let server = running();
    let mut state = 7;
    for round in 0..64 {
        let mut stream = TcpStream::connect(server.address).unwrap();
        let garbage: Vec<u8> = (0..200).map(|_| random(&mut state) as u8).collect();
        // Some of it looks like HTTP/1, some like HTTP/2.
        let begin: &[u8] = match round % 4 {
            0 => b"",
            1 => b"POST /v2/models/double/infer HTTP/1.1\r\nhost: x\r\n",
            2 => b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            _ => b"POST /v2/models/double/infer HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n",
        };
        let _ = stream.write_all(begin);
        let _ = stream.write_all(&garbage);
        let told = until_closed(stream);
        assert!(!told.starts_with("HTTP/1.1 200"), "{told}");
    }
    others_are_answered(&server);
}

#[test]
fn bodies_that_end_early_are_no_requests() {
    let server = running();
    let whole = br#"{"inputs": [{"name": "x", "shape": [1, 1], "datatype": "FP32", "data": [1]}]}"#;
    for length in 0..whole.len() {
        let mut stream = TcpStream::connect(server.address).unwrap();
        let head =
            format!("POST {INFER} HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n", whole.len());
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(&whole[..length]).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let told = until_closed(stream);
        assert!(!told.starts_with("HTTP/1.1 200"), "{length} bytes: {told}");
    }
    others_are_answered(&server);
}

#[test]
fn absurd_shapes_take_no_memory() {
    let server = running();
    let check = |shape: &str, kind: &str| {
        let body = format!(
            r#"{{"inputs": [{{"name": "x", "shape": {shape}, "datatype": "{kind}", "data": [1]}}]}}"#
        );
        let answer = post(server.address, INFER, "", body.as_bytes());
        assert_eq!(answer.status, 400, "{shape} {kind}: {}", String::from_utf8_lossy(&answer.body));
    };
    for shape in [
        "[9223372036854775807, 9223372036854775807]",
        "[4294967296, 4294967296]",
        "[-1, 1]",
        "[0]",
        "[1, 0, 9223372036854775807]",
        "[]",
        "[18446744073709551615]",
        "[1.5]",
    ] {
        check(shape, "FP32");
        check(shape, "BYTES");
    }
    let many = format!("[{}1]", "1, ".repeat(100_000));
    check(&many, "INT9");
    others_are_answered(&server);
}

#[test]
fn lengths_beyond_the_bound_are_refused_before_memory_is_taken() {
    let server = running();
    for length in ["4294967295", "4294967296", "18446744073709551615"] {
        let head = format!(
            "POST {INFER} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n"
        );
        let answer = ask(server.address, &head, b"{");
        assert!(matches!(answer.status, 400 | 413 | 431), "{length}: {answer:?}");
    }
    // A body without a length, for as long as somebody takes it.
    let mut stream = TcpStream::connect(server.address).unwrap();
    let head = format!("POST {INFER} HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    let chunk = [b"10000\r\n".as_slice(), &[b' '; 0x10000], b"\r\n"].concat();
    let mut sent = 0;
    while sent < 64 << 20 && stream.write_all(&chunk).is_ok() {
        sent += chunk.len();
    }
    assert!(sent < 64 << 20, "all of it was taken");
    // A little that becomes much.
    let bomb = {
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        (0..64).for_each(|_| packed.write_all(&[b' '; 1 << 20]).unwrap());
        packed.finish().unwrap()
    };
    let answer = post(server.address, INFER, "content-encoding: gzip\r\n", &bomb);
    assert_eq!(answer.status, 413);
    // Tensors behind the JSON, and texts within them, that say they are long.
    let json = r#"{"inputs": [{"name": "x", "shape": [1], "datatype": "BYTES",
        "parameters": {"binary_data_size": 4294967295}}]}"#;
    let head = format!("inference-header-content-length: {}\r\n", json.len());
    assert_eq!(post(server.address, INFER, &head, json.as_bytes()).status, 400);
    let json = r#"{"inputs": [{"name": "x", "shape": [1], "datatype": "BYTES",
        "parameters": {"binary_data_size": 8}}]}"#;
    let head = format!("inference-header-content-length: {}\r\n", json.len());
    let body = [json.as_bytes(), &[0xff; 8]].concat();
    assert_eq!(post(server.address, INFER, &head, &body).status, 400);
    others_are_answered(&server);
}

/// Sends a piece again and again until the server has closed the connection.
fn drip(address: SocketAddr, head: &str, piece: &[u8]) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(head.as_bytes()).unwrap();
    stream.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    let begin = Instant::now();
    loop {
        assert!(begin.elapsed() < LIMIT, "the server keeps it");
        let sent = stream.write_all(piece).is_ok();
        let closed = match stream.read(&mut [0; 1024]) {
            Ok(read) => read == 0,
            Err(error) => !matches!(error.kind(), std::io::ErrorKind::WouldBlock),
        };
        if closed || !sent {
            return;
        }
    }
}

#[test]
fn who_is_slow_on_purpose_is_given_up() {
    let server = running();
    let address = server.address;
    let body = format!("POST {INFER} HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000\r\n\r\n");
    let chunked = format!("POST {INFER} HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n");
    let slow: Vec<(String, &[u8])> = vec![
        // Nothing at all; a head without end; the bytes that tell HTTP/2; a body, a byte at a time.
        (String::new(), b""),
        (format!("POST {INFER} HTTP/1.1\r\n"), b"a: b\r\n"),
        ("PRI * HT".to_string(), b""),
        (body, b" "),
        (chunked, b"1\r\n \r\n"),
    ];
    std::thread::scope(|scope| {
        let dripping: Vec<_> = slow
            .iter()
            .map(|(head, piece)| scope.spawn(move || drip(address, head, piece)))
            .collect();
        while !dripping.iter().all(std::thread::ScopedJoinHandle::is_finished) {
            others_are_answered(&server);
        }
    });
}

#[test]
fn who_does_not_read_is_given_up() {
    let server = running();
    let stream = TcpStream::connect(server.address).unwrap();
    // Questions without reading an answer: when both sides' buffers are full, nobody makes progress any more.
    let body = format!(
        r#"{{"inputs": [{{"name": "x", "shape": [20000, 1], "datatype": "FP32", "data": [{}1]}}]}}"#,
        "1,".repeat(19_999)
    );
    let request =
        format!("POST {INFER} HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    let mut sending = stream.try_clone().unwrap();
    sending.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
    let begin = Instant::now();
    loop {
        assert!(begin.elapsed() < LIMIT, "the server keeps it");
        match sending.write(request.as_bytes()) {
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(_) => break,
        }
    }
    others_are_answered(&server);
}

#[test]
fn who_goes_away_while_waiting_disturbs_nobody() {
    let server = running();
    for round in 0..200 {
        let mut stream = TcpStream::connect(server.address).unwrap();
        let head = format!(
            "POST {INFER} HTTP/1.1\r\nhost: x\r\ncontent-length: 8\r\n\r\n{{\"x\": {}}}",
            round % 10
        );
        stream.write_all(head.as_bytes()).unwrap();
        if round % 2 == 0 {
            drop(stream);
        } else {
            assert_eq!(read_answer(&mut BufReader::new(stream)).status, 200);
        }
    }
    others_are_answered(&server);
}

/// A message of gRPC that says it has four gigabytes.
#[test]
fn messages_of_grpc_are_bounded_too() {
    let server = running();
    let status = grpc_status(&server, tower_call::whole(&[0, 0xff, 0xff, 0xff, 0xff, 1, 2, 3]));
    assert!(matches!(status.as_deref(), Some("8" | "11" | "13")), "{status:?}");
    others_are_answered(&server);
}

/// One that begins and never ends, which would hold memory that others need.
#[test]
fn messages_of_grpc_have_to_go_on() {
    let server = running();
    let status = grpc_status(&server, tower_call::begun(&[0, 0, 0, 1, 0, 1, 2, 3]));
    assert_eq!(status.as_deref(), Some("4"), "the deadline has passed");
    others_are_answered(&server);
}

/// The status that a call of gRPC with this body ends with.
fn grpc_status(server: &Running, body: tonic::body::Body) -> Option<String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let endpoint =
            tonic::transport::Endpoint::from_shared(format!("http://{}", server.address));
        let channel = endpoint.unwrap().connect().await.unwrap();
        tower_call::Raw::new(channel).send(body).await
    })
}

/// Tensors that are two bytes each on the wire, and nothing but a few when they are packed.
#[test]
fn messages_of_grpc_do_not_become_much_more_in_memory() {
    let server = running();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let inputs = [0x2a, 0].repeat(100_000);
    let packed = {
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        packed.write_all(&inputs).unwrap();
        packed.finish().unwrap()
    };
    assert!(packed.len() < 1000);
    let messages = [(0, inputs), (1, packed)];
    for (flag, message) in messages {
        let head = [&[flag][..], &(message.len() as u32).to_be_bytes()].concat();
        let body = tower_call::owned([head, message].concat());
        let status = runtime.block_on(async {
            let endpoint =
                tonic::transport::Endpoint::from_shared(format!("http://{}", server.address));
            let channel = endpoint.unwrap().connect().await.unwrap();
            tower_call::Raw::new(channel).send(body).await
        });
        assert_eq!(status.as_deref(), Some("8"), "resources are exhausted");
    }
    others_are_answered(&server);
}

mod tower_call {
    //! Bytes as the body of a call.

    use bytes::Bytes;
    use futures::StreamExt as _;
    use http_body_util::{Full, StreamBody};
    use hyper::body::Frame;
    use tonic::Status;
    use tonic::body::Body;
    use tonic::codegen::Service as _;
    use tonic::transport::Channel;

    pub(crate) struct Raw(Channel);

    pub(crate) fn whole(bytes: &'static [u8]) -> Body {
        Body::new(Full::new(Bytes::from_static(bytes)))
    }

    pub(crate) fn owned(bytes: Vec<u8>) -> Body {
        Body::new(Full::new(Bytes::from(bytes)))
    }

    /// After which nothing comes, and no end.
    pub(crate) fn begun(bytes: &'static [u8]) -> Body {
        let first = Ok::<_, Status>(Frame::data(Bytes::from_static(bytes)));
        let frames = futures::stream::iter([first]).chain(futures::stream::pending());
        Body::new(StreamBody::new(frames))
    }

    impl Raw {
        pub(crate) fn new(channel: Channel) -> Self {
            Self(channel)
        }

        /// The status that the call ended with.
        pub(crate) async fn send(&mut self, body: Body) -> Option<String> {
            std::future::poll_fn(|cx| self.0.poll_ready(cx)).await.unwrap();
            let request = hyper::Request::post("/inference.GRPCInferenceService/ModelInfer")
                .header("content-type", "application/grpc")
                .header("grpc-encoding", "gzip")
                .header("te", "trailers")
                .body(body)
                .unwrap();
            let answer = self.0.call(request).await.unwrap();
            let status = answer.headers().get("grpc-status")?;
            status.to_str().ok().map(str::to_string)
        }
    }
}
