//! Data that is still being written while its first epoch goes on: steps wait for their records.
//!
//! Members may see a partition at different times, and must do the same: so they meet, and what all of them see counts.
//! Whatever was written in between changes no bit, since a step only asks for records that were there in any case
//! (`course::streamed` says when).

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use salamander_core::course::Next;
use salamander_core::elastic::Work;
use salamander_core::experiment::Data;
use salamander_core::words::count;
use salamander_data::{Dataset, Format, GrowingFolder, OpenOptions, Producer};
use serde::{Deserialize, Serialize};

use super::Trainer;
use crate::Error;
use crate::trial::Trial;

/// How often new partitions are looked for.
const LOOK: Duration = Duration::from_millis(100);
/// Who writes them may be started again within this time.
const ABANDONED_AFTER: Duration = Duration::from_secs(5);
/// Waits that are longer are told.
const TOLD_AFTER: Duration = Duration::from_secs(5);
/// How long nothing at all may be there: the place may be wrong.
const APPEARS_WITHIN: Duration = Duration::from_secs(60);

/// A folder of partitions, as this process sees it.
#[derive(Debug)]
pub(crate) struct StreamedData {
    folder: GrowingFolder,
    /// How its files are read.
    data: Data,
    cache_folder: Option<PathBuf>,
    /// What it is, however far it was written.
    identity: u64,
    /// How long nothing may be heard of who writes.
    timeout: Duration,
    /// Since when nobody writes, though the end is not marked.
    abandoned: Option<Instant>,
    /// Since when nothing was heard of who writes.
    unheard: Option<Instant>,
    waits: Option<RecordWait>,
}

/// A wait for records.
#[derive(Debug)]
struct RecordWait {
    since: Instant,
    is_told: bool,
}

impl StreamedData {
    /// What is there by now of the folder of an experiment; indexes of its files are kept in `cache_folder`.
    pub(crate) fn so_far(data: &Data, cache_folder: Option<&Path>) -> Result<Self, Error> {
        let Some(place) = data.training.0.first() else {
            return Err(Error::Invalid("data.training: name the folder to train on".to_string()));
        };
        let format = data.format.as_deref().map(str::parse::<Format>).transpose();
        let format = format.map_err(|error| Error::Invalid(format!("data.format: {error}")))?;
        let mut streamed = Self {
            folder: GrowingFolder::new(Path::new(place), format),
            data: data.clone(),
            cache_folder: cache_folder.map(Path::to_path_buf),
            identity: 0,
            timeout: data.stream_timeout(),
            abandoned: None,
            unheard: None,
            waits: None,
        };
        streamed.look()?;
        Ok(streamed)
    }

    /// Waits until there is a record. `waiting` is told when that takes long.
    pub(crate) fn await_first(
        &mut self,
        stop: &AtomicBool,
        waiting: &mut dyn FnMut(),
    ) -> Result<(), Error> {
        let begun = Instant::now();
        let wrong = |reason: String| Err(Error::Invalid(format!("data.training: {reason}")));
        while self.folder.records() == 0 {
            let place = self.folder.folder().display().to_string();
            if self.folder.total().is_some() {
                return wrong(format!("no records in {place}"));
            }
            if let Some(why) = self.given_up() {
                return Err(self.broken_off(why));
            }
            let is_known = self.folder.has_begun()
                || self.folder.producer(Instant::now())? != Producer::Unknown;
            if !is_known && begun.elapsed() >= APPEARS_WITHIN {
                let seconds = APPEARS_WITHIN.as_secs();
                return wrong(format!(
                    "nobody has written partitions to {place} for {seconds} s: start who does, or look whether this \
                     is the right folder"
                ));
            }
            if stop.load(Ordering::Relaxed) {
                return wrong(format!("stopped before there was a record in {place}"));
            }
            if self.wait() {
                waiting();
            }
            self.look()?;
        }
        self.identity = self.folder.identity()?;
        Ok(())
    }

    /// Takes in what was written; whether there was anything.
    fn look(&mut self) -> Result<bool, Error> {
        // Asked first: who has ended before this look has written nothing after it.
        let now = Instant::now();
        let producer = self.folder.producer(now)?;
        let options =
            OpenOptions { cache_folder: self.cache_folder.clone(), ..OpenOptions::of(&self.data) };
        let grown = self.folder.look(&options)?;
        let is_well = grown || self.folder.total().is_some();
        let since = |is_so: bool, before: Option<Instant>| is_so.then(|| before.unwrap_or(now));
        self.abandoned = since(producer == Producer::Gone && !is_well, self.abandoned);
        self.unheard = since(producer == Producer::Unknown && !is_well, self.unheard);
        if grown {
            self.waits = None;
        }
        Ok(grown)
    }

    /// Whether nobody was heard for so long that nobody will write, and why that is thought.
    fn given_up(&self) -> Option<GivenUp> {
        let is_over = |since: Option<Instant>, longest: Duration| {
            since.is_some_and(|since| since.elapsed() >= longest)
        };
        if is_over(self.abandoned, ABANDONED_AFTER) {
            return Some(GivenUp::Ended);
        }
        is_over(self.unheard, self.timeout).then_some(GivenUp::Silent { since: self.timeout })
    }

    /// Lets some time go by, and tells once that this takes long; whether it did so now.
    fn wait(&mut self) -> bool {
        let wait =
            self.waits.get_or_insert_with(|| RecordWait { since: Instant::now(), is_told: false });
        let is_due = !wait.is_told && wait.since.elapsed() >= TOLD_AFTER;
        wait.is_told |= is_due;
        if is_due {
            let (folder, records) = (self.folder.folder().display(), self.folder.records());
            tracing::warn!(%folder, records, "waits for records that are still to be written");
        }
        sleep(LOOK);
        is_due
    }

    fn broken_off(&self, why: GivenUp) -> Error {
        let (parts, records) = (self.folder.parts() as u64, self.folder.records());
        let (folder, there) = (self.folder.folder().display(), count(parts, "partition"));
        let there = format!("{there} with {}", count(records, "record"));
        let resume = "go on with this run (`salamander train --resume RUN`)";
        Error::Invalid(match why {
            GivenUp::Ended => format!(
                "data.training: {folder}: who wrote it has ended after {there}, and the end is not marked: start it \
                 again, and then {resume}"
            ),
            GivenUp::Silent { since } => format!(
                "data.training: {folder}: for {since:?} there was no partition, no lock and no heartbeat of who \
                 writes it, after {there}, and the end is not marked: look whether it still runs, start it again if \
                 not, and {resume}; who needs longer for a partition without a lock may have it: data.stream_timeout"
            ),
        })
    }

    /// The records that are there.
    pub(crate) fn dataset(&self) -> Result<Dataset, Error> {
        Ok(self.folder.dataset()?)
    }

    /// What tells it from other data, however far it was written.
    pub(crate) fn identity(&self) -> u64 {
        self.identity
    }
}

/// Why it is thought that nobody writes any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum GivenUp {
    /// The lock is free.
    Ended,
    /// Nothing was heard for so long.
    Silent { since: Duration },
}

/// What a member sees of data that is still being written.
#[derive(Serialize, Deserialize)]
struct Sighting {
    records: u64,
    total: Option<u64>,
    given_up: Option<GivenUp>,
    stop: bool,
}

impl<T: Trial> Trainer<T> {
    /// A generation begins: what members have learned of streamed data before may not be the same.
    pub(super) fn begin_streamed(&mut self) -> Result<(), Error> {
        if self.prepared.streamed.is_none() {
            return Ok(());
        }
        self.course.uncount();
        self.look_for_records().map(drop)
    }

    /// The records of the next step are not there: looks for them once, and waits a moment if there are none.
    pub(super) fn await_records(&mut self) -> Result<(), Error> {
        if !self.look_for_records()? {
            if self.course.is_counted() {
                self.tell_start();
            }
            return Ok(());
        }
        let started = Instant::now();
        // That nobody computes is no fault of this member.
        self.exchange.working(Work::Idle, 0);
        let long = self.prepared.streamed.as_mut().is_some_and(StreamedData::wait);
        if long {
            let records = self.prepared.training.len();
            self.callbacks.tell(|callback| callback.waiting(records));
        }
        self.exchange.working(Work::Computing, 0);
        self.timings.data += started.elapsed();
        Ok(())
    }

    /// Tells the course what all members see; whether the next step still has to wait.
    fn look_for_records(&mut self) -> Result<bool, Error> {
        let Some(streamed) = &mut self.prepared.streamed else { return Ok(false) };
        if streamed.look()? {
            self.prepared.training = Arc::new(streamed.dataset()?);
        }
        let own = Sighting {
            records: streamed.folder.records(),
            total: streamed.folder.total(),
            given_up: streamed.given_up(),
            stop: self.exchange.wants_stop(),
        };
        let all: Vec<Sighting> = self.meet("records", &own)?;
        let records = all.iter().map(|member| member.records).min().unwrap_or(0);
        let totals: Option<Vec<u64>> = all.iter().map(|member| member.total).collect();
        match totals {
            Some(totals) if totals.iter().any(|total| *total != records) => {
                let reason =
                    format!("data.training: workers see different partitions: {totals:?} records");
                return Err(Error::Invalid(reason));
            }
            Some(_) => self.course.counted(records)?,
            None => self.course.records_there(records),
        }
        let waits = matches!(self.course.next(), Next::Step(place) if !self.course.is_ready(place));
        if let Some(streamed) = &self.prepared.streamed
            && waits
            && let Some(why) = all.iter().find_map(|member| member.given_up)
        {
            return Err(streamed.broken_off(why));
        }
        if waits && all.iter().any(|member| member.stop) {
            self.course.interrupt();
            return Ok(false);
        }
        Ok(waits)
    }
}
