//! Criteo's display advertisements (<https://www.kaggle.com/c/criteo-display-ad-challenge>): the example that
//! [`deepfm`](super::deepfm), [`dcn`](super::dcn) and [`xdeepfm`](super::xdeepfm) read, from `train.txt` or from what
//! `salamander data generate criteo` writes.

use salamander::prelude::*;

/// Counts of a record.
pub const COUNTS: usize = 13;
/// Hashed values of a record.
pub const VALUES: usize = 26;
/// Both together: each is a field with an embedding.
pub const FIELDS: usize = COUNTS + VALUES;

/// More than a count has groups.
const GROUPS: i64 = 64;

/// What was known about an advertisement that was shown, and whether it was clicked.
#[derive(Clone, Debug, Example)]
pub struct Click {
    #[input(
        columns = ["I1", "I2", "I3", "I4", "I5", "I6", "I7", "I8", "I9", "I10", "I11", "I12", "I13"],
        missing = 0
    )]
    counts: [f32; COUNTS],
    /// The same in groups that grow with the count; what is missing or negative is the first.
    #[input(
        columns = ["I1", "I2", "I3", "I4", "I5", "I6", "I7", "I8", "I9", "I10", "I11", "I12", "I13"],
        discretise = [0, 1, 2, 3, 4, 6, 9, 14, 21, 31, 46, 70, 100, 200, 400, 1000, 3000, 10000, 100000],
        missing = -1
    )]
    groups: [f32; COUNTS],
    #[input(
        columns = ["C1", "C2", "C3", "C4", "C5", "C6", "C7", "C8", "C9", "C10", "C11", "C12", "C13", "C14", "C15",
                   "C16", "C17", "C18", "C19", "C20", "C21", "C22", "C23", "C24", "C25", "C26"],
        hash = 1u64 << 40,
        missing = ""
    )]
    values: [String; VALUES],
    #[label]
    label: u8,
}

impl ClickBatch {
    /// The counts as numbers of about the same size.
    pub fn dense(&self) -> Tensor<2> {
        self.counts.clone().clamp_min(0.0).log1p() * 0.2
    }

    /// An id for each field. Those of the counts are below zero, where no hash is, each column's apart.
    pub fn ids(&self) -> Tensor<2, Int> {
        let starts: [i64; COUNTS] = std::array::from_fn(|column| 1 + column as i64 * GROUPS);
        let starts =
            Tensor::<2, Int>::from_data([starts], (&self.groups.device(), self.groups.dtype()));
        Tensor::cat(vec![-(self.groups.clone() + starts), self.values.clone()], 1)
    }
}
