//! The shipped operator, started and ended by a test.

use std::sync::Arc;

use salamander_kube::Error;
use salamander_kube::operator::{
    self, Monitoring, OperatorOptions, lease, metrics::OperatorMetrics,
};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::{Cluster, NAMESPACE};

/// An operator that can be told to leave, or killed.
pub struct Operator {
    /// What it has counted.
    pub metrics: Arc<OperatorMetrics>,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<Result<(), Error>>,
}

impl Operator {
    /// Without an election.
    pub fn start(cluster: &Cluster) -> Self {
        Self::elected(cluster, None)
    }

    /// For the jobs of one namespace.
    pub fn of_namespace(cluster: &Cluster, namespace: &str) -> Self {
        Self::with(cluster, namespace, None)
    }

    /// With an election, if there is a lease.
    pub fn elected(cluster: &Cluster, lease: Option<lease::LeaseOptions>) -> Self {
        Self::with(cluster, NAMESPACE, lease)
    }

    fn with(cluster: &Cluster, namespace: &str, lease: Option<lease::LeaseOptions>) -> Self {
        let monitoring = Monitoring::default();
        let metrics = monitoring.metrics.clone();
        let options = OperatorOptions { namespace: Some(namespace.to_string()), lease };
        let (stop, stopped) = oneshot::channel();
        let shutdown = async {
            // A test that has ended stops it as well.
            let _ = stopped.await;
        };
        let client = cluster.operator_client();
        let task = cluster.runtime.spawn(operator::run(options, client, monitoring, shutdown));
        Self { metrics, stop: Some(stop), task }
    }

    /// As SIGTERM would.
    pub fn leave(mut self, cluster: &Cluster) -> Result<(), Error> {
        drop(self.stop.take());
        cluster.runtime.block_on(self.task).expect("no panic")
    }

    /// As SIGKILL would.
    pub fn kill(self) {
        self.task.abort();
    }

    /// Waits for it to end by itself.
    pub fn finish(self, cluster: &Cluster) -> Result<(), Error> {
        let Self { stop, task, .. } = self;
        let result = cluster.runtime.block_on(task).expect("no panic");
        drop(stop);
        result
    }
}
