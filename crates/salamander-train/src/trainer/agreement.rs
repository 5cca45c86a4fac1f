//! Whether all members hold the same parameters. Nothing but a fault of a machine or of this program can make them
//! differ, and neither shows by itself: sums stay equal while what they are applied to drifts apart. So a hash of them
//! goes round with a pass now and then, and with every checkpoint.

use std::time::{Duration, Instant};

use salamander_core::seed::mix;

use super::Trainer;
use crate::bucket::digest_bytes;
use crate::trial::Trial;
use crate::{Error, params};

/// Hashing may take one part in so many of the time. How long it takes is measured, so there is no period to choose.
const SHARE: u32 = 200;

/// When parameters are compared next. All members agree on it: the first of them says so in a pass before.
pub(super) struct Agreement {
    /// The next pass compares them.
    is_due: bool,
    /// How long the last hash took here.
    took: Duration,
    compared: Instant,
}

impl Agreement {
    /// A generation compares at once: its members may have come by their state in different ways.
    pub(super) fn at_once() -> Self {
        Self { is_due: true, took: Duration::ZERO, compared: Instant::now() }
    }

    /// Whether enough time has passed; asked of the member that speaks for all.
    pub(super) fn proposes(&self) -> bool {
        self.compared.elapsed() >= self.took * SHARE
    }

    /// What the first member has proposed.
    pub(super) fn follow(&mut self, proposed: bool) {
        self.is_due = proposed;
    }
}

/// What the hashes of all members say, by rank.
#[derive(Debug, PartialEq, Eq)]
enum HashVote {
    Same,
    /// These differ from most.
    Odd(Vec<usize>),
    /// No value has a majority, so that nobody can tell who is right.
    Split,
}

fn verdict(hashes: &[Option<u64>]) -> HashVote {
    let votes = |value: &Option<u64>| hashes.iter().filter(|other| *other == value).count();
    match hashes.iter().max_by_key(|value| votes(value)) {
        Some(most) if votes(most) == hashes.len() => HashVote::Same,
        Some(most) if 2 * votes(most) > hashes.len() => {
            let odd = (0..hashes.len()).filter(|rank| hashes[*rank] != *most);
            HashVote::Odd(odd.collect())
        }
        Some(_) => HashVote::Split,
        None => HashVote::Same,
    }
}

impl<T: Trial> Trainer<T> {
    /// The hash that this member gives away with a pass, if it is time.
    pub(super) fn due_weights(&mut self) -> Option<u64> {
        self.agreement.is_due.then(|| self.own_weights())
    }

    /// A hash of the parameters and running values that this member holds.
    pub(super) fn own_weights(&mut self) -> u64 {
        let started = Instant::now();
        let model = params::read(&*self.state.model);
        let hash =
            model.iter().fold(0, |state, (_, data)| mix(state ^ digest_bytes(data.as_bytes())));
        self.agreement.compared = Instant::now();
        self.agreement.took = started.elapsed();
        hash
    }

    /// Goes on if all members have the same. One that differs from most leaves the run, and another worker takes its
    /// place; without a majority all leave, and the run goes on from its last checkpoint.
    pub(super) fn agree(&self, hashes: &[Option<u64>]) -> Result<(), Error> {
        let (steps, rank) = (self.course.progress().steps, self.place.rank);
        let named = |ranks: &[usize]| {
            let names: Vec<String> = ranks.iter().map(|rank| self.exchange.name(*rank)).collect();
            names.join(", ")
        };
        match verdict(hashes) {
            HashVote::Same => Ok(()),
            HashVote::Odd(odd) if odd.contains(&rank) => Err(Error::Differs(format!(
                "{} holds other parameters than most members after {steps} steps, though all applied the same sums: \
                 it leaves the run (look at the memory of its machine)",
                named(&[rank])
            ))),
            HashVote::Odd(odd) => {
                let reason =
                    format!("{} holds other parameters than most after {steps} steps", named(&odd));
                tracing::error!(reason, "a member differs");
                Err(Error::Broken(reason))
            }
            HashVote::Split => {
                let all: Vec<usize> = (0..hashes.len()).collect();
                Err(Error::Differs(format!(
                    "the parameters of {} differ after {steps} steps, though all applied the same sums, and none of \
                     them has a majority: all leave, and the run goes on from its last checkpoint",
                    named(&all)
                )))
            }
        }
    }
}

#[cfg(test)]
mod tests;
