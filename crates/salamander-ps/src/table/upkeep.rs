//! What happens to rows besides use: they expire, make room, move away and come back.

use salamander_core::seed::mix;

use super::{PartitionExtras, PendingId, Table};
use crate::index::{Index, id_of, mixed_of, tail_of};
use crate::meta::Meta;
use crate::section::TableView;
use crate::{Changed, TableStats};

impl Table {
    /// Drops the first row from the clock's hand on that was not used since the hand passed it.
    /// New rows carry no mark, so that ids that came once go first.
    pub(super) fn evict(&mut self, at: usize) {
        let next = |index: &Index, hand| {
            index.entry_at_least(at, hand).or_else(|| index.entry_at_least(at, 0))
        };
        while let Some(entry) = next(&self.index, self.parts[at].hand) {
            let row = self.store.number(at, entry.row);
            if !self.savings.is_empty() {
                self.preserve(mixed_of(at, entry.tail), Some(row));
            }
            let part = &mut self.parts[at];
            part.hand = entry.tail + 1;
            let meta = self.store.meta(row);
            if !meta.is_marked() {
                self.index.remove(at, entry.tail);
                part.free.push(entry.row);
                self.stats.evicted += 1;
                return;
            }
            self.store.set_meta(row, meta.without_mark());
        }
    }

    /// Drops the rows of a partition that nothing used for long, if its turn has come.
    pub(crate) fn sweep(&mut self, partition: u16, age: u64) {
        let Some(limit) = self.spec.expire_after else { return };
        if !(age + u64::from(partition)).is_multiple_of((limit / 8).max(1)) {
            return;
        }
        let at = usize::from(partition);
        let store = &self.store;
        let is_idle = |row| store.meta(store.number(at, row)).idle(age) > limit;
        let idle: Vec<_> = self.index.entries(at).filter(|entry| is_idle(entry.row)).collect();
        for entry in &idle {
            if !self.savings.is_empty() {
                let row = self.store.number(at, entry.row);
                self.preserve(mixed_of(at, entry.tail), Some(row));
            }
            self.index.remove(at, entry.tail);
            self.parts[at].free.push(entry.row);
        }
        self.stats.expired += idle.len() as u64;
        let idle = |waiting: &PendingId| (age as u32).wrapping_sub(waiting.used);
        self.parts[at].waiting.retain(|_, waiting| u64::from(idle(waiting)) <= limit);
    }

    /// Adds the rows that changed after a moment, and remembers changes from now on.
    pub(crate) fn changed(&mut self, since: u64, changed: &mut Changed) {
        for partition in 0..self.parts.len() {
            for entry in self.index.entries(partition) {
                let row = self.store.number(partition, entry.row);
                if since == 0 || self.store.changed(row) > since {
                    changed.ids.push(id_of(partition as u16, entry.tail));
                    let start = changed.values.len();
                    changed.values.resize(start + self.spec.dim, 0.0);
                    self.store.read(row, &mut changed.values[start..]);
                }
            }
        }
        self.store.track_changes(changed.counter);
    }

    /// Figures of this thread's share of the table.
    pub(crate) fn stats(&self) -> TableStats {
        let memory = |part: &PartitionExtras| {
            let entry = size_of::<u64>() + size_of::<PendingId>();
            part.free.capacity() * size_of::<u32>()
                + part.waiting.len() * entry
                + size_of::<PartitionExtras>()
        };
        let parts = self.parts.iter().map(memory).sum::<usize>();
        TableStats {
            rows: (0..self.parts.len()).map(|partition| self.index.len(partition) as u64).sum(),
            waiting: self.parts.iter().map(|part| part.waiting.len() as u64).sum(),
            bytes: (parts + self.index.bytes() + self.store.bytes()) as u64,
            ..self.stats.clone()
        }
    }

    /// Forgets a partition.
    pub(crate) fn remove(&mut self, partition: u16) {
        self.parts[usize::from(partition)] = PartitionExtras::default();
        self.index.clear(usize::from(partition));
        self.store.clear(usize::from(partition));
    }

    /// Replaces a partition by what was encoded; its rows count as changed at `counter`.
    pub(crate) fn install(&mut self, partition: u16, view: &TableView<'_>, counter: u64) {
        self.remove(partition);
        let at = usize::from(partition);
        self.index.fill(at, view.ids().map(|id| tail_of(mix(id))));
        for (row, parts) in (0u32..).zip(view.rows()) {
            let row = self.store.cover(at, row);
            self.store.set_meta(row, Meta(parts.meta));
            self.store.value_bytes_mut(row).copy_from_slice(parts.values);
            bytemuck::cast_slice_mut(self.store.state_mut(row)).copy_from_slice(parts.state);
            self.store.set_changed(row, counter);
        }
        let waiting = view.waiting().map(|(id, count, used)| (id, PendingId { count, used }));
        self.parts[at].waiting = waiting.collect();
        self.parts[at].hand = view.hand;
    }
}
