//! Rows on their way through a flow, with the words of Twister2's TSet. Nothing runs before an end is asked for:
//! [`TSet::gather`], [`TSet::reduce`], [`TSet::for_each`], [`TSet::explain`] or a sink.

use std::path::Path;
use std::sync::Arc;

use datafusion::arrow::array::{BooleanArray, RecordBatch};
use datafusion::arrow::compute::filter_record_batch;
use datafusion::arrow::datatypes::Schema;
use datafusion::arrow::util::pretty::pretty_format_batches;
use datafusion::common::JoinType;
use datafusion::dataframe::{DataFrame, DataFrameWriteOptions};
use datafusion::functions::expr_fn::coalesce;
use datafusion::functions_aggregate::expr_fn::array_agg;
use datafusion::logical_expr::{Expr, Partitioning, ident};
use datafusion::prelude::{ParquetReadOptions, col};
use futures::StreamExt;
use salamander_files::{Durability, PendingFolder};

use super::Error;
use super::bad_rows::{BadRow, BadRows};
use super::batches::{COMPUTE, FunctionNode, MakeFunction, NamedFunction, PartitionFunction};
use super::context::FlowContext;
use super::typed::{FlowRow, RowReader, batch_of, columns_of, row_json};

/// The file in a folder that says that it was made by [`TSet::cache`].
const KEPT: &str = ".kept-by-flow";

/// Rows on their way through a flow; cheap to clone.
#[derive(Clone)]
pub struct TSet {
    pub(crate) frame: DataFrame,
    pub(crate) cx: FlowContext,
}

/// Rows by a key.
#[derive(Clone)]
pub struct KeyedTSet {
    rows: TSet,
    keys: Vec<String>,
}

/// Which rows of two sides a join keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Join {
    /// Those with a partner.
    Inner,
    /// All of the left side.
    Left,
    /// All of the right side.
    Right,
    /// All.
    Full,
}

impl TSet {
    /// Makes another row of each. A row that is refused is kept aside with the reason.
    pub fn map<A: FlowRow, B: FlowRow>(
        self,
        name: &str,
        function: impl Fn(A) -> Result<B, String> + Send + Sync + 'static,
    ) -> Result<TSet, Error> {
        self.each_row::<A, B>("map", name, move |row| Ok(vec![function(row)?]))
    }

    /// Makes none, one or several rows of each.
    pub fn flat_map<A: FlowRow, B: FlowRow>(
        self,
        name: &str,
        function: impl Fn(A) -> Result<Vec<B>, String> + Send + Sync + 'static,
    ) -> Result<TSet, Error> {
        self.each_row::<A, B>("flat_map", name, function)
    }

    /// Works on partitions: `make` is called once for each, and what it gives is called with rows in their order, some
    /// at a time, and once with none, at the partition's end.
    pub fn compute<A: FlowRow, B: FlowRow, F>(
        self,
        name: &str,
        make: impl Fn() -> F + Send + Sync + 'static,
    ) -> Result<TSet, Error>
    where
        F: FnMut(Vec<A>) -> Result<Vec<B>, String> + Send + 'static,
    {
        let step = RowStep::<A, B>::new(name, self.schema(), &self.cx.bad)?;
        let schema = Arc::clone(&step.schema);
        let make: MakeFunction = Arc::new(move || {
            let (step, mut function) = (step.clone(), make());
            Box::new(move |batch: Option<RecordBatch>| {
                let rows: Vec<A> = match &batch {
                    Some(batch) => step.good(batch)?.into_iter().map(|(_, row)| row).collect(),
                    None => Vec::new(),
                };
                // A function in front, or a filter, may leave none of a batch: that is not the end.
                if batch.is_some() && rows.is_empty() {
                    return Ok(RecordBatch::new_empty(Arc::clone(&step.schema)));
                }
                let made = function(rows).map_err(|reason| Error::step(&step.name, reason))?;
                batch_of(&step.name, &step.schema, &made)
            })
        });
        self.function(NamedFunction { name: name.to_string(), word: COMPUTE, schema, make })
    }

    /// Keeps rows for which an expression is true: `col("age").gt(lit(17))`.
    pub fn filter(self, predicate: Expr) -> Result<TSet, Error> {
        self.with(|frame| frame.filter(predicate))
    }

    /// Keeps rows for which a function is true.
    pub fn filter_rows<A: FlowRow>(
        self,
        name: &str,
        function: impl Fn(&A) -> bool + Send + Sync + 'static,
    ) -> Result<TSet, Error> {
        let schema = Arc::new(self.schema().clone());
        let step = RowStep::<A, A>::reading(name, &schema, &self.cx.bad)?;
        let function = Arc::new(function);
        let make: MakeFunction = Arc::new(move || {
            let (step, function) = (step.clone(), Arc::clone(&function));
            let empty = RecordBatch::new_empty(Arc::clone(&step.schema));
            Box::new(move |batch: Option<RecordBatch>| {
                let Some(batch) = batch else { return Ok(empty.clone()) };
                let mut kept = vec![false; batch.num_rows()];
                for (place, row) in step.good(&batch)? {
                    kept[place] = function(&row);
                }
                Ok(filter_record_batch(&batch, &BooleanArray::from(kept))?)
            }) as PartitionFunction
        });
        self.function(NamedFunction { name: name.to_string(), word: "filter", schema, make })
    }

    /// Keeps some columns, or makes new ones of them: `[col("a"), (col("b") * lit(2)).alias("twice")]`.
    pub fn select(self, columns: Vec<Expr>) -> Result<TSet, Error> {
        self.with(|frame| frame.select(columns))
    }

    /// Rows by the values of some columns.
    pub fn key_by(self, keys: &[&str]) -> KeyedTSet {
        KeyedTSet { rows: self, keys: keys.iter().map(ToString::to_string).collect() }
    }

    /// Spreads rows evenly over so many partitions.
    pub fn partition(self, partitions: usize) -> Result<TSet, Error> {
        self.with(|frame| frame.repartition(Partitioning::RoundRobinBatch(partitions.max(1))))
    }

    /// Puts rows with equal values in some columns into the same of so many partitions.
    pub fn partition_by(self, columns: &[&str], partitions: usize) -> Result<TSet, Error> {
        let columns = columns.iter().map(|name| ident(*name)).collect();
        self.with(|frame| frame.repartition(Partitioning::Hash(columns, partitions.max(1))))
    }

    /// Puts rows of two sides together that are equal in some columns, which both sides have.
    pub fn join(self, right: TSet, kind: Join, columns: &[&str]) -> Result<TSet, Error> {
        let (left_names, right_names) = (self.column_names(), right.column_names());
        let both = left_names
            .iter()
            .find(|name| right_names.contains(name) && !columns.contains(&name.as_str()));
        if let Some(name) = both {
            let reason = format!("both sides have a column \"{name}\": select or rename it on one");
            return Err(Error::step("join", reason));
        }
        let of = |side: &str, name: &str| col(format!("{side}.\"{name}\""));
        let mut chosen: Vec<Expr> = columns
            .iter()
            .map(|name| coalesce(vec![of("l", name), of("r", name)]).alias(*name))
            .collect();
        let others = |side: &'static str, names: Vec<String>| {
            let names = names.into_iter().filter(|name| !columns.contains(&name.as_str()));
            names.map(move |name| of(side, &name).alias(name)).collect::<Vec<_>>()
        };
        chosen.extend(others("l", left_names));
        chosen.extend(others("r", right_names));
        let kind = match kind {
            Join::Inner => JoinType::Inner,
            Join::Left => JoinType::Left,
            Join::Right => JoinType::Right,
            Join::Full => JoinType::Full,
        };
        let right = right.frame.alias("r")?;
        self.with(|frame| {
            frame.alias("l")?.join(right, kind, columns, columns, None)?.select(chosen)
        })
    }

    /// The rows of both, by the names of their columns; what one side lacks is null.
    pub fn union(self, other: TSet) -> Result<TSet, Error> {
        self.with(|frame| frame.union_by_name(other.frame))
    }

    /// Runs what comes before once, and keeps the rows as Parquet in a folder, in the place of what an earlier run has
    /// kept there. Where several processes share a flow, the one that leads does so, and the others read what it has
    /// kept.
    pub fn cache(self, folder: &Path) -> Result<TSet, Error> {
        let cx = self.cx.clone();
        let schema = self.schema().clone();
        if !(cx.is_built_again && folder.is_dir()) {
            self.keep(folder)?;
        }
        // Of no rows there is no file, which could say what its columns are.
        let options = ParquetReadOptions::default().schema(&schema);
        let place = format!("{}/", folder.display());
        let frame = cx.runtime.block_on(cx.session.read_parquet(&place, options))?;
        Ok(cx.tset(frame))
    }

    /// Writes all rows to a folder, which is there when they are. Only what was made so is replaced.
    fn keep(self, folder: &Path) -> Result<(), Error> {
        if folder.exists() && !folder.join(KEPT).is_file() {
            let reason = "holds something else than the rows of a cache: name another folder";
            return Err(Error::step(&folder.display().to_string(), reason));
        }
        let name = folder.file_name().unwrap_or_default().to_string_lossy();
        let beside = folder.with_file_name(format!(".{name}.new"));
        let pending = PendingFolder::create(&beside).map_err(Error::io(&beside))?;
        let (place, options) = (format!("{}/", beside.display()), DataFrameWriteOptions::new());
        self.cx.runtime.block_on(self.frame.write_parquet(&place, options, None))?;
        let mark = beside.join(KEPT);
        std::fs::write(&mark, "").map_err(Error::io(&mark))?;
        pending.replace(folder, Durability::Unsynced).map_err(Error::io(folder))
    }

    /// All rows in one place, in the order of partitions.
    pub fn gather<A: FlowRow>(&self) -> Result<Vec<A>, Error> {
        let mut rows = Vec::new();
        self.for_each(|row| rows.push(row))?;
        Ok(rows)
    }

    /// All rows made one by a function of two, in the order of partitions.
    pub fn reduce<A: FlowRow>(
        &self,
        mut function: impl FnMut(A, A) -> A,
    ) -> Result<Option<A>, Error> {
        let mut reduced = None;
        self.for_each(|row| {
            reduced = Some(match reduced.take() {
                Some(before) => function(before, row),
                None => row,
            });
        })?;
        Ok(reduced)
    }

    /// Calls a function with every row, in the order of partitions.
    pub fn for_each<A: FlowRow>(&self, mut each: impl FnMut(A)) -> Result<(), Error> {
        let step = RowStep::<A, A>::reading("for_each", self.schema(), &self.cx.bad)?;
        self.batches(|_, batch| {
            step.good(&batch)?.into_iter().for_each(|(_, row)| each(row));
            Ok(())
        })
    }

    /// Calls a function with every batch and the number of its partition, partition by partition.
    pub(crate) fn batches(
        &self,
        mut each: impl FnMut(usize, RecordBatch) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let partitions = self.frame.clone().execute_stream_partitioned();
        let partitions = self.cx.runtime.block_on(partitions)?;
        for (number, mut partition) in partitions.into_iter().enumerate() {
            while let Some(batch) = self.cx.runtime.block_on(partition.next()) {
                each(number, batch?)?;
            }
        }
        Ok(())
    }

    /// How many rows there are.
    pub fn count(&self) -> Result<u64, Error> {
        Ok(self.cx.runtime.block_on(self.frame.clone().count())? as u64)
    }

    /// The plan, as DataFusion would run it.
    pub fn explain(&self) -> Result<String, Error> {
        let shown = self.frame.clone().explain(false, false)?;
        let batches = self.cx.runtime.block_on(shown.collect())?;
        Ok(pretty_format_batches(&batches)?.to_string())
    }

    /// The first rows as a table for people.
    pub fn show(&self, rows: usize) -> Result<String, Error> {
        let frame = self.frame.clone().limit(0, Some(rows))?;
        let schema = Arc::new(frame.schema().as_arrow().clone());
        let batches = self.cx.runtime.block_on(frame.collect())?;
        let batches =
            if batches.is_empty() { vec![RecordBatch::new_empty(schema)] } else { batches };
        Ok(pretty_format_batches(&batches)?.to_string())
    }

    /// Rows that were refused so far; they are there when rows have gone through.
    pub fn take_bad_rows(&self) -> Vec<BadRow> {
        self.cx.bad.take()
    }

    pub(crate) fn schema(&self) -> &Schema {
        self.frame.schema().as_arrow()
    }

    fn column_names(&self) -> Vec<String> {
        self.schema().fields().iter().map(|field| field.name().clone()).collect()
    }

    fn with(
        self,
        change: impl FnOnce(DataFrame) -> Result<DataFrame, datafusion::error::DataFusionError>,
    ) -> Result<TSet, Error> {
        Ok(TSet { frame: change(self.frame)?, cx: self.cx })
    }

    fn function(self, function: NamedFunction) -> Result<TSet, Error> {
        let (state, plan) = self.frame.into_parts();
        let plan = FunctionNode::plan(plan, function)?;
        Ok(TSet { frame: DataFrame::new(state, plan), cx: self.cx })
    }

    fn each_row<A: FlowRow, B: FlowRow>(
        self,
        word: &'static str,
        name: &str,
        function: impl Fn(A) -> Result<Vec<B>, String> + Send + Sync + 'static,
    ) -> Result<TSet, Error> {
        let step = RowStep::<A, B>::new(name, self.schema(), &self.cx.bad)?;
        let (schema, function) = (Arc::clone(&step.schema), Arc::new(function));
        let make: MakeFunction = Arc::new(move || {
            let (step, function) = (step.clone(), Arc::clone(&function));
            Box::new(move |batch: Option<RecordBatch>| {
                let mut made = Vec::new();
                if let Some(batch) = batch {
                    for (place, row) in step.good(&batch)? {
                        match function(row) {
                            Ok(rows) => made.extend(rows),
                            Err(reason) => step.refuse(&batch, place, reason),
                        }
                    }
                }
                batch_of(&step.name, &step.schema, &made)
            })
        });
        self.function(NamedFunction { name: name.to_string(), word, schema, make })
    }
}

impl KeyedTSet {
    /// One row for each key: the key's columns, and aggregates such as `sum(col("price")).alias("total")`.
    pub fn reduce(self, aggregates: Vec<Expr>) -> Result<TSet, Error> {
        let keys = self.keys.iter().map(ident).collect();
        self.rows.with(|frame| frame.aggregate(keys, aggregates))
    }

    /// One row for each key: the key's columns, and lists of all values of the other columns.
    pub fn gather(self) -> Result<TSet, Error> {
        let others = self.rows.column_names().into_iter().filter(|name| !self.keys.contains(name));
        let lists = others.map(|name| array_agg(ident(&name)).alias(name)).collect();
        self.reduce(lists)
    }
}

/// What a function on rows needs beside itself.
struct RowStep<A, B> {
    name: String,
    reader: RowReader,
    schema: Arc<Schema>,
    bad: BadRows,
    rows: std::marker::PhantomData<fn(A) -> B>,
}

impl<A, B> Clone for RowStep<A, B> {
    fn clone(&self) -> Self {
        let (name, reader, schema) =
            (self.name.clone(), self.reader.clone(), Arc::clone(&self.schema));
        Self { name, reader, schema, bad: self.bad.clone(), rows: self.rows }
    }
}

impl<A: FlowRow, B: FlowRow> RowStep<A, B> {
    /// A function that gives rows of `B`.
    fn new(name: &str, input: &Schema, bad: &BadRows) -> Result<Self, Error> {
        let step = Self::reading(name, input, bad)?;
        Ok(Self { schema: Arc::new(Schema::new(columns_of::<B>(name)?)), ..step })
    }

    /// A function that gives its own rows, or none.
    fn reading(name: &str, input: &Schema, bad: &BadRows) -> Result<Self, Error> {
        let reader = RowReader::new::<A>(name, input)?;
        let (name, schema, bad) = (name.to_string(), Arc::new(input.clone()), bad.clone());
        Ok(Self { name, reader, schema, bad, rows: std::marker::PhantomData })
    }

    /// The rows of a batch that can be read, each with its place.
    fn good(&self, batch: &RecordBatch) -> Result<Vec<(usize, A)>, Error> {
        let mut good = Vec::with_capacity(batch.num_rows());
        for (place, row) in self.reader.read::<A>(batch)?.into_iter().enumerate() {
            match row {
                Ok(row) => good.push((place, row)),
                Err(reason) => self.refuse(batch, place, reason),
            }
        }
        Ok(good)
    }

    fn refuse(&self, batch: &RecordBatch, place: usize, reason: String) {
        let (step, row) = (self.name.clone(), row_json(batch, place));
        self.bad.add(BadRow { step, reason, row });
    }
}
