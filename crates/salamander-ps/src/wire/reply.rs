//! Answers: what came of a request, in the server's words where it failed.

use std::ops::Range;

use salamander_core::asynchronous::Lineage;
use serde::{Deserialize, Serialize};

use super::Error;
use super::cursor::{Cursor, WireWriter};
use super::request::json;
use crate::Changed;

/// What a server says about itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Info {
    /// This life of it.
    pub incarnation: u64,
    /// The history that it takes part in.
    pub lineage: Lineage,
    /// Whether it has all its partitions of that history.
    pub is_placed: bool,
    /// The partitions that it holds.
    pub partitions: Vec<Range<u16>>,
}

/// What came of a reset.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResetOutcome {
    /// Why partitions were read from a checkpoint that another server was to give: what was applied to them
    /// since the checkpoint is lost.
    pub fallback: Option<String>,
}

/// Why a request was not done, told apart by what the client does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Code {
    /// The frame made no sense, which is a bug.
    Malformed,
    /// The frame is longer than the server allows.
    TooLarge,
    /// The client belongs to another history: it has to hear from the master.
    Lineage,
    /// The order comes from a master that was replaced.
    Term,
    /// The order is for another process.
    Process,
    /// The request is of another step.
    OutOfStep,
    /// A partition is not there.
    NotHere,
    /// The request is wrong, and will be wrong again.
    Wrong,
    /// The server could not do it.
    Broken,
    /// A table was not declared, which a client does whenever it connects.
    Undeclared,
    /// The server is about to put apart what others get from it.
    NotApart,
}

/// An answer to a request that was not done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct Failure {
    /// Why.
    pub code: Code,
    /// The number that belongs to the code: the server's lineage, term, incarnation or version.
    pub detail: u64,
    /// Why, for people.
    pub text: String,
}

impl Code {
    const ALL: [Self; 11] = [
        Self::Malformed,
        Self::TooLarge,
        Self::Lineage,
        Self::Term,
        Self::Process,
        Self::OutOfStep,
        Self::NotHere,
        Self::Wrong,
        Self::Broken,
        Self::Undeclared,
        Self::NotApart,
    ];
}

impl Failure {
    /// A failure without a number.
    pub fn new(code: Code, text: impl ToString) -> Self {
        Self { code, detail: 0, text: text.to_string() }
    }

    /// The failure as it travels.
    pub fn encode(&self) -> Vec<u8> {
        let mut writer = WireWriter::default();
        writer.u64(self.code as u64).u64(self.detail).text(&self.text);
        writer.into_bytes()
    }

    /// Reads what [`Failure::encode`] wrote.
    pub fn decode(body: &[u8]) -> Result<Self, Error> {
        let mut cursor = Cursor::new(body);
        let number = cursor.u32()? as usize;
        let code = *Code::ALL.get(number).ok_or(Error::Range)?;
        let (detail, text) = (cursor.u64()?, cursor.text()?.to_string());
        cursor.end()?;
        Ok(Self { code, detail, text })
    }
}

/// An answer that is small: as a text.
pub fn encode_json(answer: &impl Serialize) -> Vec<u8> {
    let mut writer = WireWriter::default();
    // Answers have no map with keys that are no texts, the only thing that could fail.
    writer.text(&serde_json::to_string(answer).unwrap_or_default());
    writer.into_bytes()
}

/// Reads what [`encode_json`] wrote.
pub fn decode_json<T: serde::de::DeserializeOwned>(body: &[u8]) -> Result<T, Error> {
    let mut cursor = Cursor::new(body);
    let answer = json(cursor.text()?)?;
    cursor.end()?;
    Ok(answer)
}

/// A single number.
pub fn encode_number(number: u64) -> Vec<u8> {
    number.to_le_bytes().to_vec()
}

/// Reads what [`encode_number`] wrote.
pub fn decode_number(body: &[u8]) -> Result<u64, Error> {
    let mut cursor = Cursor::new(body);
    let number = cursor.u64()?;
    cursor.end()?;
    Ok(number)
}

/// What stands ahead of the ids and values of changed rows.
pub fn changed_head(changed: &Changed) -> Vec<u8> {
    let mut head = WireWriter::default();
    head.u64(changed.counter).u64(changed.ids.len() as u64).u64(changed.values.len() as u64);
    head.into_bytes()
}

/// Reads changed rows; values were not filled up to whole words, because nothing follows them.
pub fn decode_changed(body: &[u8]) -> Result<Changed, Error> {
    let mut cursor = Cursor::new(body);
    let counter = cursor.u64()?;
    let (ids, values) = (cursor.count(8)?, cursor.count(4)?);
    let ids = cursor.array(ids)?.to_vec();
    let rest = body.len() - 24 - ids.len() * 8;
    let (true, Some(bytes)) = (rest == values * 4, body.get(body.len() - rest..)) else {
        return Err(Error::Short);
    };
    let values = bytemuck::try_cast_slice(bytes).map_err(|_| Error::Unaligned)?.to_vec();
    Ok(Changed { counter, ids, values })
}
