//! Members of one generation as threads of the test, who meet in a ring as processes do. There is no master: who leaves
//! the generation has left the run.

use std::net::SocketAddr;

use salamander_net::{Cancel, Endpoint, Fold, Keys, Listener, Ring, RingOptions, Token};

use crate::Error;
use crate::exchange::{Entered, Exchange, Place};
use crate::tables::StagedRows;
use crate::trainer::{Outcome, Setup, Trainer};
use crate::trial::Trial;

/// The highest bit of a number's fraction.
const FRACTION_BIT: u32 = 1 << 22;

struct RingMember {
    place: Place,
    ring: Option<Ring>,
    has_entered: bool,
    /// Sums until a bit of this member's copy flips.
    flips_after: Option<u64>,
}

/// A bit that flips in the shared memory of a member, when the sum is there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flip {
    /// The member.
    pub(crate) rank: usize,
    /// So many sums stay whole before.
    pub(crate) after: u64,
}

/// Trains with so many members; what became of each, by rank. Something may be done to their trainers before, and to
/// the memory of one of them meanwhile.
pub(crate) fn train_together<T: Trial>(
    size: usize,
    setup: impl Fn(usize) -> Setup + Sync,
    prepare: impl Fn(usize, &mut Trainer<T>) + Sync,
    flip: Option<Flip>,
) -> Vec<Result<Outcome, Error>> {
    let keys = Keys::from(Token::random().expect("randomness"));
    let address = SocketAddr::from(([127, 0, 0, 1], 0));
    let listeners: Vec<Listener> =
        (0..size).map(|_| Listener::bind(address, keys.clone()).expect("a listener")).collect();
    let endpoints: Vec<Endpoint> = listeners.iter().map(Listener::endpoint).collect();
    let (endpoints, setup, prepare) = (&endpoints, &setup, &prepare);
    std::thread::scope(|scope| {
        let start = |(rank, listener): (usize, Listener)| {
            scope.spawn(move || {
                let (options, cancel) = (RingOptions::default(), Cancel::new());
                let ring = Ring::connect(&listener, 1, rank, endpoints, &options, &cancel);
                let place = Place { rank, size };
                let ring = Some(ring.expect("connected"));
                let flips_after = flip.filter(|flip| flip.rank == rank).map(|flip| flip.after);
                let member = RingMember { place, ring, has_entered: false, flips_after };
                let mut trainer = Trainer::<T>::new(setup(rank), Box::new(member), Vec::new())?;
                prepare(rank, &mut trainer);
                trainer.run()
            })
        };
        let threads: Vec<_> = listeners.into_iter().enumerate().map(start).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    })
}

impl RingMember {
    fn ring(&mut self) -> Result<&mut Ring, Error> {
        self.ring.as_mut().ok_or_else(|| Error::Broken("it has left the ring".to_string()))
    }
}

fn broken(error: salamander_net::Error) -> Error {
    Error::Broken(error.to_string())
}

impl Exchange for RingMember {
    fn rows(&mut self, _seed: u64) -> Result<Box<dyn StagedRows>, Error> {
        Err(Error::Invalid("members of a test have no servers".to_string()))
    }

    fn enter(&mut self) -> Result<Entered, Error> {
        if std::mem::replace(&mut self.has_entered, true) {
            return Err(Error::Leaving);
        }
        Ok(Entered::first(self.place))
    }

    fn gather(&mut self, side: &[u8]) -> Result<Vec<Vec<u8>>, Error> {
        self.ring()?.all_gather(side).map_err(broken)
    }

    fn sum(
        &mut self,
        len: usize,
        fold: &Fold,
        fill: &mut dyn FnMut(usize, &mut [f32]),
    ) -> Result<&[f32], Error> {
        let parts = fold.parts(self.place.rank);
        let flips = self.flips_after == Some(0);
        self.flips_after = self.flips_after.and_then(|left| left.checked_sub(1));
        let ring = self.ring()?;
        let bucket = ring.bucket(fold.bucket_len(len)).map_err(broken)?;
        (0..parts).for_each(|part| fill(part, &mut bucket[Fold::part(len, part)]));
        ring.fold(len, fold).map_err(broken)?;
        let sums = ring.bucket(len).map_err(broken)?;
        if flips && let Some(value) = sums.iter_mut().find(|value| **value != 0.0) {
            *value = f32::from_bits(value.to_bits() ^ FRACTION_BIT);
        }
        Ok(&*sums)
    }

    fn wants_stop(&self) -> bool {
        false
    }
}
