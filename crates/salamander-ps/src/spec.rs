//! Tables as data: what workers declare, servers check and checkpoints keep.

use salamander_core::optimizer::Optimizer;
use serde::{Deserialize, Serialize};

use crate::Error;

/// The widest row, so that a length from a wire or file stays a small number.
const MAX_DIM: usize = 1 << 20;

/// A table of rows by id.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TableSpec {
    /// Its name, unique on a job.
    pub name: String,
    /// Floats of a row.
    pub dim: usize,
    /// First values.
    pub init: Initializer,
    /// How gradients move rows; each row has its own step count.
    pub optimizer: Optimizer,
    /// How values are kept. Optimizer state is always `f32`.
    pub storage: Storage,
    /// Uses of an id that are only counted before its row is created; 0 creates it at once.
    pub admit_after: u32,
    /// Advances (or applied pushes) without use after which a row is dropped, at the next sweep of
    /// its partition: a sweep comes every eighth of this time.
    pub expire_after: Option<u64>,
    /// The most rows of the whole table; each partition may have its share, rounded up.
    pub max_rows: Option<u64>,
}

/// Where a row starts: a function of (seed, table name, id, element) alone, so that any placement
/// gives the same rows.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Initializer {
    /// All zero.
    Zeros,
    /// All the same.
    Constant {
        /// The value.
        value: f32,
    },
    /// Evenly spread.
    Uniform {
        /// The least value.
        low: f32,
        /// Above all values.
        high: f32,
    },
    /// A normal distribution.
    Normal {
        /// Its mean.
        mean: f32,
        /// Its standard deviation.
        deviation: f32,
    },
    /// A normal distribution without what lies more than two deviations off.
    TruncatedNormal {
        /// Its mean.
        mean: f32,
        /// Its standard deviation before the cut.
        deviation: f32,
    },
    /// Evenly spread within `sqrt(6 / (fan_in + fan_out))`, <https://proceedings.mlr.press/v9/glorot10a>.
    Xavier {
        /// Inputs of the layer.
        fan_in: u64,
        /// Outputs of the layer.
        fan_out: u64,
    },
    /// Normal with deviation `sqrt(2 / fan_in)`, <https://arxiv.org/abs/1502.01852>.
    He {
        /// Inputs of the layer.
        fan_in: u64,
    },
}

/// How values are kept in memory and in files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Storage {
    /// As computed.
    F32,
    /// IEEE half precision, rounded after each update.
    F16,
    /// bfloat16, rounded after each update.
    Bf16,
}

impl Storage {
    /// Bytes of a value.
    pub fn width(self) -> usize {
        match self {
            Storage::F32 => 4,
            Storage::F16 | Storage::Bf16 => 2,
        }
    }
}

impl TableSpec {
    /// A table with small random rows under Adagrad, without bounds.
    pub fn new(name: impl Into<String>, dim: usize) -> Self {
        Self {
            name: name.into(),
            dim,
            init: Initializer::Uniform { low: -0.05, high: 0.05 },
            optimizer: Optimizer::adagrad(0.05).into(),
            storage: Storage::F32,
            admit_after: 0,
            expire_after: None,
            max_rows: None,
        }
    }

    /// Says what is wrong with the description, if anything.
    pub fn validate(&self) -> Result<(), Error> {
        let wrong = |reason: String| Err(Error::Spec { table: self.name.clone(), reason });
        if self.name.is_empty() {
            return wrong("a table needs a name".to_string());
        }
        if !(1..=MAX_DIM).contains(&self.dim) {
            return wrong(format!("dim must lie in 1..={MAX_DIM}, not {}", self.dim));
        }
        if let Err(reason) = self.optimizer.validate() {
            return wrong(reason);
        }
        if self.max_rows == Some(0) {
            return wrong("max_rows must be at least 1; leave it out for no bound".to_string());
        }
        // Ages are kept in 32 bits for each row.
        if self.expire_after.is_some_and(|age| age == 0 || age > u64::from(u32::MAX / 2)) {
            return wrong(format!("expire_after must lie in 1..={}", u32::MAX / 2));
        }
        self.init.validate().or_else(wrong)
    }

    /// Refuses rows of another width: so many ids with so many floats.
    pub(crate) fn check_rows(&self, ids: usize, floats: usize) -> Result<(), Error> {
        let dim = self.dim;
        match ids.checked_mul(dim) == Some(floats) {
            true => Ok(()),
            false => {
                Err(Error::Request(format!("{ids} ids of dimension {dim} have {floats} floats")))
            }
        }
    }

    /// Refuses a table of the same name that is not the same.
    pub(crate) fn check_same(&self, asked: &TableSpec) -> Result<(), Error> {
        let fields = |spec: &TableSpec| {
            [
                ("dim", spec.dim.to_string()),
                ("init", format!("{:?}", spec.init)),
                ("optimizer", format!("{:?}", spec.optimizer)),
                ("storage", format!("{:?}", spec.storage)),
                ("admit_after", spec.admit_after.to_string()),
                ("expire_after", format!("{:?}", spec.expire_after)),
                ("max_rows", format!("{:?}", spec.max_rows)),
            ]
        };
        let mut both = fields(self).into_iter().zip(fields(asked));
        match both.find(|((_, there), (_, asked))| there != asked) {
            None => Ok(()),
            Some(((field, there), (_, asked))) => {
                Err(Error::Conflict { table: self.name.clone(), field, there, asked })
            }
        }
    }
}

impl Initializer {
    fn validate(&self) -> Result<(), String> {
        let finite = |values: &[f32]| {
            values.iter().find(|value| !value.is_finite()).map_or(Ok(()), |value| {
                Err(format!("the initializer needs finite numbers, not {value}"))
            })
        };
        match *self {
            Initializer::Zeros => Ok(()),
            Initializer::Constant { value } => finite(&[value]),
            Initializer::Uniform { low, high } if low > high => {
                Err(format!("uniform needs low <= high, not {low} and {high}"))
            }
            Initializer::Uniform { low, high } => finite(&[low, high]),
            Initializer::Normal { mean, deviation }
            | Initializer::TruncatedNormal { mean, deviation } => match deviation < 0.0 {
                true => Err(format!("the deviation must be at least 0, not {deviation}")),
                false => finite(&[mean, deviation]),
            },
            Initializer::Xavier { fan_in, fan_out } if fan_in.saturating_add(fan_out) == 0 => {
                Err("xavier needs fan_in or fan_out above 0".to_string())
            }
            Initializer::He { fan_in: 0 } => Err("he needs fan_in above 0".to_string()),
            Initializer::Xavier { .. } | Initializer::He { .. } => Ok(()),
        }
    }
}
