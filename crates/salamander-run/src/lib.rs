//! A run as a library: starting, following, scaling and stopping it, on this machine or on a cluster, and using what it
//! has trained. The command line is a user of this crate, and of nothing that others cannot use.
//!
//! [`Program::enter`] comes first in `main`: a distributed run starts the same program again for its master, workers
//! and parameter servers. Then [`Program::experiment`] reads an experiment file, [`Draft::start`] gives a [`Run`], its
//! [`Run::events`] are typed, and [`Program::load`] gives what was trained.
//!
//! # Layout
//! - [`Program`], [`Draft`], [`Run`]: the main path
//! - [`Event`], [`Report`]: what a run tells; [`Summary`], [`report`]: its end, and how good a classifier is
//! - [`track`]: tells TensorBoard and MLflow of a run that is over
//! - [`status`], [`runs`], [`scale`], [`stop`]: any run of this machine, from outside
//! - [`TrainedModel`]: evaluate, predict, export; `tasks`: the same by several processes
//! - [`SearchDraft`], [`SearchRun`]: a search, whose trials are runs in processes of their own; [`SearchEnd`],
//!   [`SearchTable`]: what it has found
//! - [`serving`]: trained models as endpoints; [`infer`]: asking them about files
//! - [`roles`]: the processes of a distributed run; `distributed`: their parent
//! - [`cluster`]: jobs on Kubernetes (feature `kube`)
//! - `folder`, `keys`, `stored`, `stop_request`, `warm_start`, `resumed`: a run's folder, its secrets, its place in an
//!   object store, a wish to stop it, whose weights it begins with, and what it goes on from

#[cfg(feature = "kube")]
pub mod cluster;
mod connect;
mod distributed;
mod error;
mod event;
pub mod experiment;
mod facts;
mod fitted;
#[cfg(feature = "flow")]
pub mod flow;
mod folder;
mod folder_status;
pub mod infer;
mod keys;
mod metrics_log;
mod output_file;
mod predict;
mod program;
mod provenance;
pub mod report;
mod resumed;
pub mod roles;
mod run;
mod same_experiment;
mod search;
pub mod serving;
mod stop_request;
mod stored;
mod summary;
mod tasks;
mod track;
mod trained;
mod trains_on;
mod warm_start;

pub use connect::{RunStatus, Scale, make_folder, scale, status, stop};
pub use error::Error;
pub use event::Event;
pub use experiment::Overrides;
pub use facts::Facts;
pub use fitted::fit_assets;
pub use folder::find;
pub use folder_status::{BestValidation, FolderStatus, SearchStatus, runs};
pub use keys::{KeyFiles, make_certificates};
pub use program::{Draft, Program, find_assets, settle};
pub use run::{Finished, Process, Run};
pub use search::{
    SearchDraft, SearchEnd, SearchNews, SearchOptions, SearchRun, SearchStanding, SearchTable,
    is_search, no_single_run, read_search,
};
pub use stored::bring_runs;
pub use summary::{BestCheckpoint, Summary, TableSize, confusion};
pub use tasks::{Sharing, TaskEvent};
pub use track::track;
pub use trained::{Predicted, TrainedModel};
pub use trains_on::TrainsOn;

pub use salamander_core::experiment::Mlflow;
pub use salamander_core::experiment::{Experiment, Strategy, Workers};
pub use salamander_core::layout::{ExportLayout, RunLayout};
pub use salamander_core::report::{EndReport, EpochReport, Evaluation, Report, Start, StepReport};
pub use salamander_core::status::{State, Status};
pub use salamander_master::local::LocalRole;
pub use salamander_train::checkpoint::Which;
pub use salamander_train::inference::use_int8;
pub use salamander_train::predict::Predictions;
