//! Members that die, leave or give up: the others learn of it at once, and go on without them in the
//! next generation.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use salamander_net::{Cancel, Endpoint, Error, Fold, Keys, Ring, Tls, Token};

use crate::group::{Group, WAYS, Way, certificates, listener, options};

/// Far more than any of this takes on a busy machine, and far less than a timeout would.
const PROMPT: Duration = Duration::from_secs(60);
const LEN: usize = 1 << 18;

/// Sums ones until an error comes.
fn sum_until_error(ring: Ring) -> Error {
    sum_and_count(ring, &AtomicUsize::new(0))
}

/// The same; counts the sums.
fn sum_and_count(mut ring: Ring, count: &AtomicUsize) -> Error {
    for round in 0.. {
        let size = ring.size() as f32;
        match sum(&mut ring, round) {
            Ok(sums) => assert!(sums.iter().all(|sum| *sum == size)),
            Err(error) => return error,
        }
        count.fetch_add(1, Ordering::Relaxed);
    }
    unreachable!("it sums until an error comes")
}

/// Sums ones, in the order of ranks, in that of a fold and in that of a balanced tree by turns.
fn sum(ring: &mut Ring, round: usize) -> Result<&mut [f32], Error> {
    ring.bucket(LEN)?.fill(1.0);
    let size = ring.size();
    match round % 3 {
        0 => ring.all_reduce(LEN),
        1 if size.is_power_of_two() => {
            let joins = (0..size).map(usize::trailing_ones).collect();
            ring.fold(LEN, &Fold::new(vec![1; size], joins).expect("one sum"))
        }
        _ => ring.fold(LEN, &Fold::by_rank(size)),
    }
}

#[test]
fn dropped_ring_is_lost_to_all_others() {
    for way in WAYS {
        let outcomes = Group::new(4, way).run(1, |mut ring| {
            if ring.rank() == 2 {
                for round in 0..3 {
                    sum(&mut ring, round).expect("all are there");
                }
                return None;
            }
            Some((ring.rank(), sum_until_error(ring), Instant::now()))
        });
        for (rank, error, _) in outcomes.into_iter().flatten() {
            let Error::Lost { rank: lost, .. } = &error else { panic!("{way:?}: {error}") };
            if way == Way::Shm {
                assert_eq!(*lost, 2, "rank {rank} {error}");
            }
        }
    }
}

#[test]
fn failed_ring_stays_failed() {
    for way in WAYS {
        Group::new(2, way).run(1, |mut ring| {
            if ring.rank() == 1 {
                return;
            }
            assert!(matches!(ring.barrier(), Err(Error::Lost { rank: 1, .. })));
            assert!(matches!(ring.bucket(1), Err(Error::Lost { rank: 1, .. })));
            assert!(matches!(ring.all_gather(b"x"), Err(Error::Lost { rank: 1, .. })));
        });
    }
}

#[test]
fn cancel_ends_a_wait_at_once() {
    for way in WAYS {
        let group = Group::new(3, way);
        let (cancel, connected) = (Cancel::new(), Barrier::new(3));
        std::thread::scope(|scope| {
            // One member never comes to the sum.
            let idle = scope.spawn(|| group.connect(1, 1, &Cancel::new()));
            let others: Vec<_> = [0, 2]
                .into_iter()
                .map(|rank| {
                    let (group, cancel, connected) = (&group, cancel.clone(), &connected);
                    scope.spawn(move || {
                        let ring = group.connect(1, rank, &cancel);
                        connected.wait();
                        let mut ring = ring.expect("connected");
                        let error = ring.barrier().expect_err("cancelled");
                        (error, Instant::now())
                    })
                })
                .collect();
            let idle = idle.join();
            connected.wait();
            let _idle = idle.expect("no panic").expect("connected");
            std::thread::sleep(Duration::from_millis(30));
            cancel.cancel();
            let cancelled = Instant::now();
            for other in others {
                let (error, at) = other.join().expect("no panic");
                // The first one that leaves may be noticed before the flag is.
                let is_due = matches!(error, Error::Cancelled | Error::Lost { .. });
                assert!(is_due, "{way:?}: {error}");
                assert!(at - cancelled < PROMPT, "{way:?}");
            }
        });
    }
}

#[test]
fn cancel_ends_connecting() {
    for way in WAYS {
        let group = Group::new(2, way);
        let cancel = Cancel::new();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| group.connect(1, 0, &cancel).map(drop));
            std::thread::sleep(Duration::from_millis(20));
            cancel.cancel();
            let outcome = waiting.join().expect("no panic");
            assert!(matches!(outcome, Err(Error::Cancelled)), "{way:?}: {outcome:?}");
        });
    }
}

#[test]
fn missing_member_is_named_after_the_timeout() {
    let mut group = Group::new(2, Way::Shm);
    group.options.connect_timeout = Duration::from_millis(50);
    let outcome = group.connect(1, 0, &Cancel::new()).map(drop);
    assert!(matches!(outcome, Err(Error::Lost { rank: 1, .. })), "{outcome:?}");
    let dead = listener(&group.keys).endpoint();
    group.members[0] = dead;
    let outcome = group.connect(2, 1, &Cancel::new()).map(drop);
    assert!(matches!(outcome, Err(Error::Lost { rank: 0, .. })), "{outcome:?}");
}

/// All kinds of collectives, until an error comes.
fn do_all_until_error(mut ring: Ring) -> Error {
    let mut all = |round: usize| -> Result<(), Error> {
        let len = 1000 * (1 + round % 7);
        ring.bucket(len)?.fill(1.0);
        ring.all_reduce(len)?;
        let own = vec![ring.rank() as u8; round % 3 * 1000];
        assert_eq!(ring.all_gather(&own)?[ring.rank()], own);
        let root = round % ring.size();
        let bytes = if ring.rank() == root { vec![1; 100_000] } else { Vec::new() };
        assert_eq!(ring.broadcast(root, bytes, 1 << 20)?.len(), 100_000);
        ring.barrier()
    };
    (0..).find_map(|round| all(round).err()).expect("it goes on until an error comes")
}

#[test]
fn generations_follow_each_other_whenever_a_member_gives_up() {
    for way in WAYS {
        let group = Group::new(4, way);
        for generation in 1..=12 {
            let cancels: Vec<Cancel> = (0..4).map(|_| Cancel::new()).collect();
            std::thread::scope(|scope| {
                let threads: Vec<_> = (0..4)
                    .map(|rank| {
                        let (group, cancel) = (&group, &cancels[rank]);
                        scope.spawn(move || {
                            group.connect(generation, rank, cancel).map(do_all_until_error)
                        })
                    })
                    .collect();
                std::thread::sleep(Duration::from_micros(generation * 1700));
                let given_up = Instant::now();
                cancels[generation as usize % 4].cancel();
                // The control plane tells the others a little later, in case they still connect.
                std::thread::sleep(Duration::from_millis(10));
                cancels.iter().for_each(Cancel::cancel);
                for thread in threads {
                    let error = thread.join().expect("no panic").unwrap_or_else(|error| error);
                    let is_due = matches!(error, Error::Cancelled | Error::Lost { .. });
                    assert!(is_due, "{way:?} {generation}: {error}");
                }
                assert!(given_up.elapsed() < PROMPT, "{way:?} {generation}");
            });
        }
    }
}

/// A member in a process of its own.
struct Process {
    child: Child,
    endpoint: Endpoint,
}

impl Process {
    fn start(keys: &Keys) -> Self {
        let program = std::env::current_exe().expect("this program");
        let mut child = Command::new(program)
            .args(["failures::process_of_a_member", "--exact", "--nocapture"])
            .env("SALAMANDER_NET_TEST_TOKEN", keys.token.to_hex())
            .envs(keys.tls.as_ref().map(|_| ("SALAMANDER_NET_TEST_TLS", certificates())))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a process");
        let lines = BufReader::new(child.stdout.take().expect("its output")).lines();
        let endpoint = lines
            .map_while(Result::ok)
            .find_map(|line| line.split("endpoint=").nth(1)?.parse().ok())
            .expect("its endpoint");
        Self { child, endpoint }
    }

    fn join(&mut self, way: Way, rank: usize, members: &[Endpoint]) {
        let stdin = self.child.stdin.as_mut().expect("its input");
        writeln!(stdin, "{way:?} {rank}").expect("it reads");
        for member in members {
            writeln!(stdin, "{member}").expect("it reads");
        }
        writeln!(stdin).expect("it reads");
    }
}

/// What [`Process`] runs; nothing in a usual run of the tests.
#[test]
fn process_of_a_member() {
    let Ok(token) = std::env::var("SALAMANDER_NET_TEST_TOKEN") else { return };
    let folder = std::env::var("SALAMANDER_NET_TEST_TLS").ok();
    let tls = folder.map(|folder| Tls::load(folder.as_ref()).expect("certificates"));
    let keys = Keys { tls, ..Keys::from(Token::from_hex(&token).expect("a token")) };
    let listener = listener(&keys);
    println!("\nendpoint={}", listener.endpoint());
    let mut lines = std::io::stdin().lines().map_while(Result::ok);
    let head = lines.next().expect("the way and the rank");
    let (way, rank) = head.split_once(' ').expect("two words");
    let way = WAYS.into_iter().find(|known| format!("{known:?}") == way).expect("a way");
    let rank = rank.parse().expect("a rank");
    let members: Vec<Endpoint> = lines
        .take_while(|line| !line.is_empty())
        .map(|line| line.parse().expect("an endpoint"))
        .collect();
    let ring = Ring::connect(&listener, 1, rank, &members, &options(way), &Cancel::new());
    sum_until_error(ring.expect("connected"));
}

#[test]
fn killed_process_is_lost_and_survivors_go_on() {
    for way in WAYS {
        let mut group = Group::new(3, way);
        let mut process = Process::start(&group.keys);
        group.members.push(Endpoint {
            // As in the group: the last one is alone, or beside rank 2.
            host: group.members[2].host.clone(),
            ..process.endpoint.clone()
        });
        process.join(way, 3, &group.members);
        let sums = [const { AtomicUsize::new(0) }; 3];
        let (survivors, killed_at) = std::thread::scope(|scope| {
            let (group, sums) = (&group, &sums);
            let threads: Vec<_> = (0..3)
                .map(|rank| {
                    scope.spawn(move || {
                        let ring = group.connect(1, rank, &Cancel::new()).expect("connected");
                        (sum_and_count(ring, &sums[rank]), Instant::now())
                    })
                })
                .collect();
            // All are in the ring, or a member has failed, which shows below.
            while sums.iter().any(|sums| sums.load(Ordering::Relaxed) == 0)
                && !threads.iter().any(|thread| thread.is_finished())
            {
                std::thread::sleep(Duration::from_millis(1));
            }
            process.child.kill().expect("it runs");
            let killed_at = Instant::now();
            process.child.wait().expect("it has ended");
            let outcomes: Vec<_> =
                threads.into_iter().map(|thread| thread.join().expect("no panic")).collect();
            (outcomes, killed_at)
        });
        for (rank, (error, at)) in survivors.iter().enumerate() {
            let Error::Lost { rank: lost, .. } = error else { panic!("{way:?}: {error}") };
            assert!(way != Way::Shm || *lost == 3, "rank {rank}: {error}");
            assert!(at.duration_since(killed_at) < PROMPT, "{way:?} rank {rank}");
        }
        group.members.pop();
        group.listeners.iter().for_each(|listener| listener.fence(2));
        group.run(2, |mut ring| {
            ring.bucket(LEN).expect("a bucket").fill(1.0);
            let sums = ring.all_reduce(LEN).expect("the survivors are there");
            assert!(sums.iter().all(|sum| *sum == 3.0));
        });
    }
}
