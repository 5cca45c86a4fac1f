//! What really happened to each partition, counted apart from the names that it claims to have applied, and what must
//! hold of the counts.

use salamander_core::asynchronous::{Applied, Consistency, Map, Numbering, spread};
use salamander_core::plan::MicroBatch;

pub(crate) const ONCE: &str = "no name is applied twice";
pub(crate) const ALL: &str = "every name is applied on every partition";
pub(crate) const KEPT: &str = "a checkpoint that counts has what it says";

/// The partitions that a push has rows for, one bit for each.
pub(crate) type Shares = u32;

/// The work of a run.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub(crate) names: Numbering,
    pub(crate) epochs: u64,
    pub(crate) partitions: u32,
    pub(crate) servers: u32,
    pub(crate) consistency: Consistency,
}

impl Job {
    /// The partitions of a server.
    pub(crate) fn owned(&self, map: Map, server: u32) -> impl Iterator<Item = usize> + use<> {
        let owners = spread(self.partitions, map.servers).into_iter().enumerate();
        owners.filter(move |(_, owner)| *owner == server).map(|(part, _)| part)
    }

    pub(crate) fn fresh(&self) -> StartFrom {
        let names = self.epochs * self.names.steps() * u64::from(self.names.slices());
        StartFrom { applied: Applied::new(self.names.slices()), counts: vec![0; names as usize] }
    }

    fn place(&self, name: MicroBatch) -> usize {
        let slices = u64::from(self.names.slices());
        (name.epoch * self.names.steps() * slices + self.names.number(name)) as usize
    }

    /// A name of the first epochs whose count on the partition is not one.
    pub(crate) fn wrong(&self, part: &StartFrom, epochs: u64) -> Option<(MicroBatch, u8)> {
        let of = |epoch| self.names.all().iter().map(move |number| (epoch, number));
        let names = (0..epochs).flat_map(of).map(|(epoch, number)| self.names.name(epoch, number));
        let count = |name| part.counts[self.place(name)];
        names.map(|name| (name, count(name))).find(|(_, count)| *count != 1)
    }
}

/// A partition: what it claims, and how often each name was really applied to its parameters. Both go to checkpoints
/// and to other servers together, as parameters do.
#[derive(Clone, Debug)]
pub(crate) struct StartFrom {
    pub(crate) applied: Applied,
    counts: Vec<u8>,
}

impl StartFrom {
    /// Applies a name's rows; false when that was once too often.
    pub(crate) fn count(&mut self, job: &Job, name: MicroBatch) -> bool {
        let count = &mut self.counts[job.place(name)];
        *count += 1;
        *count == 1
    }
}
