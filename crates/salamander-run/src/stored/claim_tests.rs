//! Masters race for a journal in a store that loses answers, delays puts and forgets none of them.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;

use salamander_core::environment;
use salamander_core::seed::derive;
use salamander_master::journal::sign;

use super::*;

const SEEDS: u64 = 20_000;

/// How many seeds are tried; `SALAMANDER_SEEDS` asks for more.
fn seeds() -> u64 {
    let asked = std::env::var(environment::SEEDS);
    asked.map_or(SEEDS, |seeds| seeds.parse().expect("a number of seeds"))
}

/// What is to be put, and what must be there for it.
type UnderWay = (Vec<u8>, Option<Vec<u8>>);

/// A store with one object. What a put comes to is drawn from the seed.
struct Races {
    seed: u64,
    turn: Cell<u64>,
    content: RefCell<Option<Vec<u8>>>,
    /// Puts that are on their way, though whoever sent them has given up.
    under_way: RefCell<Vec<UnderWay>>,
    /// A store that ignores conditions.
    careless: bool,
}

impl Races {
    fn draw(&self, of: u64) -> u64 {
        self.turn.set(self.turn.get() + 1);
        derive(self.seed, &[self.turn.get()]) % of
    }

    fn apply(&self, bytes: Vec<u8>, seen: Option<&Vec<u8>>) -> bool {
        let fits = self.careless || self.content.borrow().as_ref() == seen;
        if fits {
            self.content.replace(Some(bytes));
        }
        fits
    }

    fn deliver(&self) {
        let number = self.under_way.borrow().len() as u64;
        if number > 0 {
            let at = self.draw(number) as usize;
            let (bytes, seen) = self.under_way.borrow_mut().swap_remove(at);
            self.apply(bytes, seen.as_ref());
        }
    }
}

impl StoredObject for Races {
    type Version = Vec<u8>;
    type Error = &'static str;

    fn read(&self) -> Result<Option<(Vec<u8>, Vec<u8>)>, &'static str> {
        match self.draw(6) {
            0 => Err("no answer"),
            _ => Ok(self.content.borrow().clone().map(|bytes| (bytes.clone(), bytes))),
        }
    }

    fn put_if(
        &self,
        bytes: Vec<u8>,
        seen: Option<&Vec<u8>>,
    ) -> Result<Option<Vec<u8>>, &'static str> {
        match self.draw(6) {
            0 => Err("it never arrived"),
            1 => {
                self.apply(bytes, seen);
                Err("the answer was lost")
            }
            2 => {
                self.under_way.borrow_mut().push((bytes, seen.cloned()));
                Err("it is slow")
            }
            _ => Ok(self.apply(bytes.clone(), seen).then_some(bytes)),
        }
    }
}

/// What a journal says here: the terms of masters and the records of each, as text.
type Lines = Vec<String>;

fn lines(content: &[u8]) -> Lines {
    let unsigned = &content[..content.len() - (sign(&[], [0; 16]).len())];
    String::from_utf8_lossy(unsigned).lines().map(str::to_string).collect()
}

struct Racer {
    claim: Claim<Vec<u8>>,
    lines: Lines,
    leads: bool,
}

/// One race; what goes wrong is told.
fn race(seed: u64, careless: bool) -> Result<usize, String> {
    let store = Races {
        seed,
        turn: Cell::new(0),
        content: RefCell::default(),
        under_way: RefCell::default(),
        careless,
    };
    let mut racers: Vec<Option<Racer>> = vec![None, None, None];
    let mut folders: [Lines; 3] = Default::default();
    let (mut terms, mut certain): (BTreeSet<usize>, Lines) = Default::default();
    for turn in 0..120u64 {
        let at = store.draw(3) as usize;
        match (store.draw(8), racers[at].take()) {
            (0, _) => {}
            (1, racer) => {
                store.deliver();
                racers[at] = racer;
            }
            (_, None) => {
                let Ok(found) = store.read() else { continue };
                let (stored, seen) = match found {
                    Some((content, version)) => (lines(&content), Some(version)),
                    None => (Vec::new(), None),
                };
                // What its folder has counts if it goes on from the store, as `goes_on_from` says.
                let own = folders[at].clone();
                let mut lines = if own.starts_with(&stored) { own } else { stored };
                let term = lines.iter().filter(|line| line.starts_with("term")).count() + 1;
                lines.push(format!("term {term}"));
                let mut nonce = [at as u8; 16];
                nonce[..8].copy_from_slice(&turn.to_le_bytes());
                racers[at] = Some(Racer { claim: Claim::new(nonce, seen), lines, leads: false });
            }
            (_, Some(mut racer)) => {
                if racer.leads {
                    racer.lines.push(format!("record {turn}"));
                }
                folders[at].clone_from(&racer.lines);
                match racer.claim.put(&store, racer.lines.join("\n").as_bytes()) {
                    Ok(()) => {
                        if !racer.lines.starts_with(&certain) {
                            return Err(format!("seed {seed}: what was certain is gone"));
                        }
                        let term = racer.lines.iter().filter(|line| line.starts_with("term"));
                        if !racer.leads && !terms.insert(term.count()) {
                            return Err(format!("seed {seed}: two masters have one term"));
                        }
                        racer.leads = true;
                        certain.clone_from(&racer.lines);
                        racers[at] = Some(racer);
                    }
                    Err(NotPut::Unknown(_)) => racers[at] = Some(racer),
                    Err(NotPut::Lost) => {}
                }
            }
        }
    }
    let found = store.content.borrow().as_deref().map(lines).unwrap_or_default();
    match found.starts_with(&certain) {
        true => Ok(terms.len()),
        false => Err(format!("seed {seed}: what was certain is gone at the end")),
    }
}

#[test]
fn no_two_masters_lead_in_one_term_and_nothing_certain_is_lost() {
    let seeds = seeds();
    let led: usize =
        (0..seeds).map(|seed| race(seed, false).unwrap_or_else(|e| panic!("{e}"))).sum();
    assert!(led as u64 > 3 * seeds, "masters took over: {led}");
}

#[test]
fn without_conditions_they_would() {
    assert!((0..200).any(|seed| race(seed, true).is_err()));
}

#[test]
fn a_put_whose_answer_was_lost_is_known_again() {
    let store = Races {
        seed: 0,
        turn: Cell::new(0),
        content: RefCell::default(),
        under_way: RefCell::default(),
        careless: false,
    };
    let own = Claim::new([1; 16], None);
    store.content.replace(Some(sign(b"term 1", [1; 16])));
    // The store answers now and then.
    let until_answered = |claim: &Claim<Vec<u8>>, text: &[u8]| loop {
        match claim.clone().put(&store, text) {
            Err(NotPut::Unknown(_)) => {}
            answered => return answered,
        }
    };
    assert_eq!(until_answered(&own, b"term 1"), Ok(()));
    assert_eq!(until_answered(&own, b"term 1\nrecord 2"), Ok(()));
    assert_eq!(until_answered(&Claim::new([2; 16], None), b"term 1"), Err(NotPut::Lost));
}
