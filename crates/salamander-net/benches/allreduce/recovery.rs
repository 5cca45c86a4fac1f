//! The time from killing one of four members in mid-sum to the next right sum of the others.

use std::time::Duration;

use crate::median;
use crate::member::clock;
use crate::process::{Gloo, MemberProcess, ours};

const MEMBERS: usize = 4;
const LEN: usize = (16 << 20) / 4;
const ROUNDS: usize = 5;

/// What was measured for one transport.
pub(crate) struct Recovery {
    pub(crate) name: &'static str,
    pub(crate) milliseconds: f64,
}

/// Measures our transports and Gloo, in turns.
pub(crate) fn measure(gloo: Option<&Gloo>) -> Vec<Recovery> {
    let mut times = [("shm", Vec::new()), ("tcp", Vec::new()), ("gloo", Vec::new())];
    for round in 0..ROUNDS {
        eprintln!("recovery, round {} of {ROUNDS} ...", round + 1);
        times[0].1.push(kill_one_of_ours("shm"));
        times[1].1.push(kill_one_of_ours("tcp"));
        if let Some(gloo) = gloo {
            times[2].1.push(kill_one_of_gloo(gloo));
        }
    }
    let measured = times.into_iter().filter(|(_, times)| !times.is_empty());
    measured.map(|(name, times)| Recovery { name, milliseconds: median(times) }).collect()
}

fn kill_one_of_ours(name: &str) -> f64 {
    let (members, endpoints) = ours(MEMBERS, name);
    let all = endpoints.join(" ");
    let survivors = endpoints[..MEMBERS - 1].join(" ");
    let join = |rank: usize| format!("join 1 {name} {rank} {all}");
    kill_one(members, Some(&join), |rank| format!("survive {LEN} 2 {name} {rank} {survivors}"))
}

fn kill_one_of_gloo(gloo: &Gloo) -> f64 {
    let members = gloo.start(MEMBERS);
    kill_one(members, None, |rank| format!("survive {LEN} second {rank} {}", MEMBERS - 1))
}

/// Kills the last member; milliseconds until the last of the others has a right sum.
fn kill_one(
    mut members: Vec<MemberProcess>,
    join: Option<&dyn Fn(usize) -> String>,
    survive: impl Fn(usize) -> String,
) -> f64 {
    if let Some(join) = join {
        crate::process::all(&mut members, join);
    }
    for (rank, member) in members.iter_mut().enumerate() {
        member.tell(&survive(rank));
    }
    std::thread::sleep(Duration::from_millis(500));
    let mut victim = members.pop().expect("four members");
    let killed = clock();
    victim.kill();
    let mut last = killed;
    for member in &mut members {
        let answer = member.hear();
        last = last.max(answer.parse().unwrap_or_else(|_| panic!("a time, not {answer}")));
    }
    (last - killed) as f64 / 1e6
}
