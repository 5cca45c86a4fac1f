//! What a server is asked. Ids and values stay in the buffer into which they were received.

use std::path::PathBuf;

use salamander_core::asynchronous::Envelope;
use salamander_core::elastic::Term;
use salamander_core::plan::MicroBatch;
use salamander_core::progress::StepCount;

use super::TableKey;
use super::cursor::Cursor;
use super::{Error, Header, MessageKind, Reset};
use crate::{LedgerPage, Read, TableSpec};

/// A request that borrows from the body of its frame.
#[derive(Clone, Debug, PartialEq)]
pub enum Request<'a> {
    /// Who are you?
    Info,
    /// There is a table.
    Declare(Box<TableSpec>),
    /// Values of rows, after a step was completed if so told.
    Pull {
        /// What to complete first.
        advance: Option<Advance>,
        /// The steps that they must be after.
        version: Option<StepCount>,
        /// Why rows are read.
        read: Read,
        /// The rows.
        lookups: Vec<Lookup<'a>>,
    },
    /// The gradient sum of a slice.
    Stage {
        /// The step after so many.
        version: StepCount,
        /// The slice.
        k: u32,
        /// Gradients.
        rows: Vec<Received<'a>>,
    },
    /// A step is complete.
    Advance(Advance),
    /// The gradients of a micro-batch.
    Push {
        /// Its name.
        name: MicroBatch,
        /// What it adds to the ledger.
        tally: LedgerPage,
        /// The schedule's factor.
        factor: f64,
        /// What gradients are multiplied by.
        scale: f32,
        /// The counter of the parameters that they were computed from, where it counts.
        seen: Option<u64>,
        /// Gradients.
        rows: Vec<Received<'a>>,
    },
    /// Rows that changed.
    Changed {
        /// The table.
        table: TableKey,
        /// What the puller saw last.
        seen: Moment,
    },
    /// Names that were applied.
    Applied,
    /// Forget the names of epochs below.
    Prune {
        /// Who orders it.
        order: Envelope,
        /// The first epoch that stays.
        below: u64,
    },
    /// Start the history that the header names: from files, from other servers or from nothing.
    Reset {
        /// Who orders it.
        order: Envelope,
        /// What to hold.
        reset: Box<Reset>,
    },
    /// Copy everything, and write it to a file while other requests are done.
    Save {
        /// Who orders it.
        order: Envelope,
        /// The file.
        path: PathBuf,
    },
    /// Wait until a copy is written.
    Written {
        /// The file.
        path: PathBuf,
    },
    /// Give a partition to the server that holds it in the history of the header.
    Take {
        /// The partition.
        partition: u16,
    },
    /// Drop what was kept for other servers: all of them have their partitions.
    Release {
        /// Who orders it.
        order: Envelope,
    },
    /// Are you there?
    KeepAlive,
}

/// The completion of a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Advance {
    /// Steps done with it.
    pub to: StepCount,
    /// The schedule's factor on each table's learning rate.
    pub factor: f64,
    /// What gradients are multiplied by: one over the records, for sums.
    pub scale: f32,
}

/// A moment of a server's tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moment {
    /// Changes of that life.
    pub counter: u64,
    /// The life of the server.
    pub incarnation: u64,
}

/// Ids of rows that are wanted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lookup<'a> {
    /// The table.
    pub table: TableKey,
    /// The ids.
    pub ids: &'a [u64],
}

/// Rows that came.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Received<'a> {
    /// The table.
    pub table: TableKey,
    /// The ids.
    pub ids: &'a [u64],
    /// Their values, one row after the other.
    pub values: WireValues<'a>,
}

/// Values as they travelled.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum WireValues<'a> {
    /// In full.
    F32(&'a [f32]),
    /// Rounded to bfloat16.
    Bf16(&'a [u16]),
}

impl<'a> Request<'a> {
    /// Reads the body of a request, which has to be aligned for words.
    pub fn decode(header: &Header, body: &'a [u8]) -> Result<Self, Error> {
        let mut cursor = Cursor::new(body);
        let request = Self::read(header, &mut cursor)?;
        cursor.end()?;
        Ok(request)
    }

    /// Who orders it, if it is an order that only holds for a lineage in force.
    pub(crate) fn order(&self) -> Option<Envelope> {
        match self {
            Self::Prune { order, .. } | Self::Save { order, .. } | Self::Release { order } => {
                Some(*order)
            }
            _ => None,
        }
    }

    fn read(header: &Header, cursor: &mut Cursor<'a>) -> Result<Self, Error> {
        Ok(match header.kind {
            MessageKind::Info => Self::Info,
            MessageKind::Declare => Self::Declare(json(cursor.text()?)?),
            MessageKind::Pull => read_pull(cursor)?,
            MessageKind::Stage => {
                let (version, k) = (StepCount(cursor.u64()?), cursor.u32()?);
                Self::Stage { version, k, rows: rows(cursor, header.bf16)? }
            }
            MessageKind::Advance => Self::Advance(Advance::read(cursor)?),
            MessageKind::Push => read_push(cursor, header.bf16)?,
            MessageKind::Changed => Self::Changed {
                table: TableKey(cursor.u64()?),
                seen: Moment { counter: cursor.u64()?, incarnation: cursor.u64()? },
            },
            MessageKind::Applied => Self::Applied,
            MessageKind::Prune => Self::Prune { order: read_order(cursor)?, below: cursor.u64()? },
            MessageKind::Reset => {
                Self::Reset { order: read_order(cursor)?, reset: json(cursor.text()?)? }
            }
            MessageKind::Save => {
                Self::Save { order: read_order(cursor)?, path: cursor.text()?.into() }
            }
            MessageKind::Written => Self::Written { path: cursor.text()?.into() },
            MessageKind::Take => {
                let partition = u16::try_from(cursor.u64()?).map_err(|_| Error::Range)?;
                Self::Take { partition }
            }
            MessageKind::Release => Self::Release { order: read_order(cursor)? },
            MessageKind::KeepAlive => Self::KeepAlive,
            MessageKind::Done | MessageKind::Failed => return Err(Error::Unexpected(header.kind)),
        })
    }
}

impl Advance {
    fn read(cursor: &mut Cursor<'_>) -> Result<Self, Error> {
        Ok(Self { to: StepCount(cursor.u64()?), factor: cursor.f64()?, scale: cursor.f32()? })
    }
}

fn read_order(cursor: &mut Cursor<'_>) -> Result<Envelope, Error> {
    Ok(Envelope { term: Term(cursor.u32()?), to: cursor.u64()? })
}

fn read_pull<'a>(cursor: &mut Cursor<'a>) -> Result<Request<'a>, Error> {
    let read = match cursor.u64()? {
        0 => Read::Train,
        1 => Read::Evaluate,
        _ => return Err(Error::Range),
    };
    let advance = match cursor.u64()? {
        0 => None,
        1 => Some(Advance::read(cursor)?),
        _ => return Err(Error::Range),
    };
    let version = cursor.optional()?.map(StepCount);
    let tables = cursor.count(16)?;
    let mut counts = Vec::with_capacity(tables);
    for _ in 0..tables {
        let table = TableKey(cursor.u64()?);
        counts.push((table, cursor.count(8)?));
    }
    let mut lookups = Vec::with_capacity(tables);
    for (table, count) in counts {
        lookups.push(Lookup { table, ids: cursor.array(count)? });
    }
    Ok(Request::Pull { advance, version, read, lookups })
}

fn read_push<'a>(cursor: &mut Cursor<'a>, bf16: bool) -> Result<Request<'a>, Error> {
    let name = MicroBatch { epoch: cursor.u64()?, step: cursor.u64()?, k: cursor.u32()? };
    let tally =
        LedgerPage { applied: cursor.u64()?, skipped: cursor.u64()?, digest: cursor.u64()? };
    let (factor, scale) = (cursor.f64()?, cursor.f32()?);
    let seen = cursor.optional()?;
    Ok(Request::Push { name, tally, factor, scale, seen, rows: rows(cursor, bf16)? })
}

/// Rows of several tables: how many of which width, then all ids, then all values.
fn rows<'a>(cursor: &mut Cursor<'a>, bf16: bool) -> Result<Vec<Received<'a>>, Error> {
    let tables = cursor.count(24)?;
    let mut shapes = Vec::with_capacity(tables);
    let mut total = 0usize;
    for _ in 0..tables {
        let table = TableKey(cursor.u64()?);
        let dim = cursor.u32()? as usize;
        let count = cursor.count(8)?;
        let values = count.checked_mul(dim).ok_or(Error::Short)?;
        total = total.checked_add(values).ok_or(Error::Short)?;
        shapes.push((table, count, values));
    }
    let mut rows = Vec::with_capacity(tables);
    for &(table, count, _) in &shapes {
        rows.push(Received { table, ids: cursor.array(count)?, values: WireValues::F32(&[]) });
    }
    let mut all = if bf16 {
        WireValues::Bf16(cursor.array(total)?)
    } else {
        WireValues::F32(cursor.array(total)?)
    };
    for (row, (_, _, values)) in rows.iter_mut().zip(shapes) {
        (row.values, all) = all.split_at(values);
    }
    Ok(rows)
}

impl WireValues<'_> {
    /// How many there are.
    pub fn len(&self) -> usize {
        match self {
            Self::F32(values) => values.len(),
            Self::Bf16(values) => values.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn split_at(self, at: usize) -> (Self, Self) {
        match self {
            Self::F32(values) => {
                let (left, right) = values.split_at(at);
                (Self::F32(left), Self::F32(right))
            }
            Self::Bf16(values) => {
                let (left, right) = values.split_at(at);
                (Self::Bf16(left), Self::Bf16(right))
            }
        }
    }
}

/// What a text says, for everything that is small.
pub(super) fn json<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, Error> {
    serde_json::from_str(text).map_err(|error| Error::Json(error.to_string()))
}
