//! A flow whose rows are trained on while it runs: what each task has left becomes a partition of a folder as soon as
//! those of the tasks before it are there. Only its files are shared with whoever trains.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use salamander_data::{PartFile, PartsWriter};
use salamander_files::{Durability, raise_open_files, replace};
use serde_json::json;

use super::Error;
use super::context::EngineSettings;
use super::job::{FlowJob, TaskRunner, staging_folder};
use super::registry::Flows;
use super::shape::FlowShape;
use super::sink::stage::{MapStage, SharedRecords};
use super::sink::{FlowStage, FlowSummary, ShardFile, TaskReport};

/// How the names of files begin that keep rows aside, one for each task that has some.
const BAD: &str = "bad_rows-";

impl FlowJob {
    /// Runs the flow and adds its rows to a folder of partitions, in the order of the input. A folder that a killed one
    /// has begun is gone on with, at the task that it had come to.
    pub fn stream(
        &self,
        flows: &Flows,
        out: &Path,
        runner: &mut dyn TaskRunner,
    ) -> Result<FlowSummary, Error> {
        self.sink.check()?;
        self.check_streamed()?;
        let none = || Error::Invalid("a stream needs an input: name files with --in".to_string());
        let records = self.records()?.ok_or_else(none)?;
        let (memory, partitions) = (self.memory, self.partitions);
        let engine = EngineSettings { memory, partitions, ..EngineSettings::default() };
        let rows = self.build(flows, &self.context(Some(&records), &engine)?)?;
        if let FlowShape::Whole(why) = FlowShape::of(&rows)? {
            return Err(Error::Invalid(format!(
                "--stream: it has {why}, so no row is ready before all are: leave --stream out, and train on what it \
                 has written"
            )));
        }
        raise_open_files();
        let tasks = self.sink.shard_count(Some(records.len()));
        // A task's rows follow from these, so that who goes on adds what the first one would have added.
        let job = FlowJob { memory: None, partitions: None, ..self.clone() };
        let made_by = json!({
            "flow": job, "records": records.len(), "tasks": tasks, "input": records.identity(),
        });
        let mut parts = Partitions { writer: PartsWriter::open(out, &made_by)?, out };
        if !parts.writer.is_ended() {
            let staging = staging_folder(out)?;
            let first = parts.next_task();
            let input = SharedRecords::of(&records);
            let (job, types, records) = (self.clone(), records.types().clone(), records.len());
            let stage = MapStage { job, types, records, tasks, first, buckets: None, input };
            let (mut task, stage) = (first, FlowStage::Map(stage));
            runner.run_each(&stage, staging.path(), &mut |report| {
                task += 1;
                parts.publish(task - 1, report, staging.path())
            })?;
            parts.writer.end()?;
        }
        parts.summary()
    }

    /// Refuses what is known when all rows are.
    fn check_streamed(&self) -> Result<(), Error> {
        let sink = &self.sink;
        let wanted = [
            (sink.shuffle.is_some(), "--shuffle"),
            (!sink.split.is_empty(), "--split"),
            (sink.statistics, "--statistics"),
            (!sink.vocabularies.is_empty(), "--vocabulary"),
        ];
        match wanted.into_iter().find(|(is_wanted, _)| *is_wanted) {
            Some((_, option)) => Err(Error::Invalid(format!(
                "--stream: {option} needs all rows, and others are trained on before they are there: do it in a flow \
                 of its own"
            ))),
            None => Ok(()),
        }
    }
}

/// The folder that partitions are added to.
struct Partitions<'a> {
    writer: PartsWriter,
    out: &'a Path,
}

impl Partitions<'_> {
    /// The task to go on with: the last one that has left something may not have named all of it.
    fn next_task(&self) -> u64 {
        self.writer.parts().iter().filter_map(|part| part.task).next_back().unwrap_or(0)
    }

    /// Names what a task has left, which is the next one in their order.
    fn publish(&mut self, task: u64, report: &TaskReport, staging: &Path) -> Result<(), Error> {
        if let Some(file) = &report.bad_file {
            let (from, to) = (staging.join(file), self.out.join(format!("{BAD}{task:06}.jsonl")));
            let text = fs::read(&from).map_err(Error::io(&from))?;
            replace(&to, &text, Durability::Synced).map_err(Error::io(&to))?;
        }
        for (number, shard) in report.shards.iter().filter(|shard| shard.rows > 0).enumerate() {
            self.name(task, number, shard, staging)?;
        }
        Ok(())
    }

    fn name(
        &mut self,
        task: u64,
        number: usize,
        shard: &ShardFile,
        staging: &Path,
    ) -> Result<(), Error> {
        let ending = Path::new(&shard.file).extension().unwrap_or_default().to_string_lossy();
        let part = PartFile {
            file: format!("part-{task:06}-{number}.{ending}"),
            records: shard.rows,
            blake3: Some(shard.blake3.clone()),
            task: Some(task),
        };
        let known = self.writer.parts().iter().rev().find(|known| known.file == part.file).cloned();
        match known {
            None => Ok(self.writer.add(&staging.join(&shard.file), part)?),
            Some(known) if known == part => Ok(()),
            Some(_) => Err(Error::Invalid(format!(
                "{}: the flow gave other rows when it began: write to another folder, and train on that from the \
                 beginning",
                self.out.join(&part.file).display()
            ))),
        }
    }

    fn summary(&self) -> Result<FlowSummary, Error> {
        let (mut rows, mut bytes, mut hasher) = (0, 0, blake3::Hasher::new());
        for part in self.writer.parts() {
            let path = self.out.join(&part.file);
            bytes += fs::metadata(&path).map_err(Error::io(&path))?.len();
            rows += part.records;
            hasher.update(part.file.as_bytes());
            hasher.update(part.blake3.as_deref().unwrap_or_default().as_bytes());
        }
        Ok(FlowSummary {
            dir: self.out.to_path_buf(),
            rows,
            parts: BTreeMap::from([("train".to_string(), rows)]),
            bad_rows: self.bad_rows()?,
            shards: self.writer.parts().len() as u64,
            bytes,
            digest: hasher.finalize().to_hex().to_string(),
        })
    }

    /// Rows that all tasks have kept aside, whoever did them.
    fn bad_rows(&self) -> Result<u64, Error> {
        let mut rows = 0;
        for entry in fs::read_dir(self.out).map_err(Error::io(self.out))? {
            let path = entry.map_err(Error::io(self.out))?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if name.starts_with(BAD) && name.ends_with(".jsonl") {
                let text = fs::read(&path).map_err(Error::io(&path))?;
                rows += text.iter().filter(|byte| **byte == b'\n').count() as u64;
            }
        }
        Ok(rows)
    }
}
