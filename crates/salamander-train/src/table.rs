//! Embedding tables as fields of a model: only the rows of a batch are there, wherever the table lives.
//!
//! A look-up asks for the batch's rows and notes them; after the backward pass their gradients are collected from
//! the notes. So a table needs no bound, and its model is the same in one process and on parameter servers.
//!
//! ```
//! use salamander::prelude::*;
//! use salamander::train::*;
//!
//! #[derive(Example)]
//! struct Rating {
//!     user: i64,
//!     #[input(ragged = "|", hash = 1 << 20)]
//!     tags: String,
//!     #[label]
//!     liked: u8,
//! }
//!
//! #[derive(Module, Debug)]
//! struct Taste {
//!     user: Table,
//!     tags: Table,
//! }
//!
//! impl Trial for Taste {
//!     const NAME: &str = "taste";
//!     type Hparams = ();
//!     type Example = Rating;
//!     type Output = Tensor<2>;
//!
//!     fn build(cx: &Context<()>) -> Result<Self, BuildError> {
//!         let adagrad = || Optimizer::adagrad(0.1);
//!         Ok(Self {
//!             user: cx.table("user", 4).normal(0.0, 0.1).optimizer(adagrad()).build(),
//!             tags: cx.table("tags", 4).max_rows(1_000_000).optimizer(adagrad()).build(),
//!         })
//!     }
//!
//!     fn forward(&self, batch: &RatingBatch) -> Tensor<2> {
//!         (self.user.lookup_one(&batch.user) * self.tags.bag(&batch.tags, Combine::Mean)).sum_dim(1)
//!     }
//!
//!     fn loss(&self, output: &Tensor<2>, batch: &RatingBatch) -> Tensor<1> {
//!         binary_cross_entropy(output, &batch.liked)
//!     }
//!
//!     fn optimizer(_: &()) -> impl Into<Optimizer> {
//!         Optimizer::adam(0.01)
//!     }
//! }
//!
//! # let folder = tempfile::tempdir()?;
//! # let file = folder.path().join("ratings.csv");
//! # std::fs::write(&file, "user,tags,liked\n7,drama|war,1\n7,comedy,0\n-3,,1\n")?;
//! # let text = format!(
//! #     "data: {{training: {}}}\n\
//! #      hyperparameters: {{global_batch_size: 3}}\n\
//! #      searcher: {{max_length: {{epochs: 4}}}}\n",
//! #     file.display(),
//! # );
//! # let setup = Setup {
//! #     experiment: Experiment::parse(&text, &[])?,
//! #     folder: folder.path().join("run"),
//! #     device: device::select("cpu")?,
//! #     stop: Default::default(),
//! #     kept_data: Default::default(),
//! # };
//! let models = models![Taste];
//! let outcome = models.find(Some("taste"))?.train(setup, None, Vec::new())?;
//! assert_eq!(outcome.progress.records, 12);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod builder;
mod module;

use std::collections::HashMap;

use burn::module::Param;
use burn::tensor::{Device, Int, Tensor, TensorData};
use salamander_kernels::ops;

use crate::example::Ragged;
use crate::tables::Tables;

pub use builder::TableBuilder;

/// How the rows of a record with several ids become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Combine {
    /// Their sum.
    Sum,
    /// Their mean.
    Mean,
    /// Their sum over the root of their number.
    SqrtN,
}

/// A table of rows by id: a field of a model, made by [`Context::table`](crate::context::Context::table).
///
/// Ids are any integers. A row starts from its initial values, drawn from the run's seed, the table's name and the id,
/// and moves only when a record used it.
#[derive(Clone, Debug)]
pub struct Table {
    tables: Tables,
    name: String,
    dim: usize,
    device: Device,
    training: bool,
    home: Home,
}

/// Where the rows live.
#[derive(Clone, Debug)]
enum Home {
    /// Among the tables, under this number.
    TableRegistry(usize),
    /// So few that they are an ordinary parameter.
    Parameter(Param<Tensor<2>>),
}

impl Table {
    /// Floats of a row.
    pub fn dim(&self) -> usize {
        self.dim
    }

    /// The rows of several ids per record: `[records, fields]` gives `[records, fields, dim]`.
    pub fn lookup(&self, ids: &Tensor<2, Int>) -> Tensor<3> {
        let [records, fields] = ids.dims();
        let flat = self.lookup_one(&ids.clone().reshape([records * fields]));
        flat.reshape([records, fields, self.dim])
    }

    /// The row of each id: `[records]` gives `[records, dim]`.
    pub fn lookup_one(&self, ids: &Tensor<1, Int>) -> Tensor<2> {
        if ids.dims()[0] == 0 {
            return self.zeros(0);
        }
        let ids: Vec<i64> = ids.to_data().iter::<i64>().collect();
        let (rows, places) = match &self.home {
            Home::TableRegistry(number) => {
                let (unique, places) = distinct(&ids);
                (self.rows(*number, unique), places)
            }
            Home::Parameter(weight) => (weight.val(), self.within(ids, weight)),
        };
        ops::rows(rows, &places)
    }

    /// One row per record from any number of ids; zeros for a record without ids.
    pub fn bag(&self, ids: &Ragged, combine: Combine) -> Tensor<2> {
        let records = ids.records();
        let sum = self.zeros(records);
        let count = ids.values.dims()[0];
        if count == 0 {
            return sum;
        }
        let mut rows = self.lookup_one(&ids.values);
        if combine != Combine::Sum {
            let weights =
                weights(&ids.rows.to_data().iter::<i64>().collect::<Vec<_>>(), records, combine);
            let weights =
                Tensor::<2>::from_data(TensorData::new(weights, [count, 1]), &self.device);
            let weights = weights.cast(rows.dtype());
            rows = rows * weights;
        }
        sum.select_assign(0, ids.rows.clone(), rows, burn::tensor::IndexingUpdateOp::Add)
    }

    /// Rows of zeros, in the type that rows are computed with.
    fn zeros(&self, rows: usize) -> Tensor<2> {
        let zeros = Tensor::<2>::zeros([rows, self.dim], &self.device);
        match (&self.home, self.tables.precision()) {
            (Home::Parameter(weight), _) => zeros.cast(weight.val().dtype()),
            (Home::TableRegistry(_), Some(dtype)) if self.training => zeros.cast(dtype),
            (Home::TableRegistry(_), _) => zeros,
        }
    }

    /// The rows as a leaf of the backward pass, noted so that their gradients can be found.
    fn rows(&self, number: usize, ids: Vec<u64>) -> Tensor<2> {
        let values = self.tables.pull(number, &ids, self.training);
        let shape = [ids.len(), self.dim];
        let values = values.unwrap_or_else(|| vec![0.0; ids.len() * self.dim]);
        let inner = self.device.clone().without_autodiff();
        let rows = Tensor::<2>::from_data(TensorData::new(values, shape), &inner);
        if !self.training {
            return rows;
        }
        let leaf = Tensor::from_inner(rows).require_grad();
        self.tables.note(number, ids, leaf.clone());
        match self.tables.precision() {
            Some(dtype) => leaf.cast(dtype),
            None => leaf,
        }
    }

    /// Ids of a table that is a parameter must lie in its vocabulary.
    fn within(&self, mut ids: Vec<i64>, weight: &Param<Tensor<2>>) -> Vec<i64> {
        let rows = weight.lazy_shape().dims::<2>()[0] as i64;
        for id in &mut ids {
            if !(0..rows).contains(id) {
                self.tables.fail(format!(
                    "table \"{}\": id {id} is outside of its vocabulary of {rows}",
                    self.name
                ));
                *id = 0;
            }
        }
        ids
    }
}

/// Each id once, in the order of their first use, and the place of every id among them.
fn distinct(ids: &[i64]) -> (Vec<u64>, Vec<i64>) {
    let mut unique = Vec::new();
    let mut seen = HashMap::with_capacity(ids.len());
    let places = ids.iter().map(|id| {
        *seen.entry(*id).or_insert_with(|| {
            unique.push(*id as u64);
            unique.len() as i64 - 1
        })
    });
    let places = places.collect();
    (unique, places)
}

fn weights(rows: &[i64], records: usize, combine: Combine) -> Vec<f32> {
    let mut counts = vec![0u32; records];
    rows.iter().for_each(|row| counts[*row as usize] += 1);
    let weight = |row: &i64| {
        let count = counts[*row as usize] as f32;
        1.0 / if combine == Combine::Mean { count } else { count.sqrt() }
    };
    rows.iter().map(weight).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_asked_for_once() {
        assert_eq!(distinct(&[7, -1, 7, 3]), (vec![7, u64::MAX, 3], vec![0, 1, 0, 2]));
    }

    #[test]
    fn weights_follow_the_number_of_ids() {
        assert_eq!(weights(&[0, 0, 2], 3, Combine::Mean), [0.5, 0.5, 1.0]);
        assert_eq!(weights(&[1, 1, 1, 1], 2, Combine::SqrtN), [0.5; 4]);
    }
}
