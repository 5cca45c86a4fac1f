//! Where runs train: in processes of this machine, or as jobs of a cluster whose folders are here as well.

use salamander_core::layout::RunLayout;
use serde::{Deserialize, Serialize};

use crate::Error;
#[cfg(feature = "kube")]
use crate::cluster::ClusterJobs;

/// Where a run, or each trial of a search, trains.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TrainsOn {
    /// In processes of this machine.
    #[default]
    ThisMachine,
    /// As a job of a cluster.
    #[cfg(feature = "kube")]
    Cluster(Box<ClusterJobs>),
}

impl TrainsOn {
    pub(crate) fn is_this_machine(&self) -> bool {
        matches!(self, Self::ThisMachine)
    }

    /// Whether the next job of a run finds the folder of the one before.
    pub(crate) fn keeps_folder(&self) -> Result<bool, Error> {
        match self {
            Self::ThisMachine => Ok(true),
            #[cfg(feature = "kube")]
            Self::Cluster(jobs) => jobs.options.keeps_folder(),
        }
    }

    /// Ends what a run has elsewhere, for good; nothing of it may be needed any more.
    pub(crate) fn end(&self, run: &RunLayout) -> Result<(), Error> {
        match self {
            Self::ThisMachine => {
                let _ = run;
                Ok(())
            }
            #[cfg(feature = "kube")]
            Self::Cluster(jobs) => jobs.end(run),
        }
    }
}
