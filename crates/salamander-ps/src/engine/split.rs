//! Which thread owns what: neighbours go to different threads, so that a server that holds a range
//! of partitions keeps all of them busy.

use std::borrow::Cow;

use crate::sum::SentRows;
use crate::{TableId, TableRows, partition_of};

/// What one thread gets of a request, table by table.
pub(super) type Pieces<'a> = Vec<(TableId, SentRows<'a>)>;

/// Ids for one thread, and where they stood.
#[derive(Debug, Default)]
pub(super) struct Piece {
    pub(super) ids: Vec<u64>,
    pub(super) positions: Vec<u32>,
}

impl Piece {
    pub(super) fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }
}

/// The thread of a partition.
pub(super) fn thread_of(partition: u16, threads: usize) -> usize {
    usize::from(partition) % threads
}

/// Splits ids by thread; each piece keeps their order.
pub(super) fn split(threads: usize, ids: &[u64]) -> Vec<Piece> {
    let mut pieces: Vec<Piece> = Vec::new();
    pieces.resize_with(threads, || Piece {
        ids: Vec::with_capacity(ids.len() / threads + 64),
        positions: Vec::with_capacity(ids.len() / threads + 64),
    });
    for (position, id) in ids.iter().enumerate() {
        let piece = &mut pieces[thread_of(partition_of(*id), threads)];
        piece.ids.push(*id);
        piece.positions.push(position as u32);
    }
    pieces
}

/// Adds rows to the pieces of the threads that own them.
pub(super) fn split_rows<'a>(pieces: &mut [Pieces<'a>], rows: &TableRows<'a>, dim: usize) {
    let threads = pieces.len();
    if let [only] = pieces {
        let (ids, values) = (Cow::Borrowed(rows.ids), Cow::Borrowed(rows.values));
        only.push((rows.table, SentRows { ids, values }));
        return;
    }
    for (piece, all) in split(threads, rows.ids).into_iter().zip(pieces) {
        let mut values = Vec::with_capacity(piece.ids.len() * dim);
        for at in &piece.positions {
            values.extend_from_slice(&rows.values[*at as usize * dim..][..dim]);
        }
        all.push((rows.table, SentRows { ids: Cow::Owned(piece.ids), values: Cow::Owned(values) }));
    }
}
