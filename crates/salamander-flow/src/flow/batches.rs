//! The node of a plan that stands for a function on rows: DataFusion plans around it and runs it in each partition.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::Session;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{DFSchemaRef, ToDFSchema};
use datafusion::error::Result as EngineResult;
use datafusion::execution::context::QueryPlanner;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::{
    Expr, Extension, LogicalPlan, UserDefinedLogicalNode, UserDefinedLogicalNodeCore,
};
use datafusion::physical_expr::EquivalenceProperties;
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PhysicalExpr,
    PlanProperties,
};
use datafusion::physical_planner::{DefaultPhysicalPlanner, ExtensionPlanner, PhysicalPlanner};
use futures::StreamExt;

use super::Error;
use super::error::external;

/// What functions on partitions are called in plans.
pub(crate) const COMPUTE: &str = "compute";

/// What becomes of the batches of one partition, in their order. Nothing stands for the partition's end.
pub(crate) type PartitionFunction =
    Box<dyn FnMut(Option<RecordBatch>) -> Result<RecordBatch, Error> + Send>;

/// Makes the function of a partition, once for each.
pub(crate) type MakeFunction = Arc<dyn Fn() -> PartitionFunction + Send + Sync>;

/// A function with its name, and the columns of what it gives.
#[derive(Clone)]
pub(crate) struct NamedFunction {
    pub(crate) name: String,
    /// What it is called in plans: map, flat_map, compute or filter.
    pub(crate) word: &'static str,
    pub(crate) schema: SchemaRef,
    pub(crate) make: MakeFunction,
}

impl NamedFunction {
    fn identity(&self) -> (&str, &str, usize) {
        (self.word, &self.name, Arc::as_ptr(&self.make).cast::<()>() as usize)
    }
}

impl fmt::Debug for NamedFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.word, self.name)
    }
}

/// The node of logical plans.
#[derive(Clone, Debug)]
pub(crate) struct FunctionNode {
    input: LogicalPlan,
    function: NamedFunction,
    schema: DFSchemaRef,
}

impl FunctionNode {
    /// A plan that ends with the function.
    pub(crate) fn plan(input: LogicalPlan, function: NamedFunction) -> EngineResult<LogicalPlan> {
        let schema = Arc::clone(&function.schema).to_dfschema_ref()?;
        let node = Arc::new(Self { input, function, schema });
        Ok(LogicalPlan::Extension(Extension { node }))
    }
}

/// Whether a node is a function that keeps something from row to row.
pub(crate) fn keeps_state(node: &dyn UserDefinedLogicalNode) -> bool {
    let node = node.as_any().downcast_ref::<FunctionNode>();
    node.is_some_and(|node| node.function.word == COMPUTE)
}

impl PartialEq for FunctionNode {
    fn eq(&self, other: &Self) -> bool {
        self.function.identity() == other.function.identity() && self.input == other.input
    }
}

impl Eq for FunctionNode {}

impl PartialOrd for FunctionNode {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        match self.function.identity().cmp(&other.function.identity()) {
            Ordering::Equal => self.input.partial_cmp(&other.input),
            unequal => Some(unequal),
        }
    }
}

impl Hash for FunctionNode {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.function.identity().hash(state);
        self.input.hash(state);
    }
}

impl UserDefinedLogicalNodeCore for FunctionNode {
    fn name(&self) -> &str {
        "Function"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        vec![&self.input]
    }

    fn schema(&self) -> &DFSchemaRef {
        &self.schema
    }

    fn expressions(&self) -> Vec<Expr> {
        Vec::new()
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Function: {:?}", self.function)
    }

    fn with_exprs_and_inputs(
        &self,
        _exprs: Vec<Expr>,
        mut inputs: Vec<LogicalPlan>,
    ) -> EngineResult<Self> {
        let input = inputs.pop().unwrap_or_else(|| self.input.clone());
        Ok(Self { input, ..self.clone() })
    }
}

/// Plans the node beside DataFusion's own.
#[derive(Debug)]
pub(crate) struct FunctionPlanner;

#[async_trait]
impl QueryPlanner for FunctionPlanner {
    async fn create_physical_plan(
        &self,
        logical_plan: &LogicalPlan,
        session: &dyn Session,
    ) -> EngineResult<Arc<dyn ExecutionPlan>> {
        let planner = DefaultPhysicalPlanner::with_extension_planners(vec![Arc::new(Self)]);
        planner.create_physical_plan(logical_plan, session).await
    }
}

#[async_trait]
impl ExtensionPlanner for FunctionPlanner {
    async fn plan_extension(
        &self,
        _planner: &dyn PhysicalPlanner,
        node: &dyn UserDefinedLogicalNode,
        _logical_inputs: &[&LogicalPlan],
        physical_inputs: &[Arc<dyn ExecutionPlan>],
        _session: &dyn Session,
        _planning_ctx: &PhysicalPlanningContext,
    ) -> EngineResult<Option<Arc<dyn ExecutionPlan>>> {
        let (Some(node), [input]) = (node.as_any().downcast_ref::<FunctionNode>(), physical_inputs)
        else {
            return Ok(None);
        };
        let exec = FunctionExec::new(Arc::clone(input), node.function.clone());
        Ok(Some(Arc::new(exec)))
    }
}

/// The node of physical plans.
#[derive(Clone, Debug)]
struct FunctionExec {
    input: Arc<dyn ExecutionPlan>,
    function: NamedFunction,
    properties: Arc<PlanProperties>,
}

impl FunctionExec {
    fn new(input: Arc<dyn ExecutionPlan>, function: NamedFunction) -> Self {
        let partitions = input.output_partitioning().partition_count();
        let properties = PlanProperties::new(
            EquivalenceProperties::new(Arc::clone(&function.schema)),
            datafusion::physical_plan::Partitioning::UnknownPartitioning(partitions),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        Self { input, function, properties: Arc::new(properties) }
    }
}

impl DisplayAs for FunctionExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FunctionExec: {:?}", self.function)
    }
}

impl ExecutionPlan for FunctionExec {
    fn name(&self) -> &str {
        "FunctionExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    fn apply_expressions(
        &self,
        _f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> EngineResult<TreeNodeRecursion>,
    ) -> EngineResult<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> EngineResult<Arc<dyn ExecutionPlan>> {
        let input = children.pop().unwrap_or_else(|| Arc::clone(&self.input));
        Ok(Arc::new(Self::new(input, self.function.clone())))
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> EngineResult<SendableRecordBatchStream> {
        let input = self.input.execute(partition, context)?;
        let mut function = (self.function.make)();
        // The end is told once, after the last batch.
        let ends = input.map(|batch| batch.map(Some)).chain(futures::stream::iter([Ok(None)]));
        let output = ends.map(move |batch| function(batch?).map_err(external));
        let schema = Arc::clone(&self.function.schema);
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, output)))
    }
}
