//! Checkpoints: everything a run needs to go on as if nothing had happened.
//!
//! A checkpoint is a folder that is written beside, flushed to the disk and then renamed, its
//! manifest last; a folder without a manifest whose checksums fit is not a checkpoint.
//!
//! ```
//! use salamander::prelude::*;
//! use salamander::train::*;
//! use salamander_train::checkpoint::{CheckpointStore, Which};
//! # #[derive(Example)]
//! # struct Point { #[input(columns = ["x", "y"])] at: [f32; 2], #[label] side: u8 }
//! # #[derive(Module, Debug)]
//! # struct Net { out: Linear }
//! # impl Trial for Net {
//! #     const NAME: &str = "net";
//! #     type Hparams = ();
//! #     type Example = Point;
//! #     type Output = Tensor<2>;
//! #     fn build(cx: &Context<()>) -> Result<Self, BuildError> {
//! #         Ok(Self { out: LinearConfig::new(2, 2).init(&cx.device) })
//! #     }
//! #     fn forward(&self, batch: &PointBatch) -> Tensor<2> { self.out.forward(batch.at.clone()) }
//! #     fn loss(&self, output: &Tensor<2>, batch: &PointBatch) -> Tensor<1> {
//! #         cross_entropy(output, &batch.side)
//! #     }
//! #     fn optimizer(_: &()) -> impl Into<Optimizer> { Optimizer::sgd(1.0) }
//! # }
//! # let folder = tempfile::tempdir()?;
//! # let file = folder.path().join("points.csv");
//! # std::fs::write(&file, "x,y,side\n0.9,0.1,0\n0.1,0.8,1\n0.8,0.3,0\n0.2,0.7,1\n")?;
//! # let text = format!(
//! #     "data: {{training: {}}}\n\
//! #      hyperparameters: {{global_batch_size: 2}}\n\
//! #      searcher: {{max_length: {{epochs: 9}}}}\n",
//! #     file.display(),
//! # );
//! # let setup = Setup {
//! #     experiment: Experiment::parse(&text, &[])?,
//! #     folder: folder.path().join("run"),
//! #     device: device::select("cpu")?,
//! #     stop: Default::default(),
//! #     kept_data: Default::default(),
//! # };
//!
//! let checkpoints = setup.checkpoints();
//! let models = models![Net];
//! models.find(Some("net"))?.train(setup, None, Vec::new())?;
//! let last = CheckpointStore::find(&checkpoints, &Which::Latest)?;
//! assert_eq!(last.state.progress.steps.0, 18);
//! assert!(last.state.model.contains_key("out.weight"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod counted;
mod keeping;
mod manifest;
mod packed;
mod read;
mod remote;
mod store;
mod tensor_file;
mod tensors;
mod uploader;
mod weights_hash;
mod write;

use std::collections::{BTreeMap, HashMap};

use burn::tensor::TensorData;

use crate::example::AssetFiles;
use crate::optimize::ParamState;
use crate::progress::{Progress, StepCount};

pub use counted::Counted;
pub(crate) use keeping::Keeping;
pub use keeping::remove_leftovers;
pub(crate) use manifest::parse_manifest;
pub use manifest::{FileEntry, Manifest};
pub(crate) use packed::{pack, unpack};
pub use read::Checkpoint;
pub(crate) use read::{read, read_manifest};
use read::{read_manifest_on, read_on};
pub use remote::RemoteCheckpoints;
use salamander_core::layout::{EXPERIMENT, MANIFEST, MODEL};
pub use store::{CheckpointStore, Which};
pub(crate) use store::{SCRATCH, beginning_with, sweep};
pub use tensor_file::TensorFile;
pub(crate) use tensors::{from_safetensors, write_safetensors};
use write::write;

/// The layout that this version writes and reads.
const FORMAT: u32 = 1;
const OPTIMIZER: &str = "optimizer.safetensors";
const STATE: &str = "state.json";
/// How the names of statistics and vocabularies begin.
const ASSET: &str = "asset-";

/// Optimizer state by pass, then by parameter path.
pub type OptimizerStates = BTreeMap<String, HashMap<String, ParamState>>;

/// What a checkpoint is made from: a copy on the host, so that training can go on meanwhile.
#[derive(Clone, Debug, Default)]
pub(crate) struct Snapshot {
    /// The checkpoint's name.
    pub id: String,
    /// Where training stands.
    pub progress: Progress,
    /// Everything the model keeps.
    pub model: Vec<(String, TensorData)>,
    /// Everything the optimizers keep.
    pub optimizers: OptimizerStates,
    /// The configuration in force.
    pub experiment: String,
    /// What records are read with.
    pub assets: AssetFiles,
    /// The watched metric at this point, smaller being better, if it was just measured.
    pub watched: Option<f64>,
    /// Slices of a batch.
    pub micro_batches: u32,
    /// Whether it is only to recover from.
    pub recovery: bool,
}

#[cfg(test)]
impl Snapshot {
    /// The state after so many steps of a model with one weight, for tests.
    pub(crate) fn sample(steps: u64) -> Self {
        Self {
            id: id(StepCount(steps)),
            progress: Progress { steps: StepCount(steps), ..Progress::default() },
            model: vec![("w".to_string(), TensorData::new(vec![steps as f32], [1]))],
            optimizers: Default::default(),
            experiment: "entrypoint: x\n".to_string(),
            assets: Default::default(),
            watched: None,
            micro_batches: 1,
            recovery: false,
        }
    }
}

/// What a run goes on from.
#[derive(Debug)]
pub struct Restored {
    /// Where training stood.
    pub progress: Progress,
    /// Everything the model kept.
    pub model: HashMap<String, TensorData>,
    /// Everything the optimizers kept.
    pub optimizers: OptimizerStates,
}

/// The folder's name for a version of the parameters.
pub(crate) fn id(steps: StepCount) -> String {
    format!("step-{steps:08}")
}
