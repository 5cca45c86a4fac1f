//! Where the parts of a step meet: nowhere in a local run, in a ring of workers in a distributed one.
//!
//! The trainer is the same for both. Every exchange is a commit: between two of them the state of a run
//! (parameters, optimizers, progress) follows from the one before, so that members that committed the same
//! exchanges hold the same state.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use salamander_core::asynchronous::Lineage;
use salamander_core::elastic::{Ending, Work};
use salamander_core::progress::StepCount;
use salamander_core::report::EndReport;
use salamander_net::Fold;
pub(crate) use salamander_proto::client::TrainedOn;

use crate::Error;
use crate::tables::{LocalRows, StagedRows};

/// A member's place in its generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// From 0; the first one speaks for all.
    pub rank: usize,
    /// How many members there are.
    pub size: usize,
}

impl Place {
    /// The only member.
    pub(crate) const ALONE: Place = Place { rank: 0, size: 1 };

    /// Whether this member speaks for all.
    pub(crate) fn leads(&self) -> bool {
        self.rank == 0
    }

    /// This member's part of so many items: all parts together are all items, each once.
    pub(crate) fn share(&self, items: usize) -> Range<usize> {
        self.rank * items / self.size..(self.rank + 1) * items / self.size
    }
}

/// How a member comes by the state that a generation begins with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Begin {
    /// It holds it.
    Keep,
    /// It reads the checkpoint with this id, or starts anew.
    Load(Option<String>),
    /// It receives it.
    Receive,
}

/// The begin of a generation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entered {
    /// This member's place.
    pub place: Place,
    /// How it comes by the state.
    pub begin: Begin,
    /// Who sends the state round, if somebody needs it.
    pub transfer: Option<usize>,
    /// The history that the rows of tables are part of.
    pub rows: Lineage,
    /// The history that begins when the rows move to other servers, which they do before the first exchange.
    pub moves: Option<Lineage>,
}

impl Entered {
    /// The first generation: everybody holds the state, which is that of the beginning.
    pub(crate) fn first(place: Place) -> Self {
        let rows = Lineage::default();
        Self { place, begin: Begin::Keep, transfer: None, rows, moves: None }
    }
}

/// What the trainer needs from the other members. [`Error::Broken`] means that the generation is over: the trainer
/// drops what is not committed and enters the next one. Who has nobody to tell leaves out what is only told, and who is
/// in one generation from begin to end leaves out how states come and go.
pub(crate) trait Exchange: Send {
    /// Tells what this member trains on, before it takes part in anything.
    fn introduce(&mut self, _data: &mut dyn FnMut() -> TrainedOn) {}
    /// What errors call the member of a rank.
    fn name(&self, rank: usize) -> String {
        format!("worker {rank}")
    }
    /// Where the rows of the model's tables live; first values are drawn from this seed.
    fn rows(&mut self, seed: u64) -> Result<Box<dyn StagedRows>, Error>;
    /// Waits until this member takes part in a generation.
    fn enter(&mut self) -> Result<Entered, Error>;
    /// The source's bytes, at every member.
    fn transfer(&mut self, _source: usize, state: Vec<u8>) -> Result<Vec<u8>, Error> {
        Ok(state)
    }
    /// The state that has arrived is about to take the place of this member's own. Until the guard is dropped it
    /// promises nothing; if it has not adopted a state by then, it has none.
    fn replace(&mut self) -> Result<Applying, Error> {
        Ok(Applying::unwatched())
    }
    /// This member holds the generation's state; the digest is that of the transferred bytes.
    fn adopt(&mut self, _digest: u64) -> Result<(), Error> {
        Ok(())
    }
    /// Everybody's bytes, in the order of ranks.
    fn gather(&mut self, side: &[u8]) -> Result<Vec<Vec<u8>>, Error>;
    /// The sum of everybody's parts, of `len` values each, in the order of the fold: the same bits at every member, and
    /// for any number of them. Each part of this member is filled in before.
    fn sum(
        &mut self,
        len: usize,
        fold: &Fold,
        fill: &mut dyn FnMut(usize, &mut [f32]),
    ) -> Result<&[f32], Error>;
    /// Makes the exchange count, unless the generation is over. What it gave is applied right after; when the guard is
    /// dropped it is in the state.
    fn commit(&mut self, _digest: u64) -> Result<Applying, Error> {
        Ok(Applying::unwatched())
    }
    /// The rows of tables are where the generation moves them to.
    fn moved(&mut self) {}
    /// The rows of tables cannot be reached: the generation is over for this member, and the master is told.
    fn give_up(&mut self, _reason: &str) {}
    /// What this member does from now on, and how many records it computed since it last said so.
    fn working(&mut self, _work: Work, _records: u64) {}
    /// So much of the time that it computed was spent on waiting for records.
    fn waited(&mut self, _time: Duration) {}
    /// Whether an early end of the run was asked for.
    fn wants_stop(&self) -> bool;
    /// Whether a checkpoint was asked for, once.
    fn wants_save(&mut self) -> bool {
        false
    }
    /// Waits until the generation is over: a server leaves once the checkpoint that was asked for counts. `saved` says
    /// that this member has written it.
    fn hold(&mut self, _saved: bool) -> Result<(), Error> {
        Ok(())
    }
    /// The name of a checkpoint of the state that all members hold.
    fn checkpoint_id(&mut self, steps: StepCount) -> String {
        crate::checkpoint::id(steps)
    }
    /// The checkpoint with this id is on disk.
    fn wrote(&mut self, _id: &str) {}
    /// The last state is reached and all members hold it.
    fn conclude(&mut self, _ending: Ending, _report: EndReport) -> Result<(), Error> {
        Ok(())
    }
    /// This member cannot go on; nor can the run if data or model are wrong, which no other worker can mend.
    fn failed(&mut self, _error: &Error) {}
}

/// A committed result, or another state, that is being put into the state. This member promises nothing meanwhile, so
/// that what it promises is what it holds; dropping this says that the state is complete.
#[must_use = "the state counts as complete when this is dropped"]
pub(crate) struct Applying(Option<Box<dyn FnOnce() + Send>>);

impl Applying {
    /// With what is done when the state is complete.
    pub(crate) fn new(applied: impl FnOnce() + Send + 'static) -> Self {
        Self(Some(Box::new(applied)))
    }

    /// Nobody waits for the state.
    pub(crate) fn unwatched() -> Self {
        Self(None)
    }
}

impl Drop for Applying {
    fn drop(&mut self) {
        // A state that a panic left half changed is promised to nobody.
        if let Some(applied) = self.0.take().filter(|_| !std::thread::panicking()) {
            applied();
        }
    }
}

/// A local run: one member that nobody waits for.
#[derive(Debug)]
pub(crate) struct Alone {
    stop: Arc<AtomicBool>,
    bucket: Vec<f32>,
}

impl Alone {
    /// A run that ends early when the flag is set.
    pub(crate) fn new(stop: Arc<AtomicBool>) -> Self {
        Self { stop, bucket: Vec::new() }
    }
}

impl Exchange for Alone {
    fn rows(&mut self, seed: u64) -> Result<Box<dyn StagedRows>, Error> {
        Ok(Box::new(LocalRows::new(seed)?))
    }

    fn enter(&mut self) -> Result<Entered, Error> {
        Ok(Entered::first(Place::ALONE))
    }

    fn gather(&mut self, side: &[u8]) -> Result<Vec<Vec<u8>>, Error> {
        Ok(vec![side.to_vec()])
    }

    fn sum(
        &mut self,
        len: usize,
        _fold: &Fold,
        fill: &mut dyn FnMut(usize, &mut [f32]),
    ) -> Result<&[f32], Error> {
        // Who has all leaves has one node, which is the sum.
        self.bucket.clear();
        self.bucket.resize(len, 0.0);
        fill(0, &mut self.bucket);
        Ok(&self.bucket)
    }

    fn wants_stop(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_sum_of_one_member_is_what_it_gives() {
        let mut alone = Alone::new(Arc::default());
        let fold = Fold::by_rank(1);
        alone.sum(3, &fold, &mut |_, bucket| bucket.fill(1.0)).expect("nobody can fail");
        let sums = alone.sum(2, &fold, &mut |_, bucket| bucket[1] = 7.0).expect("nobody can fail");
        assert_eq!(sums, [0.0, 7.0]);
    }

    #[test]
    fn a_result_is_applied_when_its_guard_goes_unless_by_a_panic() {
        let applied = Arc::new(AtomicBool::new(false));
        let applying = || {
            let applied = Arc::clone(&applied);
            Applying::new(move || applied.store(true, Ordering::Relaxed))
        };
        let guard = applying();
        let panicked = std::thread::spawn(move || {
            let _guard = guard;
            panic!("in the middle");
        });
        assert!(panicked.join().is_err());
        assert!(!applied.load(Ordering::Relaxed));
        drop(applying());
        assert!(applied.load(Ordering::Relaxed));
    }

    proptest! {
        #[test]
        fn shares_cover_every_item_once(size in 1usize..9, items in 0usize..40) {
            let mut next = 0;
            for rank in 0..size {
                let share = Place { rank, size }.share(items);
                prop_assert_eq!(share.start, next);
                next = share.end;
            }
            prop_assert_eq!(next, items);
        }
    }
}
