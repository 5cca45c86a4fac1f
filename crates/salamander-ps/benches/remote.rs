//! How fast rows travel: pulls and pushes beside plain sockets that move the same bytes, in the same
//! run and in turns, so that a change of the machine's speed hits all alike.
//!
//! Three limits are taken: a socket of the standard library as it comes; a bare stream of
//! salamander-net, which is what the wire could reach if tables and frames cost nothing; and the same
//! engine without a wire. The server and each peer have a thread of their own in this process.
//! `cargo bench -p salamander-ps --bench remote` prints medians, and ratios above 1 where remote rows
//! are faster than a limit.

use std::hint::black_box;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use salamander_core::plan::MicroBatch;
use salamander_core::seed::Rng;
use salamander_net::tls::Files;
use salamander_net::{Cancel, Endpoint, Keys, Listener, Patience, Stream, Tls, Token};
use salamander_ps::client::{Client, Directory, Lookup, Options};
use salamander_ps::role::{self, Config};
use salamander_ps::{Engine, EngineOptions, Mode, Page, Push, Read, Rows, TableId, TableSpec};

#[path = "../../../benches/src/record.rs"]
mod record;

use record::Record;

/// Rows of a table that is beyond any cache, as real ones are.
const COLD: u64 = 400_000;
/// Rows of a table that a cache holds, so that the wire is what is measured.
const HOT: u64 = 20_000;
/// Turns, of which the median counts.
const TURNS: usize = 11;
/// How long one turn takes, about.
const TURN: Duration = Duration::from_millis(40);
/// Longer than anything that is measured.
const LONG: Duration = Duration::from_secs(60);

/// What is measured.
#[derive(Clone, Copy)]
struct Case {
    over_tcp: bool,
    /// Encrypted; only over TCP.
    tls: bool,
    bf16: bool,
    dim: usize,
    rows: usize,
    table: u64,
}

fn main() {
    // `cargo test --all-targets` starts benches as well, which only has to show that they build.
    if !std::env::args().any(|arg| arg == "--bench") {
        return;
    }
    println!("medians of {TURNS} turns; MB/s of request and answer together");
    println!(
        "{:<5} {:<5} {:<4} {:>4} {:>6} {:>7} {:>7} {:>7} {:>7} {:>7}  {:>5} {:>6} {:>6}",
        "what",
        "over",
        "as",
        "dim",
        "rows",
        "table",
        "plain",
        "stream",
        "local",
        "remote",
        "plain",
        "stream",
        "local"
    );
    let case = Case { over_tcp: false, tls: false, bf16: false, dim: 64, rows: 16_384, table: HOT };
    let cases = [
        case,
        Case { over_tcp: true, ..case },
        Case { over_tcp: true, tls: true, ..case },
        Case { bf16: true, ..case },
        Case { table: COLD, ..case },
        Case { over_tcp: true, table: COLD, ..case },
        Case { over_tcp: true, dim: 16, rows: 13_312, ..case },
        Case { over_tcp: true, dim: 16, rows: 13_312, table: COLD, ..case },
    ];
    let record = Record::begin("remote");
    for case in cases {
        measure(case, &record);
    }
}

fn measure(case: Case, record: &Record) {
    let keys = keys(case.tls);
    let shutdown = Cancel::new();
    let (listener, endpoint) =
        role::bind("127.0.0.1:0".parse().expect("an address"), keys.clone()).expect("a listener");
    let endpoint = place(endpoint.parse().expect("an endpoint"), case.over_tcp);
    let options = EngineOptions { mode: Mode::Immediate, ..EngineOptions::default() };
    let config = Config::new(options).expect("a life");
    let engine = Engine::new(config.engine.clone()).expect("an engine");
    std::thread::scope(|scope| {
        scope.spawn(|| role::serve(&engine, &config, &listener, &shutdown).expect("served"));
        let options = Options { patience: LONG, bf16: case.bf16, ..Options::default() };
        let directory = [endpoint].into_iter().collect::<Directory>();
        let client = Client::connect(directory, keys.clone(), options).expect("connected");
        let mut worker = Worker::new(client, &engine, case, record);
        let (ids, values) = (8 * case.rows, worker.wire_bytes());
        compare("pull", (ids, values), &mut worker, Worker::pull, Worker::pull_here);
        compare("push", (ids + values, 40), &mut worker, Worker::push, Worker::push_here);
        shutdown.cancel();
    });
}

/// A worker's part: rows that it pulls and pushes.
struct Worker<'a> {
    client: Client,
    engine: &'a Engine,
    table: TableId,
    case: Case,
    record: &'a Record,
    rng: Rng,
    ids: Vec<u64>,
    values: Vec<f32>,
    step: u64,
}

impl<'a> Worker<'a> {
    /// A table that is there, and a batch of it.
    fn new(mut client: Client, engine: &'a Engine, case: Case, record: &'a Record) -> Self {
        // The only table, so that it has the same number everywhere.
        let table = client.declare(TableSpec::new("item", case.dim)).expect("declared");
        let all: Vec<u64> = (0..case.table).collect();
        for ids in all.chunks(case.rows) {
            let values = vec![0.5; ids.len() * case.dim];
            client.set(&[Rows { table, ids, values: &values }]).expect("set");
        }
        let (rng, values) = (Rng::new(7), vec![0.0; case.rows * case.dim]);
        Self { client, engine, table, case, record, rng, ids: Vec::new(), values, step: 0 }
    }

    /// Other ids than last time, each once: a random start, and strides that meet no id twice.
    fn draw(&mut self) {
        let start = self.rng.below(self.case.table);
        // Odd and no multiple of 5, so without a common factor with the size of the table.
        let stride = 10 * self.rng.below(self.case.table / 20) + 3;
        let id = |at: usize| (start + stride * at as u64) % self.case.table;
        self.ids = (0..self.case.rows).map(id).collect();
    }

    fn pull(&mut self) {
        self.draw();
        let mut lookups = [Lookup { table: self.table, ids: &self.ids, out: &mut self.values }];
        self.client.pull_into(Read::Train, None, &mut lookups).expect("pulled");
        black_box(&self.values);
    }

    fn pull_here(&mut self) {
        self.draw();
        self.engine.pull(self.table, &self.ids, Read::Train, &mut self.values).expect("pulled");
        black_box(&self.values);
    }

    fn push(&mut self) {
        self.draw();
        let rows = [Rows { table: self.table, ids: &self.ids, values: &self.values }];
        let push = push(&mut self.step, &rows);
        self.client.push(&push, None).expect("pushed");
    }

    fn push_here(&mut self) {
        self.draw();
        let rows = [Rows { table: self.table, ids: &self.ids, values: &self.values }];
        self.engine.push(push(&mut self.step, &rows)).expect("pushed");
    }

    fn wire_bytes(&self) -> usize {
        self.values.len() * if self.case.bf16 { 2 } else { 4 }
    }
}

fn push<'a>(step: &mut u64, rows: &'a [Rows<'a>]) -> Push<'a> {
    *step += 1;
    let name = MicroBatch { epoch: 0, step: *step, k: 0 };
    Push { name, tally: Page::default(), factor: 1e-3, scale: 1.0, seen: None, rows }
}

/// Times a worker beside plain sockets that send and receive so many bytes, and prints a line.
fn compare<'a>(
    what: &str,
    bytes: (usize, usize),
    worker: &mut Worker<'a>,
    remote: fn(&mut Worker<'a>),
    local: fn(&mut Worker<'a>),
) {
    let ((request, answer), case) = (bytes, worker.case);
    std::thread::scope(|scope| {
        let (mut plain, mut peer) = plain_pair(case.over_tcp);
        scope.spawn(move || {
            let (mut request, answer) = (vec![1; request], vec![1; answer]);
            while peer.read_exact(&mut request).is_ok() && peer.write_all(&answer).is_ok() {}
        });
        let (bare, far) = bare_pair(case);
        scope.spawn(move || {
            let (mut request, answer) = (vec![1; request], vec![1; answer]);
            let cancel = Cancel::new();
            let patience = || Patience::new(&cancel, LONG);
            while far.receive(&mut request, &patience()).is_ok()
                && far.send(&[&answer], &patience()).is_ok()
            {}
        });
        let (message, mut space, cancel) = (vec![1; request], vec![1; answer], Cancel::new());
        let mut times: [Vec<f64>; 4] = Default::default();
        for turn in 0..=TURNS {
            let took = [
                time(|| {
                    plain.write_all(&message).expect("sent");
                    plain.read_exact(&mut space).expect("received");
                }),
                time(|| {
                    bare.send(&[&message], &Patience::new(&cancel, LONG)).expect("sent");
                    bare.receive(&mut space, &Patience::new(&cancel, LONG)).expect("received");
                }),
                time(|| local(worker)),
                time(|| remote(worker)),
            ];
            // The first turn warms up.
            if turn > 0 {
                times.iter_mut().zip(took).for_each(|(times, took)| times.push(took));
            }
        }
        bare.close();
        plain.close();
        print_line(what, (case, worker.record), request + answer, times.map(median));
    });
}

fn print_line(what: &str, (case, record): (Case, &Record), bytes: usize, seconds: [f64; 4]) {
    let [plain, stream, local, remote] = seconds.map(|seconds| bytes as f64 / seconds / 1e6);
    let over = match (case.tls, case.over_tcp) {
        (true, _) => "tls",
        (false, true) => "tcp",
        (false, false) => "unix",
    };
    let kind = if case.bf16 { "bf16" } else { "f32" };
    let Case { dim, rows, table, .. } = case;
    let name = format!("{what}, {over}, {kind}, dimension {dim}, {rows} of {table} rows");
    record.figure(&name, ("MB/s", "more"), remote, Some(plain));
    print!("{what:<5} {over:<5} {kind:<4} {dim:>4} {rows:>6} {table:>7} ");
    print!("{plain:>7.0} {stream:>7.0} {local:>7.0} {remote:>7.0}  ");
    println!("{:>5.2} {:>6.2} {:>6.2}", remote / plain, remote / stream, remote / local);
}

/// Seconds that one call takes, over as many as fill a turn.
fn time(mut work: impl FnMut()) -> f64 {
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

fn plain_pair(over_tcp: bool) -> (Plain, Plain) {
    if !over_tcp {
        let (near, far) = UnixStream::pair().expect("a pair");
        return (Plain::Unix(near), Plain::Unix(far));
    }
    let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
    let near = TcpStream::connect(listener.local_addr().expect("an address")).expect("connected");
    let (far, _) = listener.accept().expect("accepted");
    for stream in [&near, &far] {
        stream.set_nodelay(true).expect("an option");
    }
    (Plain::Tcp(near), Plain::Tcp(far))
}

fn keys(tls: bool) -> Keys {
    let files = || Files::create().expect("certificates");
    let tls = tls.then(|| Tls::new(&files()).expect("certificates"));
    Keys { tls, ..Keys::from(Token::random().expect("randomness")) }
}

fn bare_pair(case: Case) -> (Stream, Stream) {
    let (keys, cancel) = (keys(case.tls), Cancel::new());
    let listener = Listener::bind("127.0.0.1:0".parse().expect("an address"), keys.clone());
    let listener = listener.expect("a listener");
    let endpoint = place(listener.endpoint(), case.over_tcp);
    let near = Stream::dial(&endpoint, &keys, &Patience::new(&cancel, LONG)).expect("dialled");
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
