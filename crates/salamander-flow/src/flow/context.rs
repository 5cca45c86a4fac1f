//! Where a flow is built and run: DataFusion's session with bounded memory, the input, and parameters.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use datafusion::catalog::streaming::StreamingTable;
use datafusion::common::config::ConfigOptions;
use datafusion::dataframe::DataFrame;
use datafusion::datasource::provider_as_source;
use datafusion::execution::SessionStateBuilder;
use datafusion::execution::memory_pool::FairSpillPool;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::logical_expr::LogicalPlanBuilder;
use datafusion::prelude::{
    CsvReadOptions, JsonReadOptions, ParquetReadOptions, SQLOptions, SessionConfig, SessionContext,
};
use salamander_data::Format;
use tokio::runtime::{Builder, Runtime};

use super::Error;
use super::bad_rows::BadRows;
use super::batches::FunctionPlanner;
use super::generated::GeneratedPart;
use super::records::Records;
use super::tset::TSet;
use super::typed::{FlowRow, columns_of};

/// What the input is called in plans, and in SQL.
pub(crate) const INPUT: &str = "input";

/// How files of JSON lines end.
const JSON_ENDINGS: [&str; 3] = [".jsonl", ".ndjson", ".json"];

/// How many files of sorted rows are merged at a time where memory is bounded: a merge takes what it can get for them,
/// and must leave something for the sorts beside it.
const MERGED: usize = 4;

/// How the engine runs.
#[derive(Clone, Debug, Default)]
pub struct EngineSettings {
    /// Partitions that are worked on at a time [default: the number of processors].
    pub partitions: Option<usize>,
    /// Bytes that sorts, groups and joins by equal values may take before they go to disk [default: no bound].
    pub memory: Option<usize>,
    /// Where they go to [default: the system's folder for temporary files].
    pub spill: Option<PathBuf>,
    /// Plans so that each partition can be worked on alone, by whoever.
    pub in_stages: bool,
}

/// What a flow is built from: cheap to clone.
#[derive(Clone)]
pub struct FlowContext {
    pub(crate) session: SessionContext,
    pub(crate) runtime: Arc<Runtime>,
    pub(crate) bad: BadRows,
    pub(crate) partitions: usize,
    /// Whether the flow was built before, by this process or by the one that leads: what it keeps is there.
    pub(crate) is_built_again: bool,
    input: Option<FlowInput>,
    parameters: Arc<BTreeMap<String, String>>,
}

/// The records that a flow is to work on.
#[derive(Clone, Debug)]
pub(crate) struct FlowInput {
    pub(crate) records: Records,
    /// Those that are this task's.
    pub(crate) range: Range<u64>,
}

impl FlowContext {
    /// A context without input.
    pub fn new(settings: &EngineSettings) -> Result<Self, Error> {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        // Where there is a single partition, DataFusion joins by hash, which cannot go to disk.
        let fewest = if settings.memory.is_some() { 2 } else { 1 };
        let partitions = settings.partitions.unwrap_or(cores.max(fewest)).max(1);
        // Partitions may be many more than processors: their number decides which rows meet where.
        let threads = partitions.min(cores);
        let runtime = Builder::new_multi_thread().worker_threads(threads).enable_all().build();
        let runtime =
            runtime.map_err(|error| Error::Invalid(format!("cannot start threads: {error}")))?;
        let (mut environment, mut options) = (RuntimeEnvBuilder::new(), ConfigOptions::new());
        if let Some(bytes) = settings.memory {
            // Each sort and each group has its share: else the first takes all, and the next fails.
            environment = environment
                .with_memory_pool(Arc::new(FairSpillPool::new(bytes)))
                .with_max_spill_merge_fan_in(MERGED);
            bound_memory(&mut options, bytes, if settings.in_stages { 1 } else { partitions });
        }
        if let Some(folder) = &settings.spill {
            environment = environment.with_temp_file_path(folder);
        }
        options.sql_parser.enable_ident_normalization = false;
        if settings.in_stages {
            plan_for_stages(&mut options);
        }
        let config = SessionConfig::from(options).with_target_partitions(partitions);
        let state = SessionStateBuilder::new()
            .with_config(config)
            .with_runtime_env(environment.build_arc()?)
            .with_default_features()
            .with_query_planner(Arc::new(FunctionPlanner))
            .build();
        Ok(Self {
            session: SessionContext::new_with_state(state).enable_url_table(),
            runtime: Arc::new(runtime),
            bad: BadRows::default(),
            partitions,
            is_built_again: false,
            input: None,
            parameters: Arc::default(),
        })
    }

    /// With records to work on, or some of them.
    #[must_use]
    pub fn with_input(mut self, records: Records, range: Range<u64>) -> Self {
        self.input = Some(FlowInput { records, range });
        self
    }

    /// With parameters, which [`FlowContext::parameter`] reads.
    #[must_use]
    pub fn with_parameters(mut self, parameters: BTreeMap<String, String>) -> Self {
        self.parameters = Arc::new(parameters);
        self
    }

    /// For a flow that was built before: what it keeps by [`TSet::cache`] is read, not made again.
    #[must_use]
    pub(crate) fn built_again(mut self) -> Self {
        self.is_built_again = true;
        self
    }

    /// The records that the flow was given: `--in` of the command line.
    pub fn input(&self) -> Result<TSet, Error> {
        let input = self.input.as_ref().ok_or_else(|| {
            Error::Invalid("the flow reads its input: name files with --in".to_string())
        })?;
        let table = input.records.table(input.range.clone(), self.partitions, &self.bad)?;
        let source = provider_as_source(Arc::new(table));
        let plan = LogicalPlanBuilder::scan(INPUT, source, None)?.build()?;
        Ok(self.tset(DataFrame::new(self.session.state(), plan)))
    }

    /// Gives the input its name for SQL, if there is one.
    pub(crate) fn register_input(&self) -> Result<(), Error> {
        if let Some(input) = &self.input {
            let table = input.records.table(input.range.clone(), self.partitions, &self.bad)?;
            self.session.register_table(INPUT, Arc::new(table))?;
        }
        Ok(())
    }

    /// Records of files of any format, all of them.
    pub fn records(&self, places: &[&str], format: Option<Format>) -> Result<TSet, Error> {
        let places: Vec<String> = places.iter().map(ToString::to_string).collect();
        let records = Records::open(&places, format)?;
        let table = records.table(0..records.len(), self.partitions, &self.bad)?;
        self.table(table)
    }

    /// Parquet files or folders, read by DataFusion: columns and row groups that are not needed are not read.
    pub fn parquet(&self, place: &str) -> Result<TSet, Error> {
        let read = self.session.read_parquet(place, ParquetReadOptions::default());
        Ok(self.tset(self.runtime.block_on(read)?))
    }

    /// CSV files or folders with a header row, read by DataFusion.
    pub fn csv(&self, place: &str) -> Result<TSet, Error> {
        let read = self.session.read_csv(place, CsvReadOptions::new());
        Ok(self.tset(self.runtime.block_on(read)?))
    }

    /// Files of JSON lines, read by DataFusion: of a folder those that end as the first of `.jsonl`, `.ndjson` and
    /// `.json` that some of its files end with.
    pub fn json_lines(&self, place: &str) -> Result<TSet, Error> {
        let options = JsonReadOptions::default().file_extension(json_ending(Path::new(place)));
        let read = self.session.read_json(place, options);
        Ok(self.tset(self.runtime.block_on(read)?))
    }

    /// Rows from a function, which is called with the number of each partition.
    pub fn source<T: FlowRow, I: Iterator<Item = T> + Send + 'static>(
        &self,
        name: &str,
        partitions: usize,
        rows: impl Fn(usize) -> I + Send + Sync + 'static,
    ) -> Result<TSet, Error> {
        let columns = columns_of::<T>(name)?;
        let table = GeneratedPart::table(name, columns, partitions.max(1), Arc::new(rows))?;
        self.table(table)
    }

    /// A table of SQL. Files are tables too, by their quoted path: `select * from 'a.parquet'`.
    pub fn sql(&self, query: &str) -> Result<TSet, Error> {
        let options = SQLOptions::new()
            .with_allow_ddl(false)
            .with_allow_dml(false)
            .with_allow_statements(false);
        let planned = self.session.sql_with_options(query, options);
        Ok(self.tset(self.runtime.block_on(planned)?))
    }

    /// Gives rows a name for SQL.
    pub fn register(&self, name: &str, rows: &TSet) -> Result<(), Error> {
        self.session.register_table(name, rows.frame.clone().into_view())?;
        Ok(())
    }

    /// A parameter, as text.
    pub fn text_parameter(&self, name: &str) -> Option<&str> {
        self.parameters.get(name).map(String::as_str)
    }

    /// A parameter of any type, or its default: `--set NAME=VALUE` of the command line.
    pub fn parameter<T: FromStr<Err: Display>>(&self, name: &str, default: T) -> Result<T, Error> {
        let Some(text) = self.text_parameter(name) else { return Ok(default) };
        let wrong = |error| Error::Invalid(format!("--set {name}={text}: {error}"));
        text.parse().map_err(wrong)
    }

    pub(crate) fn tset(&self, frame: DataFrame) -> TSet {
        TSet { frame, cx: self.clone() }
    }

    fn table(&self, table: StreamingTable) -> Result<TSet, Error> {
        Ok(self.tset(self.session.read_table(Arc::new(table))?))
    }
}

/// How the files of JSON lines at a place end: DataFusion takes no others, and knows `.json` alone by itself.
fn json_ending(place: &Path) -> &'static str {
    let of = |name: &Path| {
        let name = name.to_string_lossy();
        JSON_ENDINGS.iter().position(|ending| name.ends_with(ending))
    };
    let entries = std::fs::read_dir(place).into_iter().flatten().flatten();
    let within = || entries.filter_map(|entry| of(&entry.path())).min();
    JSON_ENDINGS[of(place).or_else(within).unwrap_or(JSON_ENDINGS.len() - 1)]
}

/// Has joins sort, since a table of hashes cannot go to disk. A join sorts both of its sides in each of the partitions
/// that are worked on, and each sort keeps something for its merge: that must not be all there is.
fn bound_memory(options: &mut ConfigOptions, bytes: usize, partitions: usize) {
    options.optimizer.prefer_hash_join = false;
    let kept = &mut options.execution.sort_spill_reservation_bytes;
    *kept = (*kept).min(bytes / (8 * partitions));
}

/// Leaves out what DataFusion does between partitions where each of them is worked on alone: nobody is there to take
/// files from, and nobody tells what need not be read. Joins sort, so that their memory is bounded.
fn plan_for_stages(options: &mut ConfigOptions) {
    options.execution.enable_file_stream_work_stealing = false;
    let optimizer = &mut options.optimizer;
    optimizer.prefer_hash_join = false;
    optimizer.enable_dynamic_filter_pushdown = false;
    optimizer.enable_topk_dynamic_filter_pushdown = false;
    optimizer.enable_join_dynamic_filter_pushdown = false;
    optimizer.enable_aggregate_dynamic_filter_pushdown = false;
}
