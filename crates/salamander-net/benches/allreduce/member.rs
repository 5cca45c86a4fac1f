//! A member, driven over its input and output: each line in is a command, and has a line out.

use std::time::Instant;

use rustix::time::{ClockId, clock_gettime};
use salamander_net::{
    Cancel, Endpoint, Fold, Keys, Listener, Ring, RingOptions, Tls, Token, Transport,
};

use crate::process::{CERTIFICATES, MEMBER};

/// Obeys until the input ends.
pub(crate) fn run() {
    let token = std::env::var(MEMBER).expect("the token");
    let folder = std::env::var_os(CERTIFICATES);
    let tls = folder.map(|folder| Tls::load(folder.as_ref()).expect("certificates"));
    let keys = Keys { tls, ..Keys::from(Token::from_hex(&token).expect("a token")) };
    let address = "127.0.0.1:0".parse().expect("an address");
    let listener = Listener::bind(address, keys).expect("a listener");
    println!("{}", listener.endpoint());
    let mut ring = None;
    for line in std::io::stdin().lines().map_while(Result::ok) {
        let words: Vec<&str> = line.split(' ').collect();
        match words[0] {
            "join" => {
                ring = Some(join(&listener, &words[1..]));
                println!("joined");
            }
            "reduce" => {
                let ring = ring.as_mut().expect("joined before");
                let order = (words[4] == "tree").then(|| tree(ring.size()));
                let (seconds, cpu) = reduce(ring, &words[1..4], order.as_ref());
                println!("{seconds} {cpu}");
            }
            "survive" => {
                let ring = ring.take().expect("joined before");
                println!("{}", survive(ring, &listener, number(words[1]), &words[2..]));
            }
            _ => panic!("unknown command {line}"),
        }
    }
}

/// The monotonic clock, which all processes share.
pub(crate) fn clock() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// `GENERATION TRANSPORT RANK ENDPOINT...`
fn join(listener: &Listener, words: &[&str]) -> Ring {
    let transport = match words[1] {
        "shm" | "shm-tree" => Transport::Shm,
        _ => Transport::Tcp,
    };
    let options =
        RingOptions { transport, bf16: words[1] == "bf16", connect_timeout: crate::PATIENCE };
    let members: Vec<Endpoint> =
        words[3..].iter().map(|word| word.parse().expect("an endpoint")).collect();
    let (generation, rank) = (number(words[0]) as u64, number(words[2]));
    Ring::connect(listener, generation, rank, &members, &options, &Cancel::new())
        .expect("connected")
}

/// The tree over eight slices, as so many members share them.
fn tree(size: usize) -> Fold {
    let (parts, joins) = match size {
        2 => (vec![1, 1], vec![0, 1]),
        3 => (vec![1, 2, 2], vec![0, 1, 0, 1, 2]),
        _ => (vec![1; 4], vec![0, 1, 0, 2]),
    };
    Fold::new(parts, joins).expect("one sum")
}

/// `LENGTH WARMUP SUMS`: sums in place; the seconds and CPU seconds that all sums took.
fn reduce(ring: &mut Ring, words: &[&str], order: Option<&Fold>) -> (f64, f64) {
    let len = number(words[0]);
    let room = order.map_or(len, |order| order.bucket_len(len));
    ring.bucket(room).expect("a bucket").fill(1.0);
    let sum = |ring: &mut Ring| match order {
        Some(order) => drop(ring.fold(len, order).expect("a sum")),
        None => drop(ring.all_reduce(len).expect("a sum")),
    };
    for _ in 0..number(words[1]) {
        sum(ring);
    }
    ring.barrier().expect("all are there");
    let (cpu, start) = (cpu_seconds(), Instant::now());
    for _ in 0..number(words[2]) {
        sum(ring);
    }
    (start.elapsed().as_secs_f64(), cpu_seconds() - cpu)
}

/// Sums until a member is gone, goes on without it, and gives the time of the next right sum.
fn survive(mut ring: Ring, listener: &Listener, len: usize, words: &[&str]) -> u64 {
    while let Ok(bucket) = ring.bucket(len) {
        bucket.fill(1.0);
        if ring.all_reduce(len).is_err() {
            break;
        }
    }
    drop(ring);
    let mut ring = join(listener, words);
    ring.bucket(len).expect("a bucket").fill(1.0);
    let size = ring.size() as f32;
    let sums = ring.all_reduce(len).expect("a sum");
    assert!(sums.iter().all(|sum| *sum == size), "the sum of the survivors is right");
    clock()
}

/// User and system time of this process.
fn cpu_seconds() -> f64 {
    let used = clock_gettime(ClockId::ProcessCPUTime);
    used.tv_sec as f64 + used.tv_nsec as f64 / 1e9
}

fn number(word: &str) -> usize {
    word.parse().expect("a number")
}
