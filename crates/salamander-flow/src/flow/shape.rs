//! Whether a flow is one of tasks: each row goes its way alone, so that ranges of the input can be worked on anywhere.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::logical_expr::LogicalPlan;

use super::Error;
use super::batches::keeps_state;
use super::context::INPUT;
use super::tset::TSet;

/// The shape of a flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FlowShape {
    /// Each row of the input goes its way alone.
    Map,
    /// Rows meet, by this operation, or come from elsewhere.
    Whole(String),
}

impl FlowShape {
    /// The shape of a flow, by its plan.
    pub fn of(rows: &TSet) -> Result<Self, Error> {
        let plan = rows.frame.clone().into_optimized_plan()?;
        let (mut inputs, mut why) = (0, None);
        plan.apply_with_subqueries(|node| {
            match node {
                LogicalPlan::TableScan(scan) if scan.table_name.table() == INPUT => {
                    inputs += 1;
                    if scan.fetch.is_some() {
                        why = Some("a limit".to_string());
                    }
                }
                LogicalPlan::Projection(_)
                | LogicalPlan::Filter(_)
                | LogicalPlan::SubqueryAlias(_)
                | LogicalPlan::Unnest(_)
                | LogicalPlan::Extension(_) => {}
                other => why = why.take().or_else(|| Some(word(other))),
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(match (why, inputs) {
            (Some(why), _) => FlowShape::Whole(why),
            (None, 1) => FlowShape::Map,
            (None, _) => FlowShape::Whole("no input of its own, or more than one".to_string()),
        })
    }
}

/// Whether the order in which rows meet can be seen in the result: in sums of floats, in lists, in numbers of rows, in
/// which rows are the first ones.
pub(crate) fn depends_on_order(rows: &TSet) -> Result<bool, Error> {
    let plan = rows.frame.clone().into_optimized_plan()?;
    let mut depends = false;
    plan.apply_with_subqueries(|node| {
        depends |= match node {
            LogicalPlan::Window(_) | LogicalPlan::Limit(_) => true,
            // Of rows that are equal some are left out.
            LogicalPlan::Sort(sort) => sort.fetch.is_some(),
            LogicalPlan::Extension(function) => keeps_state(function.node.as_ref()),
            LogicalPlan::Aggregate(groups) => {
                let made = groups.schema.fields().iter().skip(groups.group_expr.len());
                let is_exact = |kind: &DataType| kind.is_integer() || kind == &DataType::Boolean;
                made.map(|field| field.data_type()).any(|kind| !is_exact(kind))
                    // The first, the last or the nth of some rows.
                    || groups.aggr_expr.iter().any(|made| made.to_string().contains("_value("))
            }
            _ => false,
        };
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(depends)
}

fn word(node: &LogicalPlan) -> String {
    match node {
        LogicalPlan::Join(_) => "a join",
        LogicalPlan::Aggregate(_) | LogicalPlan::Distinct(_) => "groups of rows",
        LogicalPlan::Repartition(_) => "a partition",
        LogicalPlan::Union(_) => "a union",
        LogicalPlan::Sort(_) => "an order",
        LogicalPlan::Window(_) => "a window",
        LogicalPlan::Limit(_) => "a limit",
        LogicalPlan::TableScan(_) => "a source of its own",
        _ => "rows that meet",
    }
    .to_string()
}
