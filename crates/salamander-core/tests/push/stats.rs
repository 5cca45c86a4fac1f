//! What a seed went through.

use crate::simulation::Counts;

/// Counts of one run.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stats {
    pub(crate) master_crashes: u64,
    pub(crate) two_masters: u64,
    pub(crate) refused_entries: u64,
    pub(crate) refused_masters: u64,
    pub(crate) refused_orders: u64,
    pub(crate) refused_pushes: u64,
    pub(crate) server_kills: u64,
    pub(crate) usurped: u64,
    pub(crate) worker_kills: u64,
    pub(crate) pauses: u64,
    pub(crate) cuts: u64,
    pub(crate) read: u64,
    pub(crate) moved: u64,
    pub(crate) moves: u64,
    pub(crate) checkpoints: u64,
    pub(crate) prunes: u64,
    pub(crate) ignored: u64,
    pub(crate) unacked: u64,
    pub(crate) other_map: u64,
    pub(crate) expired: u64,
    pub(crate) reopened: u64,
    pub(crate) resumed: u64,
    pub(crate) applied: u64,
}

impl Stats {
    /// Name and count of each.
    pub(crate) fn rows(&self) -> Counts {
        vec![
            ("master crashes", self.master_crashes),
            ("two masters at once", self.two_masters),
            ("old masters refused by the journal", self.refused_entries),
            ("old masters refused by servers", self.refused_masters),
            ("orders to another life of a server", self.refused_orders),
            ("pushes of another map refused", self.refused_pushes),
            ("servers killed", self.server_kills),
            ("servers replaced while they lived", self.usurped),
            ("workers killed", self.worker_kills),
            ("processes paused", self.pauses),
            ("networks cut", self.cuts),
            ("partitions read from a checkpoint", self.read),
            ("partitions sent to another server", self.moved),
            ("changes of the number of servers", self.moves),
            ("checkpoints kept", self.checkpoints),
            ("prunes", self.prunes),
            ("pushes of names that were there", self.ignored),
            ("reports with an ack that did not count", self.unacked),
            ("reports of another map", self.other_map),
            ("leases expired", self.expired),
            ("epochs reopened before their end was answered", self.reopened),
            ("stopped runs resumed", self.resumed),
            ("names applied to partitions", self.applied),
        ]
    }
}
