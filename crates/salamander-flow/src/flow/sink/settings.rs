//! What is written: format, shards, order, parts, statistics and vocabularies.

use datafusion::arrow::datatypes::Schema;
use salamander_core::yaml::nearest;
use salamander_data::Format;
use serde::{Deserialize, Serialize};

use crate::flow::Error;

/// Records of a shard where nothing else bounds it.
const SHARD_RECORDS: u64 = 50_000;
/// Shards of a flow whose rows nobody can count before they are there.
const SHARDS: u64 = 4;

/// The parts of a split, which are folders of the output; without a split all rows are in the first.
pub(crate) const PARTS: [&str; 3] = ["train", "validation", "test"];

/// How rows are written.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SinkSettings {
    /// The format of the shards: recordio or parquet, or another that can be written.
    pub format: String,
    /// So many shards.
    pub shards: Option<u64>,
    /// The most records of a shard.
    pub shard_records: Option<u64>,
    /// About the most bytes of a shard.
    pub shard_bytes: Option<u64>,
    /// Puts rows into an order that only this seed and the rows themselves decide; otherwise they keep the input's.
    pub shuffle: Option<u64>,
    /// Shares of train, validation and test; none writes everything into one folder.
    pub split: Vec<f64>,
    /// Divides each class of this column alike.
    pub stratify: Option<String>,
    /// Measures columns for `normalise`.
    pub statistics: bool,
    /// Counts the words of these columns for `vocabulary`.
    pub vocabularies: Vec<String>,
}

impl Default for SinkSettings {
    fn default() -> Self {
        Self {
            format: Format::Parquet.name().to_string(),
            shards: None,
            shard_records: None,
            shard_bytes: None,
            shuffle: None,
            split: Vec::new(),
            stratify: None,
            statistics: false,
            vocabularies: Vec::new(),
        }
    }
}

impl SinkSettings {
    /// The format, if it can be written.
    pub(crate) fn format(&self) -> Result<Format, Error> {
        let format: Format =
            self.format.parse().map_err(|error| Error::Invalid(format!("{error}")))?;
        match format.is_written() {
            true => Ok(format),
            false => Err(Error::Invalid(format!(
                "{format} is read, not written: write parquet or recordio"
            ))),
        }
    }

    /// Refuses what cannot be meant.
    pub(crate) fn check(&self) -> Result<(), Error> {
        self.format()?;
        let wrong = |text: String| Err(Error::Invalid(text));
        if [self.shards, self.shard_records, self.shard_bytes].contains(&Some(0)) {
            return wrong("a shard needs a size above 0".to_string());
        }
        if self.split.len() > PARTS.len() {
            return wrong(format!(
                "{} shares: give at most three, for train, validation and test",
                self.split.len()
            ));
        }
        if self.stratify.is_some() && self.split.is_empty() {
            return wrong(
                "stratify divides the classes of a split: give its shares too".to_string(),
            );
        }
        if !self.split.is_empty() {
            let divided = salamander_data::split::stratified_counts(&[], &self.split);
            divided.map_err(|error| Error::Invalid(error.to_string()))?;
        }
        Ok(())
    }

    /// Refuses columns that the rows of a flow do not have.
    pub(crate) fn check_columns(&self, rows: &Schema) -> Result<(), Error> {
        let there: Vec<&str> = rows.fields().iter().map(|field| field.name().as_str()).collect();
        let classes = self.stratify.iter().map(|name| ("stratify", name));
        let counted = self.vocabularies.iter().map(|name| ("vocabulary", name));
        for (word, name) in classes.chain(counted) {
            if there.contains(&name.as_str()) {
                continue;
            }
            let hint = match nearest(name, there.iter().copied()) {
                Some(near) => format!("did you mean \"{near}\"?"),
                None => format!("there are: {}", there.join(", ")),
            };
            return Err(Error::step(word, format!("no column \"{name}\" ({hint})")));
        }
        Ok(())
    }

    /// Whether rows go where their content says, and not where they came from.
    pub(crate) fn is_shuffled(&self) -> bool {
        self.shuffle.is_some() || !self.split.is_empty()
    }

    /// Into how many shards rows go, if there are about so many.
    pub(crate) fn shard_count(&self, rows: Option<u64>) -> u64 {
        match (self.shards, rows) {
            (Some(shards), _) => shards,
            (None, Some(rows)) => rows.div_ceil(self.shard_records.unwrap_or(SHARD_RECORDS)).max(1),
            (None, None) => SHARDS,
        }
    }

    /// The folders of the output.
    pub(crate) fn parts(&self) -> Vec<&'static str> {
        PARTS[..self.split.len().clamp(1, PARTS.len())].to_vec()
    }
}
