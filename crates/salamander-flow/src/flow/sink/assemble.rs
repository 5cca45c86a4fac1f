//! The output of a flow from what its tasks have left: checked, numbered, measured, and named when it is whole.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use salamander_core::layout::MANIFEST;
use salamander_data::stats::Stats;
use salamander_data::{Dataset, open};
use salamander_files::{Durability, PendingFolder, real, write_synced};
use serde::Serialize;
use serde_json::json;

use super::settings::SinkSettings;
use super::stage::{SortBucket, SortStage, TaskReport};
use super::writer::{ShardFile, Vocabularies};
use crate::flow::Error;
use crate::flow::job::FlowJob;

const STATISTICS: &str = "stats.json";
const BAD_ROWS: &str = "bad_rows.jsonl";
const VOCABULARY: &str = "vocabulary";

/// What a flow has written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FlowSummary {
    /// The folder.
    pub dir: PathBuf,
    /// Rows in it.
    pub rows: u64,
    /// Rows of each part.
    pub parts: BTreeMap<String, u64>,
    /// Rows that were kept aside, with reasons in `bad_rows.jsonl`.
    pub bad_rows: u64,
    /// Its shards.
    pub shards: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The hash of all of them: equal where all rows and their order are.
    pub digest: String,
}

/// The second stage of a shuffle, from what the first has left.
pub(crate) fn sort_stage(
    job: &FlowJob,
    buckets: u64,
    reports: &[TaskReport],
) -> Result<SortStage, Error> {
    let mut sorted = vec![SortBucket::default(); buckets as usize];
    for file in reports.iter().flat_map(|report| &report.buckets) {
        let bucket = sorted.get_mut(file.bucket as usize);
        let bucket =
            bucket.ok_or_else(|| Error::Invalid(format!("{}: no such bucket", file.file)))?;
        bucket.files.push(file.clone());
    }
    let mut classes: BTreeMap<String, u64> = BTreeMap::new();
    for bucket in &mut sorted {
        bucket.before = classes.clone();
        for (class, rows) in bucket.files.iter().flat_map(|file| &file.classes) {
            *classes.entry(class.clone()).or_default() += rows;
        }
    }
    let ends = if job.sink.split.is_empty() { BTreeMap::new() } else { ends(&classes, &job.sink)? };
    Ok(SortStage { sink: job.sink.clone(), buckets: sorted, ends })
}

/// Behind which row of a class each part ends.
fn ends(
    classes: &BTreeMap<String, u64>,
    sink: &SinkSettings,
) -> Result<BTreeMap<String, Vec<u64>>, Error> {
    let sizes: Vec<u64> = classes.values().copied().collect();
    let counts = salamander_data::split::stratified_counts(&sizes, &sink.split);
    let counts = counts.map_err(|error| Error::Invalid(error.to_string()))?;
    let sums = counts.into_iter().map(|counts| {
        let mut sum = 0;
        let add = |count| {
            sum += count;
            sum
        };
        counts.into_iter().map(add).collect()
    });
    Ok(classes.keys().cloned().zip(sums).collect())
}

/// What tasks of all stages have left.
pub(crate) struct StageReports {
    /// The stage that ran the flow: its rows must all be in shards, and its bad rows are kept.
    pub(crate) mapped: Vec<TaskReport>,
    /// The stage that has written shards, if that is another.
    pub(crate) sorted: Option<Vec<TaskReport>>,
}

/// Makes the output in the staging folder and gives it its name.
pub(crate) fn assemble(
    job: &FlowJob,
    staging: &Path,
    out: &Path,
    left: &StageReports,
) -> Result<FlowSummary, Error> {
    let written = left.sorted.as_ref().unwrap_or(&left.mapped);
    let rows: u64 = written.iter().map(|report| report.rows).sum();
    let mapped: u64 = left.mapped.iter().map(|report| report.rows).sum();
    if rows != mapped {
        let reason = format!(
            "{mapped} rows came out of the flow and {rows} are in shards: nothing was kept"
        );
        return Err(Error::Invalid(reason));
    }
    let pending = staging.join("output");
    let pending = PendingFolder::create(&pending).map_err(Error::io(&pending))?;
    let shards = place_shards(written, staging, pending.path())?;
    let bad_rows = collect_bad(&left.mapped, staging, pending.path())?;
    write_vocabularies(job, written, staging, pending.path())?;
    if job.sink.statistics {
        write_statistics(job, &shards, pending.path())?;
    }
    let summary = summary(out, &shards, bad_rows);
    let manifest = json!({
        "version": 1, "flow": job.call, "inputs": job.inputs, "parameters": job.parameters,
        "sink": job.sink, "rows": summary.rows, "bad_rows": bad_rows, "parts": summary.parts,
        "digest": summary.digest, "shards": shards,
    });
    write(&pending.path().join(MANIFEST), format!("{manifest:#}\n").as_bytes())?;
    sync_folder(pending.path())?;
    pending.commit(out, Durability::Synced).map_err(Error::io(out))?;
    Ok(summary)
}

/// Moves shards to their places, numbered in the order of tasks.
fn place_shards(
    reports: &[TaskReport],
    staging: &Path,
    output: &Path,
) -> Result<Vec<ShardFile>, Error> {
    let mut numbers: BTreeMap<&str, usize> = BTreeMap::new();
    let mut shards = Vec::new();
    for shard in reports.iter().flat_map(|report| &report.shards) {
        let number = numbers.entry(&shard.part).or_default();
        let folder = output.join(&shard.part);
        fs::create_dir_all(&folder).map_err(Error::io(&folder))?;
        let ending = Path::new(&shard.file).extension().unwrap_or_default().to_string_lossy();
        let file = format!("{}/shard-{number:05}.{ending}", shard.part);
        *number += 1;
        let path = staging.join(&shard.file);
        fs::rename(&path, output.join(&file)).map_err(Error::io(&path))?;
        shards.push(ShardFile { file, ..shard.clone() });
    }
    numbers.keys().try_for_each(|part| sync_folder(&output.join(part)))?;
    Ok(shards)
}

/// Waits until the disk knows the names in a folder.
fn sync_folder(folder: &Path) -> Result<(), Error> {
    real().sync_folder(folder).map_err(Error::io(folder))
}

fn collect_bad(reports: &[TaskReport], staging: &Path, output: &Path) -> Result<u64, Error> {
    let mut text = Vec::new();
    for file in reports.iter().filter_map(|report| report.bad_file.as_ref()) {
        let path = staging.join(file);
        text.extend(fs::read(&path).map_err(Error::io(&path))?);
    }
    if !text.is_empty() {
        write(&output.join(BAD_ROWS), &text)?;
    }
    Ok(reports.iter().map(|report| report.bad).sum())
}

/// The most frequent words first, in alphabetic order where they are equal, as a vocabulary is read.
fn write_vocabularies(
    job: &FlowJob,
    reports: &[TaskReport],
    staging: &Path,
    output: &Path,
) -> Result<(), Error> {
    if job.sink.vocabularies.is_empty() {
        return Ok(());
    }
    let mut all = Vocabularies::new();
    for file in reports.iter().filter_map(|report| report.words_file.as_ref()) {
        let path = staging.join(file);
        let text = fs::read(&path).map_err(Error::io(&path))?;
        let words: Vocabularies = serde_json::from_slice(&text)
            .map_err(|error| Error::step(&path.display().to_string(), error))?;
        for (column, words) in words {
            let counts = all.entry(column).or_default();
            words.into_iter().for_each(|(word, count)| *counts.entry(word).or_default() += count);
        }
    }
    let folder = output.join(VOCABULARY);
    fs::create_dir_all(&folder).map_err(Error::io(&folder))?;
    for (column, counts) in all {
        let mut words: Vec<(&String, &u64)> = counts.iter().collect();
        words.sort_by(|(a, few), (b, many)| many.cmp(few).then(a.cmp(b)));
        let lines: String = words.iter().map(|(word, _)| format!("{word}\n")).collect();
        write(&folder.join(format!("{column}.txt")), lines.as_bytes())?;
    }
    sync_folder(&folder)
}

/// Measures the first part, in the order of its rows: parts of a fixed size are merged in their order, so neither
/// processes nor shards change a bit of it.
fn write_statistics(job: &FlowJob, shards: &[ShardFile], output: &Path) -> Result<(), Error> {
    let first = job.sink.parts()[0];
    let files = shards.iter().filter(|shard| shard.part == first && shard.rows > 0);
    let files: Vec<PathBuf> = files.map(|shard| output.join(&shard.file)).collect();
    let stats = match files.as_slice() {
        [] => Stats::default(),
        files => Stats::of(&Dataset::new(Arc::from(open(files, None)?))?, |_| {})?,
    };
    let text =
        serde_json::to_vec_pretty(&stats).map_err(|error| Error::Invalid(error.to_string()))?;
    write(&output.join(STATISTICS), &text)
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    write_synced(&*real(), path, bytes).map_err(Error::io(path))
}

fn summary(out: &Path, shards: &[ShardFile], bad_rows: u64) -> FlowSummary {
    let mut parts: BTreeMap<String, u64> = BTreeMap::new();
    let mut hasher = blake3::Hasher::new();
    for shard in shards {
        *parts.entry(shard.part.clone()).or_default() += shard.rows;
        hasher.update(shard.file.as_bytes()).update(shard.blake3.as_bytes());
    }
    FlowSummary {
        dir: out.to_path_buf(),
        rows: shards.iter().map(|shard| shard.rows).sum(),
        parts,
        bad_rows,
        shards: shards.len() as u64,
        bytes: shards.iter().map(|shard| shard.bytes).sum(),
        digest: hasher.finalize().to_hex().to_string(),
    }
}
