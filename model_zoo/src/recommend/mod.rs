//! Recommenders: small networks on embedding tables that can be larger than any worker.
//!
//! # Layout
//! - [`census`]: what people earn; [`wide_deep`] and [`dnn`] read it
//! - [`criteo`]: which advertisements are clicked; [`deepfm`], [`dcn`] and [`xdeepfm`] read it
//! - [`frappe`]: which apps are used in which situation
//! - [`ncf`]: which films are liked
//! - [`prepared`]: the same advertisements, as the flow `clicks` has prepared them
//! - [`tower`]: the hidden layers that all of them have; [`factor_net`]: DeepFM for any records of ids

pub mod census;
pub mod criteo;
pub mod dcn;
pub mod deepfm;
pub mod dnn;
pub mod factor_net;
pub mod frappe;
pub mod ncf;
pub mod prepared;
pub mod tower;
pub mod wide_deep;
pub mod xdeepfm;

use salamander::prelude::*;

/// What all recommenders report besides the loss: `auc`, and the loss under the name that papers use.
fn ranking(output: &Tensor<2>, labels: &Tensor<1, Int>) -> Metrics {
    auc(output, labels).and(mean("log_loss", &binary_cross_entropy(output, labels)))
}
