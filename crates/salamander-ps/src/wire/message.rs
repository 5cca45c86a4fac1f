//! Requests to be sent: small parts are written, large ones stay where they are until the system
//! takes them.

use std::borrow::Cow;
use std::path::Path;

use salamander_core::asynchronous::Envelope;
use salamander_core::progress::StepCount;

use super::cursor::WireWriter;
use super::request::{Advance, Moment};
use super::{Header, MessageKind, Reset, TableKey};
use crate::{Push, Read, TableSpec};

/// A request without its header. It can be sent again, to the same server or another one.
#[derive(Clone, Debug)]
pub struct Message<'a> {
    /// What is asked.
    pub kind: MessageKind,
    /// Whether values travel as bfloat16, in the request or in the answer to it.
    pub bf16: bool,
    head: Vec<u8>,
    arrays: Vec<Array<'a>>,
}

/// Rows of a table, to be sent.
#[derive(Clone, Debug)]
pub struct RowBlock<'a> {
    /// The table.
    pub table: TableKey,
    /// Values of a row.
    pub dim: usize,
    /// The ids.
    pub ids: Cow<'a, [u64]>,
    /// Their values, one row after the other.
    pub values: Cow<'a, [f32]>,
}

#[derive(Clone, Debug)]
enum Array<'a> {
    Ids(Cow<'a, [u64]>),
    Values(Cow<'a, [f32]>),
    Rounded(Vec<u16>),
    /// Fills up to whole words.
    Gap(usize),
}

impl<'a> Message<'a> {
    /// A request that says all by its kind.
    pub fn plain(kind: MessageKind) -> Self {
        Self { kind, bf16: false, head: Vec::new(), arrays: Vec::new() }
    }

    /// There is a table.
    pub fn declare(spec: &TableSpec) -> Self {
        // A spec has no map with keys that are no texts, the only thing that could fail.
        let text = serde_json::to_string(spec).unwrap_or_default();
        Self::with_head(MessageKind::Declare, |head| head.text(&text))
    }

    /// Values of rows, after so many steps where that is said.
    pub fn pull(
        read: Read,
        advance: Option<Advance>,
        version: Option<StepCount>,
        lookups: Vec<(TableKey, Cow<'a, [u64]>)>,
        bf16: bool,
    ) -> Self {
        let mut message = Self::with_head(MessageKind::Pull, |head| {
            head.u64(match read {
                Read::Train => 0,
                Read::Evaluate => 1,
            });
            head.u64(advance.is_some().into());
            if let Some(advance) = &advance {
                advance.write(head);
            }
            head.optional(version.map(|version| version.0));
            head.u64(lookups.len() as u64);
            for (table, ids) in &lookups {
                head.u64(table.0).u64(ids.len() as u64);
            }
            head
        });
        message.bf16 = bf16;
        message.arrays = lookups.into_iter().map(|(_, ids)| Array::Ids(ids)).collect();
        message
    }

    /// The gradient sum of a slice of the step after so many.
    pub fn stage(version: StepCount, k: u32, rows: Vec<RowBlock<'a>>, bf16: bool) -> Self {
        Self::with_rows(MessageKind::Stage, rows, bf16, |head| head.u64(version.0).u64(k.into()))
    }

    /// A step is complete.
    pub fn advance(advance: &Advance) -> Self {
        Self::with_head(MessageKind::Advance, |head| advance.write(head))
    }

    /// The gradients of a micro-batch, with the rows that one server gets of them.
    pub fn push(push: &Push<'_>, rows: Vec<RowBlock<'a>>, bf16: bool) -> Self {
        let Push { name, tally, factor, scale, seen, .. } = *push;
        Self::with_rows(MessageKind::Push, rows, bf16, |head| {
            head.u64(name.epoch).u64(name.step).u64(name.k.into());
            head.u64(tally.applied).u64(tally.skipped).u64(tally.digest);
            head.f64(factor).f32(scale);
            head.optional(seen)
        })
    }

    /// Rows that changed.
    pub fn changed(table: TableKey, seen: Moment) -> Self {
        Self::with_head(MessageKind::Changed, |head| {
            head.u64(table.0).u64(seen.counter).u64(seen.incarnation)
        })
    }

    /// Forget the names of epochs below.
    pub fn prune(order: Envelope, below: u64) -> Self {
        Self::with_order(MessageKind::Prune, order, |head| head.u64(below))
    }

    /// Start another history.
    pub fn reset(order: Envelope, reset: &Reset) -> Self {
        // Only a path that is no text could fail, and the server says that it cannot read it.
        let text = serde_json::to_string(reset).unwrap_or_default();
        Self::with_order(MessageKind::Reset, order, |head| head.text(&text))
    }

    /// Copy everything for a file.
    pub fn save(order: Envelope, path: &Path) -> Self {
        Self::with_order(MessageKind::Save, order, |head| head.text(&path.to_string_lossy()))
    }

    /// Drop what was kept for other servers.
    pub fn release(order: Envelope) -> Self {
        Self::with_order(MessageKind::Release, order, |head| head)
    }

    /// Wait until a file is written.
    pub fn written(path: &Path) -> Self {
        Self::with_head(MessageKind::Written, |head| head.text(&path.to_string_lossy()))
    }

    /// Give a partition away.
    pub fn take(partition: u16) -> Self {
        Self::with_head(MessageKind::Take, |head| head.u64(partition.into()))
    }

    /// The same, which needs nobody else's memory.
    pub fn into_owned(self) -> Message<'static> {
        let owned = |array| match array {
            Array::Ids(ids) => Array::Ids(Cow::Owned(ids.into_owned())),
            Array::Values(values) => Array::Values(Cow::Owned(values.into_owned())),
            Array::Rounded(values) => Array::Rounded(values),
            Array::Gap(bytes) => Array::Gap(bytes),
        };
        let Self { kind, bf16, head, arrays } = self;
        Message { kind, bf16, head, arrays: arrays.into_iter().map(owned).collect() }
    }

    /// The header of this message.
    pub fn header(&self, tag: u64, number: u64) -> Header {
        let length = self.parts().iter().map(|part| part.len() as u64).sum();
        Header { kind: self.kind, bf16: self.bf16, tag, number, length }
    }

    /// The body, in parts that follow each other.
    pub fn parts(&self) -> Vec<&[u8]> {
        let arrays = self.arrays.iter().map(Array::bytes);
        std::iter::once(&self.head[..]).chain(arrays).collect()
    }

    fn with_head(
        kind: MessageKind,
        write: impl FnOnce(&mut WireWriter) -> &mut WireWriter,
    ) -> Self {
        let mut head = WireWriter::default();
        write(&mut head);
        Self { head: head.into_bytes(), ..Self::plain(kind) }
    }

    fn with_order(
        kind: MessageKind,
        order: Envelope,
        write: impl FnOnce(&mut WireWriter) -> &mut WireWriter,
    ) -> Self {
        Self::with_head(kind, |head| write(head.u64(order.term.0.into()).u64(order.to)))
    }

    fn with_rows(
        kind: MessageKind,
        rows: Vec<RowBlock<'a>>,
        bf16: bool,
        write: impl FnOnce(&mut WireWriter) -> &mut WireWriter,
    ) -> Self {
        let mut message = Self::with_head(kind, |head| {
            write(head).u64(rows.len() as u64);
            for block in &rows {
                let (table, count) = (block.table.0, block.ids.len() as u64);
                head.u64(table).u64(block.dim as u64).u64(count);
            }
            head
        });
        message.bf16 = bf16;
        let mut values = Vec::with_capacity(rows.len() + 1);
        for block in rows {
            message.arrays.push(Array::Ids(block.ids));
            values.push(match bf16 {
                true => Array::round(&block.values),
                false => Array::Values(block.values),
            });
        }
        let length: usize = values.iter().map(|array| array.bytes().len()).sum();
        values.push(Array::Gap(length.next_multiple_of(8) - length));
        message.arrays.append(&mut values);
        message
    }
}

impl Advance {
    fn write<'w>(&self, head: &'w mut WireWriter) -> &'w mut WireWriter {
        head.u64(self.to.0).f64(self.factor).f32(self.scale)
    }
}

impl Array<'_> {
    fn round(values: &[f32]) -> Self {
        let mut rounded = vec![0; values.len()];
        salamander_net::bf16::round(values, &mut rounded);
        Self::Rounded(rounded)
    }

    fn bytes(&self) -> &[u8] {
        match self {
            Self::Ids(ids) => bytemuck::cast_slice(ids),
            Self::Values(values) => bytemuck::cast_slice(values),
            Self::Rounded(values) => bytemuck::cast_slice(values),
            Self::Gap(length) => &[0; 8][..*length],
        }
    }
}
