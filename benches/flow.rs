//! Flows beside what people use for the same work, on the same files: each job is a process, and all of its time on
//! processors counts, from its start on. And the memory of a flow with a bound, on an input and on one four times as
//! large.
//!
//! `SALAMANDER_PEERS=/path/to/python cargo bench -p benches --features flow --bench flow` (datafusion, duckdb, polars
//! and pandas with pyarrow there, tokenizers and datasets; each is left out if it is not). Words behind `--` choose
//! parts: `join`, `shuffle`, `tokens`, `memory`. `SALAMANDER_ROWS` gives other sizes, `SALAMANDER_PROGRAM` measures
//! another program than this one.

#[path = "src/asked.rs"]
mod asked;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use asked::AskedParts;
use benches::{PythonPeer, Record, as_program, median};

/// Rows of the large table, unless another number is asked for.
const ROWS: u64 = 8_000_000;
/// Rows of the small one.
const SHOPS: u64 = 100_000;
/// Texts, for so many rows.
const ROWS_OF_A_TEXT: u64 = 80;
/// How often each job is done; the median counts.
const TIMES: usize = 3;
/// How often a process is looked at.
const LOOK: Duration = Duration::from_millis(5);
/// The bound of memory, in megabytes, and what it may grow by on an input four times as large.
const BOUND: &str = "256";
const GROWTH: f64 = 1.25;

/// The allocator of the program `salamander`.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    if let Some(code) = as_program() {
        return code;
    }
    let Some(asked) = AskedParts::read() else { return ExitCode::SUCCESS };
    let rows = std::env::var("SALAMANDER_ROWS").ok().and_then(|rows| rows.parse().ok());
    let folder = tempfile::tempdir().expect("a folder");
    let bench = FlowBench {
        record: Record::begin("flow"),
        folder: folder.path().to_path_buf(),
        rows: rows.unwrap_or(ROWS),
    };
    let parts: [(&str, fn(&FlowBench)); 4] = [
        ("join", FlowBench::join),
        ("shuffle", FlowBench::shuffle),
        ("tokens", FlowBench::tokens),
        ("memory", FlowBench::memory),
    ];
    for (name, part) in parts {
        if asked.has(name) {
            println!("\n{name}");
            part(&bench);
        }
    }
    ExitCode::SUCCESS
}

struct FlowBench {
    record: Record,
    folder: PathBuf,
    rows: u64,
}

/// A job of a peer: its name, the packages that it needs, and how much of its time ours may take.
type Peer = (&'static str, &'static str, Option<f64>);

impl FlowBench {
    /// Sales of some price, by the city of their shop.
    fn join(&self) {
        let (sales, shops) = (self.sales(self.rows), self.shops());
        let query = format!(
            "select s.city, count(*) as sales, sum(b.price * b.units) as total \
             from '{sales}' b join '{shops}' s on b.shop = s.shop where b.price > 100 group by s.city"
        );
        let ours = self.ours(&["flow", "sql", &query]);
        let peers: [Peer; 4] = [
            ("datafusion", "datafusion", Some(1.15)),
            ("pandas", "pandas, pyarrow", Some(0.6)),
            ("polars", "polars", None),
            ("duckdb", "duckdb", None),
        ];
        self.compare("join", ours, &peers, &[&sales, &shops]);
    }

    /// All rows in another order, in shards with an index.
    fn shuffle(&self) {
        let sales = self.sales(self.rows);
        let query = format!("select * from '{sales}'");
        let ours = self.ours(&["flow", "sql", &query, "--shuffle", "7", "--shards", "16"]);
        let peers: [Peer; 3] = [
            ("duckdb", "duckdb", Some(1.0)),
            ("polars", "polars", None),
            ("pandas", "pandas, pyarrow", None),
        ];
        self.compare("shuffle", ours, &peers, &[&sales]);
    }

    /// Texts as the ids of their tokens.
    fn tokens(&self) {
        let Some(peer) = PythonPeer::find("flow.py", "tokenizers") else { return };
        let (texts, tokenizer) = (self.texts(), self.at("tokenizer.json"));
        if !peer.run(["tokenizer".to_string(), texts.clone(), tokenizer.clone()]) {
            return;
        }
        let set = format!("tokenizer={tokenizer}");
        let ours = self.ours(&["flow", "run", "tokens", "--in", &texts, "--set", &set]);
        let peers: [Peer; 1] = [("datasets", "datasets, tokenizers", Some(1.0 / 1.5))];
        self.compare("tokens", ours, &peers, &[&texts, &tokenizer]);
    }

    /// The most memory that a process has at a time.
    fn memory(&self) {
        let jobs = [
            ("groups", "select id, sum(price) as price from 'SALES' group by id"),
            ("a join", "select a.id, b.price from 'SALES' a join 'SALES' b on a.id = b.id"),
        ];
        for (name, query) in jobs {
            let [once, four_times] = [1, 4].map(|times| {
                let query = query.replace("SALES", &self.sales(self.rows * times));
                // Shards of one size, since each of them is sorted in memory.
                let shards = (16 * times).to_string();
                let line = ["flow", "sql", &query, "--memory", BOUND, "--shards", &shards];
                self.once(&line).megabytes
            });
            println!(
                "{name}, {BOUND} MB: {once:.0} MB, {four_times:.0} MB for four times the input"
            );
            let figure = format!("peak memory of {name}, four times the input to once");
            self.record.figure(&figure, ("times", "less"), four_times / once, Some(GROWTH));
        }
    }

    fn at(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    /// A table of numbers, made once.
    fn sales(&self, rows: u64) -> String {
        let query = format!(
            "select value as id, (value * 7919) % {SHOPS} as shop, (value * 104729) % 1000 as price, \
             (value * 31) % 7 as units from generate_series(0, {})",
            rows - 1
        );
        self.table(&format!("sales-{rows}"), &query, (rows / 1_000_000).max(1))
    }

    fn shops(&self) -> String {
        let last = SHOPS - 1;
        let query =
            format!("select value as shop, value % 500 as city from generate_series(0, {last})");
        self.table("shops", &query, 1)
    }

    /// A folder of Parquet files with the rows of a query.
    fn table(&self, name: &str, query: &str, shards: u64) -> String {
        let folder = self.folder.join(name);
        if !folder.exists() {
            let mut command = Command::new(program());
            command.args(["flow", "sql", query, "--shards", &shards.to_string(), "--out"]);
            spent(command.arg(&folder)).expect("a table");
        }
        format!("{}/", folder.join("train").display())
    }

    /// Texts of words, of which some are frequent.
    fn texts(&self) -> String {
        let mut text = String::from("text,label\n");
        let mut random: u64 = 1;
        for row in 0..self.rows / ROWS_OF_A_TEXT {
            for _ in 0..60 {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let [a, b] = [(random >> 40) % 97, (random >> 50) % 89];
                text += &format!("w{}ord{} ", a * b % 23, a * b * b % 1009);
            }
            text += if row % 2 == 0 { ",positive\n" } else { ",negative\n" };
        }
        let path = self.at("texts.csv");
        fs::write(&path, text).expect("written");
        path
    }

    /// What a job of ours takes, as the median of some times.
    fn ours(&self, line: &[&str]) -> Spent {
        let all: Vec<Spent> = (0..TIMES).map(|_| self.once(line)).collect();
        Spent::median(&all)
    }

    fn once(&self, line: &[&str]) -> Spent {
        let out = self.folder.join("out");
        let mut command = Command::new(program());
        let spent = spent(command.args(line).arg("--out").arg(&out)).expect("it runs");
        fs::remove_dir_all(&out).expect("its output");
        spent
    }

    /// Has peers do the same, and prints how much of their time ours took.
    fn compare(&self, job: &str, ours: Spent, peers: &[Peer], inputs: &[&str]) {
        println!("{:<12} {ours}", "ours");
        let figure = format!("{job}, seconds of processors");
        self.record.figure(&figure, ("s", "less"), ours.processor, None);
        for (name, packages, goal) in peers {
            if PythonPeer::find("flow.py", packages).is_none() {
                continue;
            }
            let words = [&[job, *name][..], inputs].concat();
            let all: Vec<Spent> = (0..TIMES).filter_map(|_| self.peer(&words)).collect();
            if all.len() < TIMES {
                println!("{name:<12} did not end well: no ratio");
                continue;
            }
            let theirs = Spent::median(&all);
            let ratio = ours.processor / theirs.processor;
            let meant = goal.map_or_else(String::new, |goal| format!(" (goal at most {goal:.2})"));
            println!("{name:<12} {theirs}; ours takes {ratio:.2} of its time{meant}");
            let figure = format!("{job}, processor's time to that of {name}");
            self.record.figure(&figure, ("of its time", "less"), ratio, *goal);
        }
    }

    fn peer(&self, words: &[&str]) -> Option<Spent> {
        let out = self.folder.join("peer");
        fs::create_dir_all(&out).expect("a folder");
        let python = std::env::var("SALAMANDER_PEERS").unwrap_or_else(|_| "python3".to_string());
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers/flow.py");
        let spent = spent(Command::new(python).arg(script).args(words).arg(&out));
        fs::remove_dir_all(&out).expect("its output");
        spent
    }
}

fn program() -> PathBuf {
    let named = std::env::var_os("SALAMANDER_PROGRAM").map(PathBuf::from);
    named.unwrap_or_else(|| std::env::current_exe().expect("this program"))
}

/// What a process took.
#[derive(Clone, Copy, Debug)]
struct Spent {
    /// Seconds of all its threads on processors.
    processor: f64,
    /// Seconds by the clock.
    clock: f64,
    /// The most memory that it had.
    megabytes: f64,
}

impl Spent {
    fn median(all: &[Spent]) -> Spent {
        let of = |value: fn(&Spent) -> f64| median(&mut all.iter().map(value).collect::<Vec<_>>());
        Spent {
            processor: of(|spent| spent.processor),
            clock: of(|spent| spent.clock),
            megabytes: of(|spent| spent.megabytes),
        }
    }
}

impl std::fmt::Display for Spent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { processor, clock, megabytes } = self;
        write!(f, "{processor:>6.2} s of processors, {clock:>6.2} s, {megabytes:>5.0} MB")
    }
}

/// Runs a command to its end; nothing if it fails.
fn spent(command: &mut Command) -> Option<Spent> {
    let (before, begun) = (of_children(), Instant::now());
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().ok()?;
    let status = PathBuf::from(format!("/proc/{}/status", child.id()));
    let mut megabytes = 0.0;
    loop {
        // It only grows, and is gone with the process.
        megabytes = peak(&status).unwrap_or(megabytes);
        if let Some(ended) = child.try_wait().ok()? {
            let (processor, clock) = (of_children() - before, begun.elapsed().as_secs_f64());
            return ended.success().then_some(Spent { processor, clock, megabytes });
        }
        std::thread::sleep(LOOK);
    }
}

/// Megabytes.
fn peak(status: &Path) -> Option<f64> {
    let text = fs::read_to_string(status).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.split_whitespace().next()?.parse::<f64>().ok().map(|kilobytes| kilobytes / 1024.0)
}

/// Seconds that children which have ended had a processor, as Linux counts them.
fn of_children() -> f64 {
    let text = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // Behind the program's name in brackets, which may have spaces: 14th and 15th, in hundredths.
    let behind = text.rsplit_once(')').map_or("", |(_, behind)| behind);
    let ticks = behind.split_whitespace().skip(13).take(2);
    ticks.filter_map(|ticks| ticks.parse::<f64>().ok()).sum::<f64>() / 100.0
}
