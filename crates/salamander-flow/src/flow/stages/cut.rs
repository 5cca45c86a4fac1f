//! A plan cut into stages where rows go to other partitions. Whoever plans the same flow cuts it in the same way, so
//! that a stage is told by its number.

use std::ops::Range;
use std::sync::Arc;

use datafusion::error::Result as EngineResult;
use datafusion::physical_expr::EquivalenceProperties;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::joins::{HashJoinExec, PartitionMode};
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::{
    ExecutionPlan, Partitioning, PlanProperties, displayable, replace_children_if_necessary,
};

use super::exchange::{ExchangeFiles, ExchangeRead, Routing};
use crate::flow::Error;
use crate::flow::tset::TSet;

/// Nodes that work on each partition as if there were no other.
const APART: [&str; 19] = [
    "AggregateExec",
    "BoundedWindowAggExec",
    "CoalesceBatchesExec",
    "CooperativeExec",
    "DataSourceExec",
    "EmptyExec",
    "FilterExec",
    "FunctionExec",
    "GlobalLimitExec",
    "InterleaveExec",
    "LocalLimitExec",
    "PlaceholderRowExec",
    "ProjectionExec",
    "SortExec",
    "SortMergeJoinExec",
    "StreamingTableExec",
    "UnionExec",
    "UnnestExec",
    "WindowAggExec",
];

/// A plan in stages.
pub(crate) struct StagedPlan {
    /// Each behind those that it reads; the last one gives the rows of the plan.
    pub(crate) stages: Vec<PlanStage>,
    /// Tells whether two processes have planned the same.
    pub(crate) fingerprint: String,
}

/// A part of a plan that needs no rows of other partitions but those that stages before it have left.
pub(crate) struct PlanStage {
    pub(crate) plan: Arc<dyn ExecutionPlan>,
    /// Where its rows go; those of the last one leave the plan.
    pub(crate) routing: Option<Routing>,
    /// The stages whose rows it reads.
    pub(crate) reads: Vec<usize>,
    /// Whether its partitions are tasks of their own; otherwise it is one task.
    is_apart: bool,
}

impl StagedPlan {
    /// The plan of some rows, which reads what stages have left from these files.
    pub(crate) fn of(rows: &TSet, files: ExchangeFiles) -> Result<Self, Error> {
        let plan = rows.cx.runtime.block_on(rows.frame.create_physical_plan())?;
        let text = displayable(plan.as_ref()).indent(true).to_string();
        let fingerprint = blake3::hash(text.as_bytes()).to_hex().to_string();
        let mut cutter = PlanCutter { files: Arc::new(files), stages: Vec::new() };
        let mut reads = StageReads { from: Vec::new(), is_apart: true };
        let plan = cutter.cut(plan, &mut reads)?;
        let mut stages = cutter.stages;
        stages.push(reads.stage(plan, None));
        Ok(Self { stages, fingerprint })
    }
}

impl PlanStage {
    pub(crate) fn partitions(&self) -> usize {
        self.plan.properties().output_partitioning().partition_count()
    }

    pub(crate) fn tasks(&self) -> u64 {
        if self.is_apart { self.partitions() as u64 } else { 1 }
    }

    /// The partitions that a task works on.
    pub(crate) fn of_task(&self, task: u64) -> Range<usize> {
        let all = self.partitions();
        match self.is_apart {
            true => (task as usize).min(all)..(task as usize + 1).min(all),
            false => 0..all,
        }
    }
}

/// What is known of a stage while its plan is walked through.
struct StageReads {
    from: Vec<usize>,
    is_apart: bool,
}

impl StageReads {
    fn stage(self, plan: Arc<dyn ExecutionPlan>, routing: Option<Routing>) -> PlanStage {
        PlanStage { plan, routing, reads: self.from, is_apart: self.is_apart }
    }
}

/// What a node asks of who runs it.
enum NodeKind {
    /// Each partition can be worked on alone.
    Apart,
    /// All partitions must be worked on by one process; what is before it need not.
    Together,
    /// The same, and nobody knows what is shared with the nodes before it: they stay with it.
    Unknown,
    /// Rows go to other partitions: a stage ends before it.
    Moves(Routing),
}

struct PlanCutter {
    files: Arc<ExchangeFiles>,
    stages: Vec<PlanStage>,
}

impl PlanCutter {
    /// Cuts what is before a node; the node belongs to the stage whose notes are given.
    fn cut(
        &mut self,
        node: Arc<dyn ExecutionPlan>,
        stage: &mut StageReads,
    ) -> EngineResult<Arc<dyn ExecutionPlan>> {
        match kind_of(&node) {
            NodeKind::Apart => {}
            NodeKind::Together => stage.is_apart = false,
            NodeKind::Unknown => {
                stage.is_apart = false;
                return Ok(node);
            }
            NodeKind::Moves(routing) => return self.end_stage(node, routing, stage),
        }
        let mut children = Vec::new();
        for child in node.children() {
            children.push(self.cut(Arc::clone(child), stage)?);
        }
        replace_children_if_necessary(node, children)
    }

    /// Ends a stage before a node that has rows go to other partitions; what is after it reads what that has left.
    fn end_stage(
        &mut self,
        node: Arc<dyn ExecutionPlan>,
        routing: Routing,
        stage: &mut StageReads,
    ) -> EngineResult<Arc<dyn ExecutionPlan>> {
        let children = node.children();
        let Some(input) = children.first() else { return Ok(Arc::clone(&node)) };
        let mut reads = StageReads { from: Vec::new(), is_apart: true };
        let properties = match routing {
            Routing::Spread(_) => Arc::clone(node.properties()),
            Routing::Keep => Arc::clone(input.properties()),
            Routing::Gather => Arc::new(PlanProperties::new(
                EquivalenceProperties::new(input.schema()),
                Partitioning::UnknownPartitioning(1),
                EmissionType::Incremental,
                Boundedness::Bounded,
            )),
        };
        let is_replaced = matches!(routing, Routing::Spread(_));
        let plan = self.cut(Arc::clone(input), &mut reads)?;
        let number = self.stages.len();
        self.stages.push(reads.stage(plan, Some(routing)));
        stage.from.push(number);
        let files = Arc::clone(&self.files);
        let read: Arc<dyn ExecutionPlan> = Arc::new(ExchangeRead::new(number, properties, files));
        if is_replaced {
            return Ok(read);
        }
        // A merge or a limit is still to be done.
        replace_children_if_necessary(Arc::clone(&node), vec![read])
    }
}

fn kind_of(node: &Arc<dyn ExecutionPlan>) -> NodeKind {
    let are_many = |input: &Arc<dyn ExecutionPlan>| {
        input.properties().output_partitioning().partition_count() > 1
    };
    if let Some(spread) = node.downcast_ref::<RepartitionExec>() {
        return match spread.partitioning() {
            Partitioning::UnknownPartitioning(_) => NodeKind::Unknown,
            // It merges what it moves.
            _ if spread.preserve_order() => NodeKind::Unknown,
            over => NodeKind::Moves(Routing::Spread(over.clone())),
        };
    }
    if let Some(merge) = node.downcast_ref::<SortPreservingMergeExec>() {
        return if are_many(merge.input()) {
            NodeKind::Moves(Routing::Keep)
        } else {
            NodeKind::Apart
        };
    }
    if let Some(gather) = node.downcast_ref::<CoalescePartitionsExec>() {
        return if are_many(gather.input()) {
            NodeKind::Moves(Routing::Gather)
        } else {
            NodeKind::Apart
        };
    }
    if let Some(join) = node.downcast_ref::<HashJoinExec>() {
        return match join.partition_mode() {
            PartitionMode::Partitioned => NodeKind::Apart,
            // Its partitions tell each other which rows of the left side have met none.
            _ => NodeKind::Together,
        };
    }
    match node.name() {
        "CrossJoinExec" | "NestedLoopJoinExec" => NodeKind::Together,
        name if APART.contains(&name) => NodeKind::Apart,
        _ => NodeKind::Unknown,
    }
}
