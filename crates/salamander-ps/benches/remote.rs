//! How fast rows travel: pulls and pushes beside plain sockets that move the same bytes, in the same
//! run and in turns, so that a change of the machine's speed hits all alike.
//!
//! Limits that are taken: a socket of the standard library as it comes; the same with what ours have
//! within one machine (TCP without BBR); a bare stream of salamander-net, which is what the wire could
//! reach if tables and frames cost nothing; the same engine without a wire; and what is possible where the
//! tuned socket's work and the engine's are spread evenly over this machine's cores. The server and each
//! peer have a thread of their own in this process.
//! `cargo bench -p salamander-ps --bench remote` prints medians, and ratios above 1 where remote rows
//! are faster than a limit. Words after `--` choose: `tcp 64 400000`.

use std::hint::black_box;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use salamander_core::plan::MicroBatch;
use salamander_core::seed::Rng;
use salamander_net::tls::Files;
use salamander_net::{Cancel, Endpoint, Keys, Listener, Patience, Stream, Tls, Token};
use salamander_ps::client::{Client, ClientOptions, WantedRows};
use salamander_ps::role::{self, Config};
use salamander_ps::{
    Engine, EngineOptions, LedgerPage, Mode, Push, Read, TableId, TableRows, TableSpec,
};

#[path = "../../../benches/src/record.rs"]
mod record;

use record::Record;

/// Rows of a table that is beyond any cache, as real ones are.
const COLD: u64 = 400_000;
/// Rows of a table that a cache holds, so that the wire is what is measured.
const HOT: u64 = 20_000;
/// Batches that take turns: together as many rows as the larger table has.
const BATCHES: usize = 24;
/// Turns, of which the median counts.
const TURNS: usize = 11;
/// How long one turn takes at least.
const TURN: Duration = Duration::from_millis(40);
/// Calls between two looks at the clock: as many as there are batches.
const CALLS: u32 = BATCHES as u32;
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

impl Case {
    fn over(&self) -> &'static str {
        match (self.tls, self.over_tcp) {
            (true, _) => "tls",
            (false, true) => "tcp",
            (false, false) => "unix",
        }
    }

    fn kind(&self) -> &'static str {
        if self.bf16 { "bf16" } else { "f32" }
    }

    /// Whether a word after `--` means it.
    fn is_called(&self, word: &str) -> bool {
        [self.over(), self.kind()].contains(&word)
            || [self.dim as u64, self.table].iter().any(|number| number.to_string() == word)
    }
}

fn main() {
    // `cargo test --all-targets` starts benches as well, which only has to show that they build.
    if !std::env::args().any(|arg| arg == "--bench") {
        return;
    }
    println!("medians of {TURNS} turns; MB/s of request and answer together");
    print!("{:<5} {:<5} {:<4} {:>4} {:>6} {:>7} ", "what", "over", "as", "dim", "rows", "table");
    print!("{:>7} {:>7} {:>7} {:>7} ", "plain", "tuned", "stream", "local");
    println!("{:>8} {:>7}  {:>5} {:>5} {:>8}", "possible", "remote", "plain", "tuned", "possible");
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
    let words: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    let chosen = |case: &&Case| words.iter().all(|word| case.is_called(word));
    for case in cases.iter().filter(chosen) {
        measure(*case, &record);
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
        let options = ClientOptions { patience: LONG, bf16: case.bf16, ..ClientOptions::default() };
        let endpoints = vec![endpoint.to_string()];
        let client = Client::connect(endpoints, keys.clone(), options).expect("connected");
        let mut worker = Worker::new(client, &engine, case, record);
        let (ids, values) = (8 * case.rows, worker.wire_bytes());
        let pull: (Way<'_>, Way<'_>) = (Worker::pull, Worker::pull_here);
        compare(What::Pull, (ids, values), &mut worker, pull);
        compare(What::Push, (ids + values, 40), &mut worker, (Worker::push, Worker::push_here));
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
    /// Drawn ahead, since drawing is no part of what is measured.
    batches: Vec<Vec<u64>>,
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
            engine.set(TableRows { table, ids, values: &values }).expect("set");
        }
        let mut rng = Rng::new(7);
        let batches = (0..BATCHES).map(|_| draw(&mut rng, case)).collect();
        let values = vec![0.0; case.rows * case.dim];
        Self { client, engine, table, case, record, batches, values, step: 0 }
    }

    fn pull(&mut self, calls: u32) {
        let Self { client, table, batches, values, .. } = self;
        for ids in batches.iter().cycle().take(calls as usize) {
            let mut lookups = [WantedRows { table: *table, ids, out: values }];
            client.pull_into(Read::Train, None, &mut lookups).expect("pulled");
            black_box(&values);
        }
    }

    fn pull_here(&mut self, calls: u32) {
        let Self { engine, table, batches, values, .. } = self;
        for ids in batches.iter().cycle().take(calls as usize) {
            engine.pull(*table, ids, Read::Train, values).expect("pulled");
            black_box(&values);
        }
    }

    /// As a worker pushes: the acknowledgement of the last push is collected when the next one is sent.
    fn push(&mut self, calls: u32) {
        let Self { client, table, batches, values, step, .. } = self;
        let rows = |ids| [TableRows { table: *table, ids, values }];
        let rows: Vec<_> = batches.iter().map(|ids| rows(ids)).collect();
        let mut last = None;
        for rows in rows.iter().cycle().take(calls as usize) {
            let sent = client.begin_push(&push(step, rows), None).expect("pushed");
            if let Some(before) = last.replace(sent) {
                client.finish(before).expect("acknowledged");
            }
        }
        last.map(|last| client.finish(last).expect("acknowledged"));
    }

    fn push_here(&mut self, calls: u32) {
        let Self { engine, table, batches, values, step, .. } = self;
        for ids in batches.iter().cycle().take(calls as usize) {
            let rows = [TableRows { table: *table, ids, values }];
            engine.push(push(step, &rows)).expect("pushed");
        }
    }

    fn wire_bytes(&self) -> usize {
        self.values.len() * if self.case.bf16 { 2 } else { 4 }
    }
}

/// Ids of which each comes once: a random start, and strides that meet no id twice.
fn draw(rng: &mut Rng, case: Case) -> Vec<u64> {
    let start = rng.below(case.table);
    // Odd and no multiple of 5, so without a common factor with the size of the table.
    let stride = 10 * rng.below(case.table / 20) + 3;
    (0..case.rows).map(|at| (start + stride * at as u64) % case.table).collect()
}

fn push<'a>(step: &mut u64, rows: &'a [TableRows<'a>]) -> Push<'a> {
    *step += 1;
    let name = MicroBatch { epoch: 0, step: *step, k: 0 };
    Push { name, tally: LedgerPage::default(), factor: 1e-3, scale: 1.0, seen: None, rows }
}

/// How a worker does something so many times.
type Way<'a> = fn(&mut Worker<'a>, u32);

/// Times a worker beside plain sockets that send and receive so many bytes, and prints a line.
fn compare<'a>(
    what: What,
    bytes: (usize, usize),
    worker: &mut Worker<'a>,
    (remote, local): (Way<'a>, Way<'a>),
) {
    let ((request, answer), case) = (bytes, worker.case);
    std::thread::scope(|scope| {
        let [mut plain, mut tuned] = [false, true].map(|is_tuned| {
            let (plain, mut peer) = plain_pair(case.over_tcp, is_tuned);
            scope.spawn(move || {
                let (mut request, answer) = (vec![1; request], vec![1; answer]);
                while peer.read_exact(&mut request).is_ok() && peer.write_all(&answer).is_ok() {}
            });
            plain
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
        let mut times: [Vec<Taken>; 5] = Default::default();
        let talk = |plain: &mut Plain, space: &mut [u8], calls| {
            what.talk(calls, |part| match part {
                MessagePart::Request => plain.write_all(&message).expect("sent"),
                MessagePart::Answer => plain.read_exact(space).expect("received"),
            });
        };
        for turn in 0..=TURNS {
            let took = [
                time(|calls| talk(&mut plain, &mut space, calls)),
                time(|calls| talk(&mut tuned, &mut space, calls)),
                time(|calls| {
                    let patience = || Patience::new(&cancel, LONG);
                    what.talk(calls, |part| match part {
                        MessagePart::Request => bare.send(&[&message], &patience()).expect("sent"),
                        MessagePart::Answer => {
                            bare.receive(&mut space, &patience()).expect("received")
                        }
                    });
                }),
                time(|calls| local(worker, calls)),
                time(|calls| remote(worker, calls)),
            ];
            // The first turn warms up.
            if turn > 0 {
                times.iter_mut().zip(took).for_each(|(times, took)| times.push(took));
            }
        }
        bare.close();
        plain.close();
        tuned.close();
        print_line(what.name(), (case, worker.record), request + answer, times.map(median_of));
    });
}

/// What a worker asks for.
#[derive(Clone, Copy, PartialEq)]
enum What {
    Pull,
    /// Its answer is taken after the next request is sent, over plain sockets as well.
    Push,
}

enum MessagePart {
    Request,
    Answer,
}

impl What {
    fn name(self) -> &'static str {
        match self {
            Self::Pull => "pull",
            Self::Push => "push",
        }
    }

    /// So many requests and answers, in the order of this kind.
    fn talk(self, calls: u32, mut part: impl FnMut(MessagePart)) {
        for call in 0..calls {
            part(MessagePart::Request);
            if self == Self::Pull || call > 0 {
                part(MessagePart::Answer);
            }
        }
        if self == Self::Push {
            part(MessagePart::Answer);
        }
    }
}

fn print_line(what: &str, (case, record): (Case, &Record), bytes: usize, taken: [Taken; 5]) {
    let speed = |seconds: f64| bytes as f64 / seconds / 1e6;
    let [plain, tuned, stream, local, remote] = taken.map(|taken| speed(taken.wall));
    // Somebody has to do what the sockets do and what the table does, and there are so many cores for it.
    let cores = std::thread::available_parallelism().map_or(1, usize::from) as f64;
    let possible = speed(((taken[1].cpu + taken[3].cpu) / cores).max(taken[1].wall));
    let (over, kind, Case { dim, rows, table, .. }) = (case.over(), case.kind(), case);
    let name = format!("{what}, {over}, {kind}, dimension {dim}, {rows} of {table} rows");
    record.figure(&name, ("MB/s", "more"), remote, Some(plain));
    print!("{what:<5} {over:<5} {kind:<4} {dim:>4} {rows:>6} {table:>7} ");
    print!("{plain:>7.0} {tuned:>7.0} {stream:>7.0} {local:>7.0} {possible:>8.0} {remote:>7.0}  ");
    println!("{:>5.2} {:>5.2} {:>8.2}", remote / plain, remote / tuned, remote / possible);
}

/// Seconds of one call.
#[derive(Clone, Copy)]
struct Taken {
    wall: f64,
    /// Of all threads together.
    cpu: f64,
}

/// What one call takes, over as many as fill a turn.
fn time(mut work: impl FnMut(u32)) -> Taken {
    let (start, before) = (Instant::now(), cpu_seconds());
    let mut count = 0;
    while start.elapsed() < TURN {
        work(CALLS);
        count += CALLS;
    }
    let (wall, cpu) = (start.elapsed().as_secs_f64(), cpu_seconds() - before);
    Taken { wall: wall / f64::from(count), cpu: cpu / f64::from(count) }
}

/// What this process has used so far.
fn cpu_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

fn median_of(taken: Vec<Taken>) -> Taken {
    let wall = median(taken.iter().map(|taken| taken.wall).collect());
    Taken { wall, cpu: median(taken.iter().map(|taken| taken.cpu).collect()) }
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

fn plain_pair(over_tcp: bool, is_tuned: bool) -> (Plain, Plain) {
    if !over_tcp {
        let (near, far) = UnixStream::pair().expect("a pair");
        return (Plain::Unix(near), Plain::Unix(far));
    }
    let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
    let near = TcpStream::connect(listener.local_addr().expect("an address")).expect("connected");
    let (far, _) = listener.accept().expect("accepted");
    for stream in [&near, &far] {
        stream.set_nodelay(true).expect("an option");
        if is_tuned {
            // What ours have within one machine.
            rustix::net::sockopt::set_tcp_congestion(stream, "reno").expect("an option");
        }
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
