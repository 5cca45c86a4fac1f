//! The data of an experiment: files and how to read them, and folders that are still being written.

use std::collections::BTreeMap;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::csv::CsvSettings;
use super::shapes::Paths;
use crate::order::Shuffle;

/// Files and how to read them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Data {
    /// Files or folders to train on; relative to the experiment file.
    pub training: Paths,
    /// Files or folders to validate on.
    pub validation: Paths,
    /// `recordio`, `tfrecord`, `csv`, `jsonl`, `parquet`, `sqlite`, `idx`, `cifar`, `images`,
    /// `census`, `criteo` or `movielens`; guessed when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub format: Option<String>,
    /// How CSV files are written down: header, separator, spaces, missing values.
    #[serde(skip_serializing_if = "CsvSettings::is_default")]
    pub csv: CsvSettings,
    /// Columns of the files, by the names that the model has for them, where these differ:
    /// `{text: review, label: stars}`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub columns: BTreeMap<String, String>,
    /// The order of an epoch: `none`, `{window: n}`, `partition` or `full`.
    pub shuffle: Shuffle,
    /// `training` is a folder of partitions that is written while training goes on; needs `shuffle: partition`.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub stream: bool,
    /// Training on streamed data ends with an error when for so many seconds there was neither a partition nor a lock
    /// nor a heartbeat of who writes it; 300 by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stream_timeout: Option<f64>,
    /// Makes statistics and vocabularies that are not there from the training data.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub fit: bool,
    /// What a record that cannot be decoded does.
    pub on_bad_record: OnBadRecord,
    /// Threads that read and decode; by default half of the cores.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threads: Option<usize>,
    /// Megabytes for decoded records of text files, which are kept from one epoch to the next; 256 by
    /// default, 0 for none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_megabytes: Option<usize>,
}

impl Data {
    /// Bytes for decoded records.
    pub fn cache_bytes(&self) -> usize {
        self.cache_megabytes.unwrap_or(256).saturating_mul(1 << 20)
    }

    /// Threads that read and decode.
    pub fn threads(&self) -> usize {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        self.threads.unwrap_or(cores / 2).max(1)
    }

    /// A column that would have two names, and so only one of them.
    pub(super) fn columns_named_twice(&self) -> Option<(&'static str, &'static str)> {
        let mut columns: Vec<&String> = self.columns.values().collect();
        columns.sort_unstable();
        let twice = columns.array_windows().any(|[column, next]| column == next);
        twice.then_some(("data.columns", "a column of the files can have one name only"))
    }

    /// How long nothing may be heard of who writes streamed data.
    pub fn stream_timeout(&self) -> Duration {
        Duration::from_secs_f64(self.stream_timeout.unwrap_or(300.0))
    }

    /// The first setting that data which is still being written cannot follow, and why.
    pub(super) fn streamed_wrongly(&self) -> Option<(&'static str, &'static str)> {
        if self.stream_timeout.is_some_and(|seconds| !(0.001..1e9).contains(&seconds)) {
            return Some(("data.stream_timeout", "write seconds above 0"));
        }
        if !self.stream {
            return None;
        }
        if self.training.0.len() > 1 || self.training.0.iter().any(|path| path.contains("://")) {
            return Some(("data.training", "with data.stream it is one folder, on a disk"));
        }
        if !matches!(self.shuffle, Shuffle::Partition | Shuffle::None) {
            let reason = "an order over all records needs their number, which nobody knows yet: write \
                          shuffle: partition";
            return Some(("data.shuffle", reason));
        }
        if self.fit {
            let reason = "statistics and vocabularies need all records: make them before (`salamander \
                          data fit`), and leave this out with data.stream";
            return Some(("data.fit", reason));
        }
        None
    }
}

/// What a record that cannot be decoded does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnBadRecord {
    /// Ends the run with an error that names it.
    #[default]
    Fail,
    /// Is left out and counted.
    Skip,
}
