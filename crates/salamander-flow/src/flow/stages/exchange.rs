//! Rows on their way from one stage to another, in files: who writes them tells what they hold, and who reads them
//! takes only what was told.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::Result as EngineResult;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::metrics::Time;
use datafusion::physical_plan::repartition::BatchPartitioner;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PhysicalExpr, PlanProperties,
};

use crate::flow::Error;
use crate::flow::error::external;
use crate::flow::sink::buckets::{BucketFile, BucketFiles, BucketReader};

/// Where the rows of a stage go.
#[derive(Clone, Debug)]
pub(crate) enum Routing {
    /// To the partition that a row's values say, or to each in turn.
    Spread(Partitioning),
    /// All to one.
    Gather,
    /// Each partition stays what it is.
    Keep,
}

/// Puts the rows of one partition where the next stage finds them.
pub(crate) struct ExchangeWriter {
    files: BucketFiles,
    to: RowTarget,
}

enum RowTarget {
    Spread(BatchPartitioner),
    One(u64),
}

impl ExchangeWriter {
    /// For one of so many partitions.
    pub(crate) fn new(
        files: BucketFiles,
        routing: &Routing,
        partition: usize,
        partitions: usize,
    ) -> Result<Self, Error> {
        let to = match routing {
            Routing::Gather => RowTarget::One(0),
            Routing::Keep => RowTarget::One(partition as u64),
            Routing::Spread(over) => {
                let over = over.clone();
                let spread = BatchPartitioner::try_new(over, Time::new(), partition, partitions)?;
                RowTarget::Spread(spread)
            }
        };
        Ok(Self { files, to })
    }

    pub(crate) fn write(&mut self, batch: RecordBatch) -> Result<(), Error> {
        match &mut self.to {
            RowTarget::One(partition) if batch.num_rows() > 0 => {
                self.files.add(*partition, &batch)?;
            }
            RowTarget::One(_) => {}
            RowTarget::Spread(spread) => {
                for part in spread.partition_iter(batch)? {
                    let (partition, rows) = part?;
                    if rows.num_rows() > 0 {
                        self.files.add(partition as u64, &rows)?;
                    }
                }
            }
        }
        Ok(())
    }

    pub(crate) fn finish(self) -> Result<Vec<BucketFile>, Error> {
        self.files.finish()
    }
}

/// What stages have left, by their numbers, in the order of their tasks.
#[derive(Clone, Debug, Default)]
pub(crate) struct ExchangeFiles {
    pub(crate) folder: PathBuf,
    pub(crate) stages: BTreeMap<usize, Vec<BucketFile>>,
}

impl ExchangeFiles {
    fn of_partition(&self, stage: usize, partition: usize) -> Vec<BucketFile> {
        let files = self.stages.get(&stage).into_iter().flatten();
        files.filter(|file| file.bucket == partition as u64).cloned().collect()
    }
}

/// The node of a plan that stands for a stage that is done: reads what that has left, always in the same order.
#[derive(Clone, Debug)]
pub(crate) struct ExchangeRead {
    stage: usize,
    properties: Arc<PlanProperties>,
    files: Arc<ExchangeFiles>,
}

impl ExchangeRead {
    pub(crate) fn new(
        stage: usize,
        properties: Arc<PlanProperties>,
        files: Arc<ExchangeFiles>,
    ) -> Self {
        Self { stage, properties, files }
    }
}

impl DisplayAs for ExchangeRead {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: stage={}", self.name(), self.stage)
    }
}

impl ExecutionPlan for ExchangeRead {
    fn name(&self) -> &str {
        "ExchangeRead"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn apply_expressions(
        &self,
        _f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> EngineResult<TreeNodeRecursion>,
    ) -> EngineResult<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(
        self: Arc<Self>,
        _children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> EngineResult<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn execute(
        &self,
        partition: usize,
        _context: Arc<TaskContext>,
    ) -> EngineResult<SendableRecordBatchStream> {
        let schema = self.schema();
        let files = self.files.of_partition(self.stage, partition);
        let folder = self.files.folder.clone();
        let batches = files.into_iter().flat_map(move |file| batches_of(&folder, &file));
        let batches = futures::stream::iter(batches.map(|batch| batch.map_err(external)));
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, batches)))
    }
}

/// Opens the file when its first row is asked for.
fn batches_of(
    folder: &Path,
    file: &BucketFile,
) -> Box<dyn Iterator<Item = Result<RecordBatch, Error>> + Send> {
    match BucketReader::open(folder, file) {
        Ok(reader) => Box::new(reader),
        Err(error) => Box::new(std::iter::once(Err(error))),
    }
}
