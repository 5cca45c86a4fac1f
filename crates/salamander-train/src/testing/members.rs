//! Members of one generation as threads of the test, who meet in a ring as processes do. There is no master: who leaves
//! the generation has left the run.

use std::net::SocketAddr;

use salamander_net::{Cancel, Endpoint, Fold, Keys, Listener, Ring, RingOptions, Token};

use crate::Error;
use crate::exchange::{Entered, Exchange, Place};
use crate::tables::StagedRows;
use crate::trainer::{Outcome, Setup, Trainer};
use crate::trial::Trial;

struct RingMember {
    place: Place,
    ring: Option<Ring>,
    has_entered: bool,
}

/// Trains with so many members; what became of each, by rank. Something may be done to their trainers before.
pub(crate) fn train_together<T: Trial>(
    size: usize,
    setup: impl Fn(usize) -> Setup + Sync,
    prepare: impl Fn(usize, &mut Trainer<T>) + Sync,
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
                let member = RingMember { place, ring, has_entered: false };
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
        let ring = self.ring()?;
        let bucket = ring.bucket(fold.bucket_len(len)).map_err(broken)?;
        (0..parts).for_each(|part| fill(part, &mut bucket[Fold::part(len, part)]));
        ring.fold(len, fold).map_err(broken)?;
        Ok(&*ring.bucket(len).map_err(broken)?)
    }

    fn wants_stop(&self) -> bool {
        false
    }
}
