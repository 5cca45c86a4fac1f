//! The lines of `salamander-parts.jsonl`: partitions in their order, and the end. A last line that is cut short does
//! not count.

use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Error;

/// The list of partitions.
pub(crate) const LIST: &str = "salamander-parts.jsonl";
/// Held by who writes.
pub(super) const LOCK: &str = "salamander-parts.lock";
/// Changes every few seconds while somebody writes.
pub(super) const ALIVE: &str = "salamander-parts.alive";

/// A partition, as its folder names it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PartFile {
    /// Its file in the folder.
    pub file: String,
    /// How many records it has.
    pub records: u64,
    /// The hash of its bytes, for who goes on with the folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blake3: Option<String>,
    /// The work that it comes from, for who goes on with the folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<u64>,
}

/// One line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ListLine {
    /// What the partitions are made by, for who goes on with the folder.
    MadeBy(Value),
    /// The next partition.
    Part(PartFile),
    /// There are so many, and no more.
    End(ListEnd),
}

/// What all partitions come to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ListEnd {
    pub(super) parts: u64,
    pub(super) records: u64,
}

/// What a list says.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct PartList {
    pub(super) made_by: Option<Value>,
    pub(super) parts: Vec<PartFile>,
    pub(super) ended: bool,
    /// Bytes of all whole lines.
    pub(super) length: usize,
}

impl PartList {
    /// Reads the whole lines of a list.
    pub(super) fn parse(path: &Path, text: &[u8]) -> Result<Self, Error> {
        let length = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let mut list = Self { length, ..Self::default() };
        for (number, line) in text[..length].split(|byte| *byte == b'\n').enumerate() {
            if line.is_empty() {
                continue;
            }
            let wrong =
                |reason: String| Error::form(path, format!("line {}: {reason}", number + 1));
            let line = serde_json::from_slice(line).map_err(|error| wrong(error.to_string()))?;
            list.add(line).map_err(wrong)?;
        }
        Ok(list)
    }

    fn add(&mut self, line: ListLine) -> Result<(), String> {
        if self.ended {
            return Err("it stands behind the end".to_string());
        }
        match line {
            ListLine::MadeBy(made_by) => self.made_by = Some(made_by),
            ListLine::Part(part) => {
                let mut places = Path::new(&part.file).components();
                if !places.all(|place| matches!(place, Component::Normal(_)))
                    || part.file.is_empty()
                {
                    return Err(format!("{:?}: name a file of this folder", part.file));
                }
                self.parts.push(part);
            }
            ListLine::End(end) => {
                let ListEnd { parts, records } = self.totals();
                if end != (ListEnd { parts, records }) {
                    return Err(format!(
                        "the end has {} partitions with {} records, and before it stand {parts} with \
                         {records}",
                        end.parts, end.records
                    ));
                }
                self.ended = true;
            }
        }
        Ok(())
    }

    /// What the partitions so far come to.
    pub(super) fn totals(&self) -> ListEnd {
        let records = self.parts.iter().fold(0u64, |sum, part| sum.saturating_add(part.records));
        ListEnd { parts: self.parts.len() as u64, records }
    }
}

/// What a folder of partitions names; nothing where there is no list.
pub(super) fn read_list(folder: &Path) -> Result<PartList, Error> {
    let path = folder.join(LIST);
    match std::fs::read(&path) {
        Ok(text) => PartList::parse(&path, &text),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(PartList::default()),
        Err(error) => Err(Error::io(&path)(error)),
    }
}

/// The files of a folder of partitions, in their order: for who wants all of them.
pub(crate) fn finished_parts(folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let path = folder.join(LIST);
    let text = std::fs::read(&path).map_err(Error::io(&path))?;
    let list = PartList::parse(&path, &text)?;
    if !list.ended {
        let reason = "its end is not marked, so partitions are still being written, or whoever wrote them has \
                      died: train on them with data.stream: true, or wait for the end";
        return Err(Error::form(path, reason));
    }
    if list.parts.is_empty() {
        return Err(Error::NoFiles { path: folder.to_owned() });
    }
    Ok(list.parts.iter().map(|part| folder.join(&part.file)).collect())
}
