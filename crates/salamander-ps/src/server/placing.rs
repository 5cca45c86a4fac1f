//! Where the partitions of another lineage come from: this server's own tables, the servers that hold
//! them in the lineage before, a checkpoint's files.
//!
//! One reset is done at a time. A newer one closes the gate at once, which ends the one that is under
//! way: every change of the tables is made under the gate, after a look at the lineage.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError, RwLockReadGuard};
use std::time::Duration;

use salamander_core::asynchronous::{
    Envelope, HeldPartitions, Holds, Lineage, OutOfStep, Resetting,
};
use salamander_net::{Backoff, Cancel, Keys, retry};

use super::guard::ServerGuard;
use super::service::{RowService, refuse};
use crate::client::{self, Client};
use crate::wire::{Before, Code, Failure, Owner, Reset, ResetOutcome};
use crate::{Error, PARTITIONS};

/// How long another server may take to answer,
const PATIENCE: Duration = Duration::from_secs(3);
/// and to send the next piece of a partition.
const LONG_PATIENCE: Duration = Duration::from_secs(10);
/// The pause before it is asked again.
const PAUSE: Duration = Duration::from_millis(10);

/// What resets share.
pub(super) struct Placing {
    keys: Keys,
    /// How long another server may take to hear of a lineage.
    hearsay: Duration,
    turn: Mutex<()>,
    /// Ends the reset that is under way.
    under_way: Mutex<Cancel>,
}

/// A reset whose turn it is.
struct Turn<'a> {
    service: &'a RowService,
    lineage: Lineage,
    reset: &'a Reset,
    cancel: Cancel,
}

impl Placing {
    pub(super) fn new(keys: Keys, hearsay: Duration) -> Self {
        Self { keys, hearsay, turn: Mutex::new(()), under_way: Mutex::new(Cancel::new()) }
    }

    /// Ends the reset that is under way.
    pub(super) fn give_up(&self) {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner).cancel();
    }
}

impl RowService {
    /// Starts another history.
    pub(super) fn reset(
        &self,
        order: Envelope,
        lineage: Lineage,
        reset: &Reset,
    ) -> Result<ResetOutcome, Failure> {
        {
            let mut guard = self.write();
            match guard.gate.reset(order, lineage)? {
                Resetting::Begin => self.placing.give_up(),
                Resetting::Again => {}
                Resetting::Done => return Ok(ResetOutcome::default()),
            }
        }
        let _turn = self.placing.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let cancel = Cancel::new();
        {
            let mut guard = self.write();
            // The same request may have come before, and been done meanwhile.
            if guard.gate.reset(order, lineage)? == Resetting::Done {
                return Ok(ResetOutcome::default());
            }
            *self.placing.under_way.lock().unwrap_or_else(PoisonError::into_inner) = cancel.clone();
        }
        let turn = Turn { service: self, lineage, reset, cancel };
        let outcome = match &reset.from {
            None => turn.begin(),
            Some(before) => turn.move_in(before),
        };
        let mut guard = self.write();
        guard.learn_tables(&self.engine);
        let begun = outcome?;
        // A newer reset that waits for its turn goes by what the tables hold now.
        guard.gate.hold(Holds::All(lineage));
        Ok(begun)
    }
}

impl Turn<'_> {
    /// Everything from files, or from nothing.
    fn begin(&self) -> Result<ResetOutcome, Failure> {
        let Reset { partitions, version, files, .. } = self.reset;
        let engine = &self.service.engine;
        self.hold(Holds::Unknown);
        self.service.outgoing.clear();
        if files.is_empty() {
            engine.begin(partitions, *version).map_err(refuse)?;
            return Ok(ResetOutcome::default());
        }
        let fallback = self.read(|files| engine.restore_to(files, partitions))?;
        Ok(ResetOutcome { fallback })
    }

    /// Reads the checkpoint, or an older one if it cannot be read; tells why, then.
    fn read(
        &self,
        read: impl Fn(&[PathBuf]) -> Result<(), Error>,
    ) -> Result<Option<String>, Failure> {
        let Err(newest) = read(&self.reset.files) else { return Ok(None) };
        for files in &self.reset.older {
            tracing::warn!(error = %newest, "an older checkpoint is read instead");
            if read(files).is_ok() {
                return Ok(Some(format!("partitions are as in an older checkpoint: {newest}")));
            }
        }
        Err(refuse(newest))
    }

    /// What is here stays or is put apart for others; what is not comes from where it was.
    fn move_in(&self, before: &Before) -> Result<ResetOutcome, Failure> {
        let engine = &self.service.engine;
        let stock = self.service.read().gate.stock(before.lineage);
        match stock {
            HeldPartitions::Whole if !engine.partitions().is_empty() => self.put_apart()?,
            HeldPartitions::Part => {}
            // It was started since, or has had no part of the lineage before.
            HeldPartitions::Whole | HeldPartitions::Nothing => {
                self.hold(Holds::Unknown);
                self.service.outgoing.clear();
                engine.begin(&[], self.reset.version).map_err(refuse)?;
            }
        }
        self.hold(Holds::Moving { from: before.lineage, to: self.lineage });
        let mut reasons = Vec::new();
        for owner in &before.owners {
            if let Err(reason) = self.fetch(owner) {
                tracing::warn!(endpoint = owner.endpoint, reason, "a server gave no partitions");
                reasons.push(format!("{} gave none: {reason}", owner.endpoint));
            }
        }
        let missing = self.missing();
        if missing.is_empty() {
            return Ok(ResetOutcome::default());
        }
        if self.reset.files.is_empty() {
            return Err(refuse(Error::NotHere(missing[0])));
        }
        let count = missing.len();
        tracing::warn!(partitions = count, "partitions are read from a checkpoint");
        self.hold(Holds::Unknown);
        let _guard = self.enter()?;
        reasons.extend(self.read(|files| engine.load(files, &missing))?);
        if reasons.is_empty() {
            reasons.push("the server that held them is gone".to_string());
        }
        let fallback = format!("{count} partitions are as in a checkpoint: {}", reasons.join("; "));
        Ok(ResetOutcome { fallback: Some(fallback) })
    }

    /// Puts apart what others hold from now on.
    fn put_apart(&self) -> Result<(), Failure> {
        let engine = &self.service.engine;
        if engine.version() != self.reset.version {
            let (current, asked) = (engine.version(), self.reset.version);
            return Err(refuse(OutOfStep { current, asked }.into()));
        }
        let leaving: Vec<u16> =
            engine.partitions().into_iter().filter(|partition| !self.wants(*partition)).collect();
        self.hold(Holds::Unknown);
        self.service.outgoing.clear();
        // Whoever staged them computes the step again.
        engine.unstage().map_err(refuse)?;
        self.service.outgoing.pack(engine, &leaving).map_err(refuse)
    }

    /// Takes from another server what it had and is wanted here.
    fn fetch(&self, owner: &Owner) -> Result<(), String> {
        let of_owner = |partition: &u16| contain(&owner.partitions, *partition);
        let wanted: Vec<u16> = self.missing().into_iter().filter(of_owner).collect();
        if wanted.is_empty() {
            return Ok(());
        }
        let options = client::ClientOptions {
            patience: PATIENCE,
            long_patience: LONG_PATIENCE,
            lineage: self.lineage,
            cancel: self.cancel.clone(),
            ..client::ClientOptions::default()
        };
        let keys = self.service.placing.keys.clone();
        let mut client = Client::connect(vec![owner.endpoint.clone()], keys, options)
            .map_err(|error| error.to_string())?;
        for partition in wanted {
            let bytes = self.take(&mut client, partition)?;
            let _guard = self.enter().map_err(|failure| failure.to_string())?;
            self.service.engine.put(&bytes).map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    /// Asks until the other server has heard of the lineage, and has put apart what it gives to others.
    fn take(&self, client: &mut Client, partition: u16) -> Result<Vec<u8>, String> {
        let code = |error: &client::Error| match error {
            client::Error::Refused { failure, .. } => Some((failure.code, failure.detail)),
            _ => None,
        };
        let is_behind = |error: &client::Error| match code(error) {
            Some((Code::Lineage, theirs)) => theirs < self.lineage.0,
            _ => false,
        };
        loop {
            let heard = Backoff::every(PAUSE).within(self.service.placing.hearsay);
            let taken = retry(heard, || client.take(partition), is_behind);
            let packs = |error: &client::Error| matches!(code(error), Some((Code::NotApart, _)));
            match taken {
                // It lives, since it says so.
                Err(error) if packs(&error) && !self.cancel.is_cancelled() => {
                    std::thread::sleep(PAUSE);
                }
                taken => return taken.map_err(|error| error.to_string()),
            }
        }
    }

    /// Holds the gate for a change of the tables, if this reset is still the newest.
    fn enter(&self) -> Result<RwLockReadGuard<'_, ServerGuard>, Failure> {
        let guard = self.service.read();
        guard.gate.continues(self.lineage)?;
        Ok(guard)
    }

    /// What the tables hold, for whoever comes next.
    fn hold(&self, holds: Holds) {
        self.service.write().gate.hold(holds);
    }

    fn missing(&self) -> Vec<u16> {
        let here = self.service.engine.partitions();
        let all = 0..PARTITIONS as u16;
        all.filter(|p| self.wants(*p) && here.binary_search(p).is_err()).collect()
    }

    fn wants(&self, partition: u16) -> bool {
        contain(&self.reset.partitions, partition)
    }
}

fn contain(ranges: &[Range<u16>], partition: u16) -> bool {
    ranges.iter().any(|range| range.contains(&partition))
}
