//! The work of a flow in tasks: each reads what is its own, writes files under its own name and tells what they hold.
//! Whoever does a task again writes other files; only what is told counts.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use datafusion::arrow::array::{RecordBatch, UInt32Array};
use datafusion::arrow::compute::take_record_batch;
use datafusion::arrow::datatypes::SchemaRef;
use salamander_data::types::Types;
use salamander_files::{Durability, replace};
use serde::{Deserialize, Serialize};

use super::buckets::{BucketFile, BucketWriter, Bucketing, class_of, sorted};
use super::settings::SinkSettings;
use super::writer::{ShardFile, ShardPlace, ShardWriter, Vocabularies};
use crate::flow::Error;
use crate::flow::bad_rows::BadRow;
use crate::flow::cells::WrittenColumns;
use crate::flow::context::{EngineSettings, FlowContext};
use crate::flow::job::FlowJob;
use crate::flow::records::{Records, cut};
use crate::flow::registry::Flows;
use crate::flow::stages::ShuffleStage;

/// A stage of a flow: tasks that can be done in any order, by anybody.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FlowStage {
    /// The flow itself, on a range of the input in each task.
    Map(MapStage),
    /// A part of a flow whose rows meet, on some partitions in each task.
    Shuffle(Box<ShuffleStage>),
    /// Buckets of rows, each sorted and divided.
    Sort(SortStage),
}

/// The flow on ranges of its input.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MapStage {
    pub(crate) job: FlowJob,
    pub(crate) types: Types,
    pub(crate) records: u64,
    pub(crate) tasks: u64,
    /// The first of them that is to be done: those before it are, by whoever began.
    #[serde(default)]
    pub(crate) first: u64,
    /// How many buckets rows go to; none if they keep their order.
    pub(crate) buckets: Option<u64>,
    /// The input, once a task of this process has opened it.
    #[serde(skip)]
    pub(crate) input: SharedRecords,
}

/// Records that the tasks of a process open once: to index a text file is to read all of it.
#[derive(Clone, Debug, Default)]
pub(crate) struct SharedRecords(Arc<Mutex<Option<Records>>>);

impl SharedRecords {
    /// Records that are open already.
    pub(crate) fn of(records: &Records) -> Self {
        Self(Arc::new(Mutex::new(Some(records.clone()))))
    }

    /// The input of a flow as it was when the flow began; this process opens it once.
    pub(crate) fn of_job(
        &self,
        job: &FlowJob,
        types: &Types,
        count: u64,
    ) -> Result<Records, Error> {
        let open = || Records::open_typed(&job.inputs, job.format()?, types.clone());
        let records = self.get(open)?;
        if records.len() != count {
            let found = records.len();
            return Err(Error::Invalid(format!(
                "the input has changed: {found} records, {count} when the flow began"
            )));
        }
        Ok(records)
    }

    /// Who comes meanwhile waits for who opens them.
    fn get(&self, open: impl FnOnce() -> Result<Records, Error>) -> Result<Records, Error> {
        let mut opened = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(records) = opened.as_ref() {
            return Ok(records.clone());
        }
        let records = open()?;
        *opened = Some(records.clone());
        Ok(records)
    }
}

/// Buckets that are sorted.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SortStage {
    pub(crate) sink: SinkSettings,
    pub(crate) buckets: Vec<SortBucket>,
    /// For each class, behind which of its rows each part ends.
    pub(crate) ends: BTreeMap<String, Vec<u64>>,
}

/// A bucket with the files that tasks have left for it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct SortBucket {
    pub(crate) files: Vec<BucketFile>,
    /// How many rows of each class are in the buckets before.
    pub(crate) before: BTreeMap<String, u64>,
}

/// What a task has left.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct TaskReport {
    /// Rows that it has written.
    pub rows: u64,
    /// Rows that it has kept aside.
    pub bad: u64,
    pub(crate) shards: Vec<ShardFile>,
    pub(crate) buckets: Vec<BucketFile>,
    pub(crate) bad_file: Option<String>,
    pub(crate) words_file: Option<String>,
}

impl FlowStage {
    /// How many tasks it has.
    pub fn tasks(&self) -> u64 {
        match self {
            FlowStage::Map(stage) => stage.tasks.saturating_sub(stage.first),
            FlowStage::Shuffle(stage) => stage.tasks,
            FlowStage::Sort(stage) => stage.buckets.len() as u64,
        }
    }

    /// Does a task. Files go to the folder, with names that begin with this one.
    pub fn run(
        &self,
        flows: &Flows,
        task: u64,
        folder: &Path,
        name: &str,
    ) -> Result<TaskReport, Error> {
        match self {
            FlowStage::Map(stage) => stage.run(flows, task, folder, name),
            FlowStage::Shuffle(stage) => stage.run(flows, task, folder, name),
            FlowStage::Sort(stage) => stage.run(task, folder, name),
        }
    }
}

impl MapStage {
    fn run(
        &self,
        flows: &Flows,
        task: u64,
        folder: &Path,
        name: &str,
    ) -> Result<TaskReport, Error> {
        let job = &self.job;
        let records = self.input.of_job(job, &self.types, self.records)?;
        let task = (self.first + task) as usize;
        let range = cut(0..self.records, self.tasks).nth(task).unwrap_or(0..0);
        // One partition: rows come in the order of the input.
        let (partitions, memory) = (Some(1), job.memory);
        let engine = EngineSettings { partitions, memory, ..EngineSettings::default() };
        let cx = FlowContext::new(&engine)?
            .with_input(records, range)
            .with_parameters(job.parameters.clone())
            .built_again();
        let rows = job.build(flows, &cx)?;
        let columns = WrittenColumns::new(rows.schema(), job.sink.format()?)?;
        let mut report = TaskReport::default();
        if let Some(buckets) = self.buckets {
            let bucketing = job.bucketing(buckets);
            let mut writer = BucketWriter::new(folder, name, &columns.schema, &bucketing)?;
            rows.batches(|_, batch| writer.write(&columns.apply(&batch)?))?;
            report = TaskReport::of_buckets(writer.finish()?);
        } else {
            let part = job.sink.parts()[0];
            let place = ShardPlace { folder, name: name.to_string(), part };
            let mut writer = ShardWriter::new(&job.sink, columns.clone(), place)?;
            rows.batches(|_, batch| writer.write(&columns.apply(&batch)?))?;
            // A shard for each task, so that their number is what was asked for.
            let (shards, words) = writer.finish(true)?;
            report.add_shards(shards, words, folder, name)?;
        }
        report.add_bad(&cx.bad.take(), folder, name)?;
        Ok(report)
    }
}

impl SortStage {
    fn run(&self, task: u64, folder: &Path, name: &str) -> Result<TaskReport, Error> {
        let mut report = TaskReport::default();
        let Some(bucket) = self.buckets.get(task as usize) else { return Ok(report) };
        let Some(rows) = self.sorted(bucket, folder)? else { return Ok(report) };
        let columns = WrittenColumns { schema: rows.schema() };
        for (part, places) in self.divide(bucket, &rows)?.into_iter().enumerate() {
            if places.is_empty() {
                continue;
            }
            let part = self.sink.parts()[part];
            let place = ShardPlace { folder, name: name.to_string(), part };
            let mut writer = ShardWriter::new(&self.sink, columns.clone(), place)?;
            writer.write(&take_record_batch(&rows, &UInt32Array::from(places))?)?;
            let (shards, words) = writer.finish(false)?;
            report.add_shards(shards, words, folder, name)?;
        }
        Ok(report)
    }

    fn sorted(&self, bucket: &SortBucket, folder: &Path) -> Result<Option<RecordBatch>, Error> {
        if bucket.files.is_empty() {
            return Ok(None);
        }
        let rows = sorted(folder, &bucket.files, self.sink.shuffle.unwrap_or_default())?;
        Ok(Some(rows))
    }

    /// The rows of each part: those of a class in the order of their keys, the first ones first.
    fn divide(&self, bucket: &SortBucket, rows: &RecordBatch) -> Result<Vec<Vec<u32>>, Error> {
        let mut parts = vec![Vec::new(); self.sink.parts().len()];
        if parts.len() == 1 {
            parts[0] = (0..rows.num_rows() as u32).collect();
            return Ok(parts);
        }
        let schema: SchemaRef = rows.schema();
        let class = self.sink.stratify.as_ref().and_then(|name| schema.index_of(name).ok());
        let mut seen = bucket.before.clone();
        for row in 0..rows.num_rows() {
            let class = class_of(rows, class, row)?;
            let ends = self.ends.get(&class).map_or(&[][..], Vec::as_slice);
            let rank = seen.entry(class).or_default();
            let part = ends.iter().position(|end| *rank < *end).unwrap_or(0);
            *rank += 1;
            parts[part].push(row as u32);
        }
        Ok(parts)
    }
}

impl TaskReport {
    /// Of a task that has left rows for others.
    pub(crate) fn of_buckets(buckets: Vec<BucketFile>) -> Self {
        let rows = buckets.iter().map(|file| file.rows).sum();
        Self { rows, buckets, ..Self::default() }
    }

    fn add_shards(
        &mut self,
        shards: Vec<ShardFile>,
        words: Option<Vocabularies>,
        folder: &Path,
        name: &str,
    ) -> Result<(), Error> {
        self.rows += shards.iter().map(|shard| shard.rows).sum::<u64>();
        self.shards.extend(shards);
        if let Some(words) = words {
            let file = format!("{name}-words.json");
            let path = folder.join(&file);
            let text =
                serde_json::to_vec(&words).map_err(|error| Error::Invalid(error.to_string()))?;
            replace(&path, &text, Durability::Unsynced).map_err(Error::io(&path))?;
            self.words_file = Some(file);
        }
        Ok(())
    }

    pub(crate) fn add_bad(
        &mut self,
        rows: &[BadRow],
        folder: &Path,
        name: &str,
    ) -> Result<(), Error> {
        if rows.is_empty() {
            return Ok(());
        }
        let file = format!("{name}-bad.jsonl");
        let path = folder.join(&file);
        let line = |row: &BadRow| format!("{}\n", serde_json::json!(row));
        let text: String = rows.iter().map(line).collect();
        replace(&path, text.as_bytes(), Durability::Unsynced).map_err(Error::io(&path))?;
        self.bad = rows.len() as u64;
        self.bad_file = Some(file);
        Ok(())
    }
}

impl FlowJob {
    pub(crate) fn bucketing(&self, buckets: u64) -> Bucketing {
        let seed = self.sink.shuffle.unwrap_or_default();
        Bucketing { buckets, seed, class: self.sink.stratify.clone() }
    }
}
