//! A server's side: which orders it follows and which pushes it lets in.

use super::{Fences, Map, Process};
use crate::elastic::Generation;

/// Why a server refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// A newer master is known.
    #[error("master {theirs} was replaced by master {known}; end it")]
    OldMaster {
        /// The one that asked.
        theirs: u32,
        /// The newest one.
        known: u32,
    },
    /// The order is for another life of this server.
    #[error("the order is for incarnation {wanted:016x} of the server, and this is {own:016x}")]
    OtherProcess {
        /// The one that was meant.
        wanted: u64,
        /// This one.
        own: u64,
    },
    /// The request was made for another map.
    #[error(
        "the request is for map {theirs}, and the server has {own:?}; ask the master for the map"
    )]
    OtherMap {
        /// The map of the request.
        theirs: Generation,
        /// The map of this server, once it has its partitions.
        own: Option<Generation>,
    },
    /// The server has no partitions yet, or gets others.
    #[error("the server is getting its partitions; try again soon")]
    NotPlaced,
}

/// What a server has to do about a placement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placing {
    /// Get the partitions of the map. From now on nothing of an older map is let in; what was held in the map
    /// before, if there was one, may be given to others.
    Begin(Option<Map>),
    /// It is under way.
    UnderWay,
    /// It was done; say again what you have.
    Done,
}

/// What a server knows about itself.
#[derive(Clone, Debug)]
pub struct Gate {
    process: Process,
    fences: Fences,
    master: u32,
    map: Option<Map>,
    placed: bool,
}

impl Gate {
    /// A server that has just started and holds nothing.
    pub fn new(process: Process) -> Self {
        Self::with_fences(process, Fences::default())
    }

    #[doc(hidden)]
    pub fn with_fences(process: Process, fences: Fences) -> Self {
        Self { process, fences, master: 0, map: None, placed: false }
    }

    /// This life of the server.
    pub fn process(&self) -> Process {
        self.process
    }

    /// The map whose partitions the server has completely.
    pub fn placed(&self) -> Option<Map> {
        self.map.filter(|_| self.placed)
    }

    /// A master of this epoch sends an order for a process. Nothing of it may be done when it is refused.
    pub fn order(&mut self, master: u32, to: Process) -> Result<(), Refused> {
        if master < self.master && self.fences.master {
            return Err(Refused::OldMaster { theirs: master, known: self.master });
        }
        if to != self.process && self.fences.orders {
            let (wanted, own) = (to.incarnation, self.process.incarnation);
            return Err(Refused::OtherProcess { wanted, own });
        }
        self.master = self.master.max(master);
        Ok(())
    }

    /// An order to get the partitions of a map.
    pub fn place(&mut self, map: Map) -> Result<Placing, Refused> {
        match self.map {
            Some(own) if map.number < own.number => {
                Err(Refused::OtherMap { theirs: map.number, own: Some(own.number) })
            }
            Some(own) if map.number == own.number && self.placed => Ok(Placing::Done),
            Some(own) if map.number == own.number => Ok(Placing::UnderWay),
            _ => {
                let before = self.placed();
                (self.map, self.placed) = (Some(map), false);
                Ok(Placing::Begin(before))
            }
        }
    }

    /// All partitions of a map are here; false when another one was ordered meanwhile.
    pub fn complete(&mut self, number: Generation) -> bool {
        let current = self.map.is_some_and(|map| map.number == number);
        self.placed |= current;
        current
    }

    /// A push or a pull that was made for a map.
    pub fn admit(&self, number: Generation) -> Result<(), Refused> {
        match self.map {
            Some(own) if own.number != number && self.fences.map => {
                Err(Refused::OtherMap { theirs: number, own: Some(own.number) })
            }
            Some(_) if self.placed => Ok(()),
            _ => Err(Refused::NotPlaced),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: Process = Process { server: 0, incarnation: 7 };

    fn map(number: u32) -> Map {
        Map { number: Generation { epoch: 1, number }, servers: 2 }
    }

    #[test]
    fn an_old_master_and_orders_to_the_dead_are_refused() {
        let mut gate = Gate::new(OWN);
        assert_eq!(gate.order(2, OWN), Ok(()));
        assert_eq!(gate.order(1, OWN), Err(Refused::OldMaster { theirs: 1, known: 2 }));
        let dead = Process { server: 0, incarnation: 6 };
        assert_eq!(gate.order(3, dead), Err(Refused::OtherProcess { wanted: 6, own: 7 }));
        assert_eq!(gate.order(2, OWN), Ok(()));
    }

    #[test]
    fn only_the_map_in_force_is_let_in() {
        let mut gate = Gate::new(OWN);
        assert_eq!(gate.admit(map(1).number), Err(Refused::NotPlaced));
        assert_eq!(gate.place(map(1)), Ok(Placing::Begin(None)));
        assert_eq!(gate.admit(map(1).number), Err(Refused::NotPlaced));
        assert_eq!(gate.place(map(1)), Ok(Placing::UnderWay));
        assert!(gate.complete(map(1).number));
        assert_eq!(gate.place(map(1)), Ok(Placing::Done));
        assert_eq!(gate.admit(map(1).number), Ok(()));
        assert_eq!(gate.place(map(2)), Ok(Placing::Begin(Some(map(1)))));
        assert!(gate.admit(map(1).number).is_err());
        assert!(!gate.complete(map(1).number));
        assert!(gate.place(map(1)).is_err());
        assert_eq!(gate.placed(), None);
    }
}
