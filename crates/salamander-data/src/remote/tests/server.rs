//! A small http server for tests, which can stall, refuse, ignore ranges and change its file.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};

/// What the server does, which a test may change at any time.
#[derive(Debug)]
pub(super) struct State {
    pub(super) content: Vec<u8>,
    pub(super) etag: Option<String>,
    /// Whether ranges are answered as such.
    pub(super) ranges: bool,
    /// Requests still to be answered with 503.
    pub(super) refuse: usize,
    /// Requests still to be left without an answer.
    pub(super) stall: usize,
    /// Requests still to be answered with half of the bytes promised.
    pub(super) cut: usize,
    /// Method and range of each request.
    pub(super) seen: Vec<String>,
}

/// A server of one file at any path; its threads end with the test's process.
#[derive(Debug)]
pub(super) struct HttpServer {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
}

impl HttpServer {
    pub(super) fn start(content: Vec<u8>) -> HttpServer {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let state = State {
            content,
            etag: Some("\"1\"".to_owned()),
            ranges: true,
            refuse: 0,
            stall: 0,
            cut: 0,
            seen: Vec::new(),
        };
        let state = Arc::new(Mutex::new(state));
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let state = Arc::clone(&shared);
                std::thread::spawn(move || answer(&stream, &state));
            }
        });
        HttpServer { address, state }
    }

    pub(super) fn place(&self, name: &str) -> PathBuf {
        PathBuf::from(format!("http://{}/{name}", self.address))
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// How many requests there were that ask for bytes.
    pub(super) fn gets(&self) -> usize {
        self.state().seen.iter().filter(|seen| seen.starts_with("GET")).count()
    }
}

/// Answers one request and closes the connection.
fn answer(stream: &TcpStream, state: &Mutex<State>) {
    let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
    let Some(first) = lines.next() else { return };
    let headers: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
    let header = |name: &str| {
        headers.iter().find_map(|line| {
            let (found, value) = line.split_once(':')?;
            found.eq_ignore_ascii_case(name).then(|| value.trim().to_owned())
        })
    };
    let method = first.split(' ').next().unwrap_or_default().to_owned();
    let (range, if_match) = (header("range"), header("if-match"));
    let mut state = state.lock().unwrap();
    state.seen.push(format!("{method} {}", range.as_deref().unwrap_or("all")));
    if state.stall > 0 {
        state.stall -= 1;
        drop(state);
        // Waits until the client gives up and closes the connection.
        let _ = stream.peek(&mut [0]);
        return;
    }
    let response = response(&mut state, &method, range, if_match);
    // Others need not wait until this one has taken it.
    drop(state);
    let _ = (&mut &*stream).write_all(&response);
}

fn response(
    state: &mut State,
    method: &str,
    range: Option<String>,
    if_match: Option<String>,
) -> Vec<u8> {
    let mut head =
        "Connection: close\r\nLast-Modified: Mon, 01 Jan 2024 00:00:00 GMT\r\n".to_owned();
    if let Some(etag) = &state.etag {
        head += &format!("ETag: {etag}\r\n");
    }
    if state.refuse > 0 {
        state.refuse -= 1;
        return format!("HTTP/1.1 503 Busy\r\n{head}Content-Length: 0\r\n\r\n").into_bytes();
    }
    if if_match.is_some() && if_match != state.etag {
        return format!("HTTP/1.1 412 Other\r\n{head}Content-Length: 0\r\n\r\n").into_bytes();
    }
    let total = state.content.len();
    let bounds = range.filter(|_| state.ranges).map(|range| {
        let (start, end) = range.strip_prefix("bytes=").unwrap().split_once('-').unwrap();
        let end: usize = end.parse().unwrap();
        (start.parse::<usize>().unwrap(), end.min(total - 1))
    });
    let (status, part) = match bounds {
        Some((start, end)) => {
            head += &format!("Content-Range: bytes {start}-{end}/{total}\r\n");
            ("206 Part", &state.content[start..=end])
        }
        None => ("200 OK", &state.content[..]),
    };
    let length = part.len();
    let mut body = if method == "HEAD" { Vec::new() } else { part.to_vec() };
    if state.cut > 0 && method != "HEAD" {
        state.cut -= 1;
        body.truncate(length / 2);
    }
    let head = format!("HTTP/1.1 {status}\r\n{head}Content-Length: {length}\r\n\r\n");
    [head.into_bytes(), body].concat()
}
