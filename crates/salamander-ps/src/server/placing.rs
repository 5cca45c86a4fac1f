//! Where the partitions of another lineage come from: this server's own tables, the servers that hold
//! them in the lineage before, a checkpoint's files.
//!
//! One reset is done at a time. A newer one closes the gate at once, which ends the one that is under
//! way: every change of the tables is made under the gate, after a look at the lineage.

use std::ops::Range;
use std::sync::{Mutex, PoisonError, RwLockReadGuard};
use std::time::{Duration, Instant};

use salamander_net::{Cancel, Keys};

use super::desk::{Desk, refuse};
use super::gate::{Gate, Holds};
use crate::client::{self, Client, Directory};
use crate::wire::{Before, Code, Failure, Header, Owner, Reset};
use crate::{Error, PARTITIONS};

/// How long another server may take to answer,
const PATIENCE: Duration = Duration::from_secs(3);
/// to send a partition,
const LONG_PATIENCE: Duration = Duration::from_secs(10);
/// and to hear of the lineage itself.
const HEARSAY: Duration = Duration::from_secs(10);
/// The pause before it is asked again.
const PAUSE: Duration = Duration::from_millis(10);

/// What resets share.
pub(super) struct Placing {
    keys: Keys,
    turn: Mutex<()>,
    /// Ends the reset that is under way.
    under_way: Mutex<Cancel>,
}

/// A reset whose turn it is.
struct Turn<'a> {
    desk: &'a Desk,
    header: &'a Header,
    reset: &'a Reset,
    cancel: Cancel,
}

impl Placing {
    pub(super) fn new(keys: Keys) -> Self {
        Self { keys, turn: Mutex::new(()), under_way: Mutex::new(Cancel::new()) }
    }

    /// Ends the reset that is under way.
    pub(super) fn give_up(&self) {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner).cancel();
    }
}

impl Desk {
    /// Starts another history.
    pub(super) fn reset(&self, header: &Header, reset: &Reset) -> Result<(), Failure> {
        {
            let mut gate = self.write();
            if !gate.is_reset_due(header)? {
                return Ok(());
            }
            if gate.lineage != header.tag {
                gate.close(header);
                self.placing.give_up();
            }
        }
        let _turn = self.placing.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let cancel = Cancel::new();
        let held = {
            let gate = self.write();
            // The same request may have come before, and been done meanwhile.
            if !gate.is_reset_due(header)? {
                return Ok(());
            }
            *self.placing.under_way.lock().unwrap_or_else(PoisonError::into_inner) = cancel.clone();
            gate.holds
        };
        let turn = Turn { desk: self, header, reset, cancel };
        let outcome = match &reset.from {
            None => turn.begin(),
            Some(before) => turn.move_in(held, before),
        };
        let mut gate = self.write();
        gate.learn_tables(&self.engine);
        outcome?;
        // A newer reset that waits for its turn goes by what the tables hold now.
        gate.note(header, Holds::All(header.tag));
        Ok(())
    }
}

impl Turn<'_> {
    /// Everything from files, or from nothing.
    fn begin(&self) -> Result<(), Failure> {
        let Reset { partitions, version, files, .. } = self.reset;
        let engine = &self.desk.engine;
        self.note(Holds::Unknown);
        self.desk.parcels.clear();
        let done = match (partitions, files.is_empty()) {
            (None, true) => engine.clear(*version),
            (None, false) => engine.restore(files),
            (Some(partitions), true) => engine.begin(partitions, *version),
            (Some(partitions), false) => engine.restore_to(files, partitions),
        };
        done.map_err(refuse)
    }

    /// What is here stays or is put apart for others; what is not comes from where it was.
    fn move_in(&self, held: Holds, before: &Before) -> Result<(), Failure> {
        let engine = &self.desk.engine;
        let moving = Holds::Moving { from: before.lineage, to: self.header.tag };
        let has_some = !engine.partitions().is_empty();
        if held == Holds::All(before.lineage) && has_some {
            self.put_apart()?;
        } else if held != moving {
            // It was started since, or has had no part of the lineage before.
            self.note(Holds::Unknown);
            self.desk.parcels.clear();
            engine.begin(&[], self.reset.version).map_err(refuse)?;
        }
        self.note(moving);
        for owner in &before.owners {
            if let Err(reason) = self.fetch(owner) {
                tracing::warn!(endpoint = owner.endpoint, reason, "a server gave no partitions");
            }
        }
        let missing = self.missing();
        if missing.is_empty() {
            return Ok(());
        }
        if self.reset.files.is_empty() {
            return Err(refuse(Error::NotHere(missing[0])));
        }
        tracing::info!(partitions = missing.len(), "partitions are read from a checkpoint");
        self.note(Holds::Unknown);
        let _gate = self.enter()?;
        engine.load(&self.reset.files, &missing).map_err(refuse)
    }

    /// Puts apart what others hold from now on.
    fn put_apart(&self) -> Result<(), Failure> {
        let engine = &self.desk.engine;
        if engine.version() != self.reset.version {
            let (current, asked) = (engine.version(), self.reset.version);
            return Err(refuse(Error::OutOfStep { current, asked }));
        }
        let leaving: Vec<u16> =
            engine.partitions().into_iter().filter(|partition| !self.wants(*partition)).collect();
        self.note(Holds::Unknown);
        self.desk.parcels.clear();
        // Whoever staged them computes the step again.
        engine.unstage().map_err(refuse)?;
        self.desk.parcels.pack(engine, &leaving).map_err(refuse)
    }

    /// Takes from another server what it had and is wanted here.
    fn fetch(&self, owner: &Owner) -> Result<(), String> {
        let of_owner = |partition: &u16| contain(&owner.partitions, *partition);
        let wanted: Vec<u16> = self.missing().into_iter().filter(of_owner).collect();
        if wanted.is_empty() {
            return Ok(());
        }
        let options = client::Options {
            patience: PATIENCE,
            long_patience: LONG_PATIENCE,
            lineage: self.header.tag,
            map: self.header.map,
            cancel: self.cancel.clone(),
            ..client::Options::default()
        };
        let directory = Directory::new(vec![owner.endpoint.clone()]);
        let keys = self.desk.placing.keys.clone();
        let mut client =
            Client::connect(directory, keys, options).map_err(|error| error.to_string())?;
        for partition in wanted {
            let parcel = self.take(&mut client, partition)?;
            let _gate = self.enter().map_err(|failure| failure.to_string())?;
            self.desk.engine.put(&parcel).map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    /// Asks until the other server has heard of the lineage.
    fn take(&self, client: &mut Client, partition: u16) -> Result<Vec<u8>, String> {
        let deadline = Instant::now() + HEARSAY;
        loop {
            match client.take(0, partition) {
                Ok(parcel) => return Ok(parcel),
                Err(client::Error::Refused { failure, .. })
                    if failure.code == Code::Lineage
                        && failure.detail < self.header.tag
                        && Instant::now() < deadline
                        && !self.cancel.is_cancelled() =>
                {
                    std::thread::sleep(PAUSE);
                }
                Err(error) => return Err(error.to_string()),
            }
        }
    }

    /// Holds the gate for a change of the tables, if this reset is still the newest.
    fn enter(&self) -> Result<RwLockReadGuard<'_, Gate>, Failure> {
        let gate = self.desk.read();
        match gate.lineage == self.header.tag {
            true => Ok(gate),
            false => Err(gate.other_lineage(self.header)),
        }
    }

    /// What the tables hold, for whoever comes next.
    fn note(&self, holds: Holds) {
        self.desk.write().holds = holds;
    }

    fn missing(&self) -> Vec<u16> {
        let here = self.desk.engine.partitions();
        let all = 0..PARTITIONS as u16;
        all.filter(|p| self.wants(*p) && here.binary_search(p).is_err()).collect()
    }

    fn wants(&self, partition: u16) -> bool {
        contain(self.reset.partitions.as_deref().unwrap_or_default(), partition)
    }
}

fn contain(ranges: &[Range<u16>], partition: u16) -> bool {
    ranges.iter().any(|range| range.contains(&partition))
}
