//! Describing a table: `cx.table("user", 16).uniform(-0.05, 0.05).build()`.

use burn::module::{Param, ParamId};
use burn::tensor::{Device, Tensor, TensorData};
use salamander_core::optimizer::Optimizer;
use salamander_ps::{Initializer, Storage, TableSpec, first_values};

use super::{Home, Table};
use crate::tables::Tables;

/// Tables up to this size, in bytes, are ordinary parameters, as in ElasticDL.
const SMALL: usize = 2 << 20;

/// A table that is being described.
#[derive(Debug)]
pub struct TableBuilder {
    tables: Tables,
    device: Device,
    seed: u64,
    spec: TableSpec,
    optimizer: Option<Optimizer>,
    vocabulary: Option<usize>,
    on_servers: Option<bool>,
}

impl TableBuilder {
    pub(crate) fn new(tables: Tables, device: Device, seed: u64, name: &str, dim: usize) -> Self {
        let spec = TableSpec::new(name, dim);
        Self { tables, device, seed, spec, optimizer: None, vocabulary: None, on_servers: None }
    }

    fn init(mut self, init: Initializer) -> Self {
        self.spec.init = init;
        self
    }

    /// Rows start at zero.
    #[must_use]
    pub fn zeros(self) -> Self {
        self.init(Initializer::Zeros)
    }

    /// Rows start at one value.
    #[must_use]
    pub fn constant(self, value: f32) -> Self {
        self.init(Initializer::Constant { value })
    }

    /// Rows start evenly spread; the default is -0.05 to 0.05.
    #[must_use]
    pub fn uniform(self, low: f32, high: f32) -> Self {
        self.init(Initializer::Uniform { low, high })
    }

    /// Rows start normally distributed.
    #[must_use]
    pub fn normal(self, mean: f32, deviation: f32) -> Self {
        self.init(Initializer::Normal { mean, deviation })
    }

    /// Rows start normally distributed, without what lies more than two deviations off.
    #[must_use]
    pub fn truncated_normal(self, mean: f32, deviation: f32) -> Self {
        self.init(Initializer::TruncatedNormal { mean, deviation })
    }

    /// Rows start as Glorot's, with the row as inputs and outputs.
    #[must_use]
    pub fn xavier(self) -> Self {
        let fan = self.spec.dim as u64;
        self.init(Initializer::Xavier { fan_in: fan, fan_out: fan })
    }

    /// Rows start as He's, with the row as inputs.
    #[must_use]
    pub fn he(self) -> Self {
        let fan_in = self.spec.dim as u64;
        self.init(Initializer::He { fan_in })
    }

    /// How rows follow their gradients, each with a step count of its own; the model's optimizer if this is not said.
    #[must_use]
    pub fn optimizer(mut self, optimizer: impl Into<Optimizer>) -> Self {
        self.optimizer = Some(optimizer.into());
        self
    }

    /// Ids are 0 to below this. A table of at most 2 MiB then is an ordinary parameter.
    #[must_use]
    pub fn vocabulary(mut self, ids: usize) -> Self {
        self.vocabulary = Some(ids);
        self
    }

    /// Whether it is kept as a table whatever its size (true), or as an ordinary parameter (false, needs a vocabulary).
    #[must_use]
    pub fn on_servers(mut self, yes: bool) -> Self {
        self.on_servers = Some(yes);
        self
    }

    /// The most rows; those that were not used lately make room.
    #[must_use]
    pub fn max_rows(mut self, rows: u64) -> Self {
        self.spec.max_rows = Some(rows);
        self
    }

    /// An id gets a row of its own once so many steps used it; until then it reads as its first values.
    #[must_use]
    pub fn admit_after(mut self, uses: u32) -> Self {
        self.spec.admit_after = uses;
        self
    }

    /// Rows that so many steps did not use are dropped.
    #[must_use]
    pub fn expire_after(mut self, steps: u64) -> Self {
        self.spec.expire_after = Some(steps);
        self
    }

    /// Values are kept in bf16; optimizer state stays f32.
    #[must_use]
    pub fn bf16(mut self) -> Self {
        self.spec.storage = Storage::Bf16;
        self
    }

    /// Values are kept in f16; optimizer state stays f32.
    #[must_use]
    pub fn f16(mut self) -> Self {
        self.spec.storage = Storage::F16;
        self
    }

    /// The table.
    pub fn build(self) -> Table {
        let (name, dim) = (self.spec.name.clone(), self.spec.dim);
        let home = match self.parameter_rows() {
            Some(rows) => Home::Parameter(self.parameter(rows)),
            None => Home::TableRegistry(self.tables.declare(self.spec, self.optimizer)),
        };
        Table { tables: self.tables, name, dim, device: self.device, training: true, home }
    }

    /// How many rows it has as an ordinary parameter, if it is to be one.
    fn parameter_rows(&self) -> Option<usize> {
        let rows = self.vocabulary?;
        let small = rows.saturating_mul(self.spec.dim * 4) <= SMALL;
        (!self.on_servers.unwrap_or(!small)).then_some(rows)
    }

    /// The same first values as the rows of a table have.
    fn parameter(&self, rows: usize) -> Param<Tensor<2>> {
        let dim = self.spec.dim;
        let mut values = vec![0.0; rows * dim];
        for (id, row) in values.chunks_exact_mut(dim).enumerate() {
            first_values(&self.spec, self.seed, id as u64, row);
        }
        let plain = self.device.clone().without_autodiff();
        let weight = Tensor::<2>::from_data(TensorData::new(values, [rows, dim]), &plain);
        Param::initialized(ParamId::new(), Tensor::from_inner(weight).require_grad())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROWS: usize = 500;

    /// The first values of a table's rows of 8.
    fn first(describe: impl FnOnce(TableBuilder) -> TableBuilder) -> Vec<f32> {
        let builder = TableBuilder::new(Tables::default(), Device::flex().autodiff(), 1, "t", 8);
        let rows = describe(builder).parameter(ROWS).val().into_data();
        rows.try_into_vec::<f32>().expect("floats")
    }

    #[test]
    fn rows_start_with_the_values_that_were_described() {
        assert_eq!(first(|table| table.constant(0.5)), [0.5; 8 * ROWS]);
        let cut = first(|table| table.truncated_normal(1.0, 0.1));
        assert!(cut.iter().all(|value| (value - 1.0).abs() < 0.2001), "two deviations at most");
        assert!(cut.iter().any(|value| (value - 1.0).abs() > 0.1), "and not all the same");
        let square = |value: &f32| f64::from(*value).powi(2);
        let variance = first(TableBuilder::he).iter().map(square).sum::<f64>() / (8 * ROWS) as f64;
        assert!((variance - 2.0 / 8.0).abs() < 0.03, "{variance}");
    }
}
