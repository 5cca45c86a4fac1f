//! How fast rows travel: pulls and pushes beside plain sockets that move the same bytes, in the same
//! run and in turns, so that a change of the machine's speed hits all alike.
//!
//! Two limits are taken: a socket of the standard library as it comes, and a bare stream of
//! salamander-net, which is what the wire could reach if tables and frames cost nothing. The server
//! and each peer have a thread of their own in this process. `cargo bench -p salamander-ps --bench
//! remote` prints medians, and ratios above 1 where rows are faster than the plain socket.

use std::hint::black_box;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use salamander_core::plan::MicroBatch;
use salamander_core::seed::Rng;
use salamander_net::{Cancel, Endpoint, Listener, Patience, Stream, Token};
use salamander_ps::client::{Client, Directory, Lookup, Options};
use salamander_ps::role::{self, Config};
use salamander_ps::{EngineOptions, Mode, PARTITIONS, Page, Push, Read, Rows, TableId, TableSpec};

/// Rows of the table; beyond any cache with their state.
const TABLE: u64 = 400_000;
/// Turns, of which the median counts.
const TURNS: usize = 15;
/// How long one turn takes, about.
const TURN: Duration = Duration::from_millis(60);
/// Longer than anything that is measured.
const LONG: Duration = Duration::from_secs(60);

/// What is measured.
#[derive(Clone, Copy)]
struct Case {
    over_tcp: bool,
    bf16: bool,
    dim: usize,
    rows: usize,
}

fn main() {
    // `cargo test --all-targets` starts benches as well, which only has to show that they build.
    if !std::env::args().any(|arg| arg == "--bench") {
        return;
    }
    println!("medians of {TURNS} turns; MB/s of request and answer together");
    println!(
        "{:<5} {:<5} {:<4} {:>4} {:>6} {:>8} {:>8} {:>8}  {:>9} {:>9}",
        "what", "over", "as", "dim", "rows", "plain", "stream", "rows", "to plain", "to stream"
    );
    let cases = [
        Case { over_tcp: false, bf16: false, dim: 64, rows: 16_384 },
        Case { over_tcp: true, bf16: false, dim: 64, rows: 16_384 },
        Case { over_tcp: false, bf16: false, dim: 16, rows: 13_312 },
        Case { over_tcp: true, bf16: false, dim: 16, rows: 13_312 },
        Case { over_tcp: false, bf16: true, dim: 64, rows: 16_384 },
    ];
    for case in cases {
        measure(case);
    }
}

fn measure(case: Case) {
    let token = Token::random().expect("randomness");
    let shutdown = Cancel::new();
    let (listener, endpoint) =
        role::bind("127.0.0.1:0".parse().expect("an address"), token.clone()).expect("a listener");
    let endpoint = place(endpoint.parse().expect("an endpoint"), case.over_tcp);
    let partitions = vec![0..PARTITIONS as u16];
    let threads = 1;
    let options = EngineOptions { mode: Mode::Immediate, seed: 1, threads, partitions, slices: 1 };
    let config = Config::new(options).expect("a life");
    std::thread::scope(|scope| {
        scope.spawn(|| role::run(&config, &listener, &shutdown).expect("served"));
        let options = Options { patience: LONG, bf16: case.bf16, ..Options::default() };
        let directory = [endpoint].into_iter().collect::<Directory>();
        let mut client = Client::connect(directory, token.clone(), options).expect("connected");
        let mut worker = Worker::new(&mut client, case);
        let (ids, values) = (8 * case.rows, worker.wire_bytes());
        compare("pull", case, (ids, values), || worker.pull());
        compare("push", case, (ids + values, 40), || worker.push());
        shutdown.cancel();
    });
}

/// A worker's part: rows that it pulls and pushes.
struct Worker<'a> {
    client: &'a mut Client,
    table: TableId,
    case: Case,
    rng: Rng,
    ids: Vec<u64>,
    values: Vec<f32>,
    step: u64,
}

impl<'a> Worker<'a> {
    /// A table that is there, and a batch of it.
    fn new(client: &'a mut Client, case: Case) -> Self {
        let table = client.declare(TableSpec::new("item", case.dim)).expect("declared");
        let all: Vec<u64> = (0..TABLE).collect();
        for ids in all.chunks(case.rows) {
            let values = vec![0.5; ids.len() * case.dim];
            client.set(&[Rows { table, ids, values: &values }]).expect("set");
        }
        let values = vec![0.0; case.rows * case.dim];
        Self { client, table, case, rng: Rng::new(7), ids: Vec::new(), values, step: 0 }
    }

    /// Other ids than last time, each once: a random start, and strides that meet no id twice.
    fn draw(&mut self) {
        let start = self.rng.below(TABLE);
        // Odd and no multiple of 5, so without a common factor with the size of the table.
        let stride = 10 * self.rng.below(TABLE / 20) + 3;
        let id = |at: usize| (start + stride * at as u64) % TABLE;
        self.ids = (0..self.case.rows).map(id).collect();
    }

    fn pull(&mut self) {
        self.draw();
        let mut lookups = [Lookup { table: self.table, ids: &self.ids, out: &mut self.values }];
        self.client.pull_into(Read::Train, None, &mut lookups).expect("pulled");
        black_box(&self.values);
    }

    fn push(&mut self) {
        self.draw();
        self.step += 1;
        let rows = [Rows { table: self.table, ids: &self.ids, values: &self.values }];
        let name = MicroBatch { epoch: 0, step: self.step, k: 0 };
        let push = Push { name, tally: Page::default(), factor: 1e-3, scale: 1.0, rows: &rows };
        self.client.push(&push).expect("pushed");
    }

    fn wire_bytes(&self) -> usize {
        self.values.len() * if self.case.bf16 { 2 } else { 4 }
    }
}

/// Times the work beside plain sockets that send and receive so many bytes, and prints a line.
fn compare(what: &str, case: Case, bytes: (usize, usize), mut work: impl FnMut()) {
    let (request, answer) = bytes;
    std::thread::scope(|scope| {
        let mut plain = plain_pair(case.over_tcp);
        let mut peer = plain.1.take().expect("the other end");
        scope.spawn(move || {
            let (mut request, answer) = (vec![1; request], vec![1; answer]);
            while peer.read_exact(&mut request).is_ok() && peer.write_all(&answer).is_ok() {}
        });
        let (bare, far) = bare_pair(case.over_tcp);
        scope.spawn(move || {
            let (mut request, answer) = (vec![1; request], vec![1; answer]);
            let cancel = Cancel::new();
            let patience = || Patience::new(&cancel, LONG);
            while far.receive(&mut request, &patience()).is_ok()
                && far.send(&[&answer], &patience()).is_ok()
            {}
        });
        let (message, mut space) = (vec![1; request], vec![1; answer]);
        let cancel = Cancel::new();
        let mut times = [Vec::new(), Vec::new(), Vec::new()];
        let mut plain_turn = || {
            plain.0.write_all(&message).expect("sent");
            plain.0.read_exact(&mut space).expect("received");
        };
        let mut received = vec![1; answer];
        let mut bare_turn = || {
            bare.send(&[&message], &Patience::new(&cancel, LONG)).expect("sent");
            bare.receive(&mut received, &Patience::new(&cancel, LONG)).expect("received");
        };
        for turn in 0..=TURNS {
            let took = [time(&mut plain_turn), time(&mut bare_turn), time(&mut work)];
            // The first turn warms up.
            if turn > 0 {
                times.iter_mut().zip(took).for_each(|(times, took)| times.push(took));
            }
        }
        bare.close();
        plain.0.close();
        print_line(what, case, request + answer, times.map(median));
    });
}

fn print_line(what: &str, case: Case, bytes: usize, seconds: [f64; 3]) {
    let speed = seconds.map(|seconds| bytes as f64 / seconds / 1e6);
    let over = if case.over_tcp { "tcp" } else { "unix" };
    let kind = if case.bf16 { "bf16" } else { "f32" };
    println!(
        "{what:<5} {over:<5} {kind:<4} {:>4} {:>6} {:>8.0} {:>8.0} {:>8.0}  {:>9.2} {:>9.2}",
        case.dim,
        case.rows,
        speed[0],
        speed[1],
        speed[2],
        speed[2] / speed[0],
        speed[2] / speed[1]
    );
}

/// Seconds that one call takes, over as many as fill a turn.
fn time(work: &mut impl FnMut()) -> f64 {
    let start = Instant::now();
    let mut count = 0;
    while start.elapsed() < TURN {
        work();
        count += 1;
    }
    start.elapsed().as_secs_f64() / f64::from(count)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// The same listener, as seen from this host or from another one.
fn place(endpoint: Endpoint, over_tcp: bool) -> Endpoint {
    if over_tcp { Endpoint { host: "elsewhere".to_string(), ..endpoint } } else { endpoint }
}

/// A socket of the standard library.
enum Plain {
    Unix(UnixStream),
    Tcp(TcpStream),
}

fn plain_pair(over_tcp: bool) -> (Plain, Option<Plain>) {
    if !over_tcp {
        let (near, far) = UnixStream::pair().expect("a pair");
        return (Plain::Unix(near), Some(Plain::Unix(far)));
    }
    let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
    let near = TcpStream::connect(listener.local_addr().expect("an address")).expect("connected");
    let (far, _) = listener.accept().expect("accepted");
    for stream in [&near, &far] {
        stream.set_nodelay(true).expect("an option");
    }
    (Plain::Tcp(near), Some(Plain::Tcp(far)))
}

fn bare_pair(over_tcp: bool) -> (Stream, Stream) {
    let (token, cancel) = (Token::random().expect("randomness"), Cancel::new());
    let listener = Listener::bind("127.0.0.1:0".parse().expect("an address"), token.clone());
    let listener = listener.expect("a listener");
    let endpoint = place(listener.endpoint(), over_tcp);
    let near = Stream::dial(&endpoint, &token, &Patience::new(&cancel, LONG)).expect("dialled");
    (near, listener.accept(&cancel).expect("accepted"))
}

impl Plain {
    fn close(&self) {
        // The peer's thread ends with it.
        let closed = match self {
            Self::Unix(stream) => stream.shutdown(std::net::Shutdown::Both),
            Self::Tcp(stream) => stream.shutdown(std::net::Shutdown::Both),
        };
        closed.expect("closed");
    }

    fn read_exact(&mut self, space: &mut [u8]) -> std::io::Result<()> {
        match self {
            Self::Unix(stream) => stream.read_exact(space),
            Self::Tcp(stream) => stream.read_exact(space),
        }
    }

    fn write_all(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        match self {
            Self::Unix(stream) => stream.write_all(bytes),
            Self::Tcp(stream) => stream.write_all(bytes),
        }
    }
}
