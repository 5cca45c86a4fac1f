//! Frappe (Baltrunas et al.: <https://arxiv.org/abs/1505.03014>): which apps are used in which situation, for
//! [`DeepFm`] as in ElasticDL's zoo. `salamander data fetch frappe` writes what it reads.

use salamander::prelude::*;

use super::deepfm::{DeepFm, RecordsOfIds};

/// The user, the app and eight things about the situation.
const FIELDS: usize = 10;

/// DeepFM on Frappe.
pub type FrappeDeepFm = DeepFm<Visit>;

/// A situation, and whether the app was used in it.
#[derive(Clone, Debug, Example)]
pub struct Visit {
    #[input(columns = ["f0", "f1", "f2", "f3", "f4", "f5", "f6", "f7", "f8", "f9"])]
    ids: [i64; FIELDS],
    #[label]
    label: u8,
}

impl RecordsOfIds for Visit {
    const TRIAL: &str = "frappe_deepfm";
    const FIELDS: usize = FIELDS;

    fn ids(batch: &VisitBatch) -> Tensor<2, Int> {
        batch.ids.clone()
    }

    fn happened(batch: &VisitBatch) -> &Tensor<1, Int> {
        &batch.label
    }
}
