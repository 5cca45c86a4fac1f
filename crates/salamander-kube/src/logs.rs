//! The logs of a job's pods, as they are or as they grow: pods that come later are followed as well.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::io::Lines;
use futures::{AsyncBufRead, AsyncBufReadExt, StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{Api, LogParams};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, sleep};
use tracing::debug;

use crate::Error;
use crate::client::{Jobs, short_name};
use crate::error::code;

/// Lines that may wait for whoever prints them.
const WAITING: usize = 1_024;
/// How often a broken connection is made again.
const ATTEMPTS: usize = 5;

impl Jobs {
    /// Gives each line of the logs of a job's pods, with the pod's name; `role` as `worker-0`, `ps-0` or `master`.
    pub async fn logs(
        &self,
        job: &str,
        role: Option<&str>,
        mut each: impl FnMut(&str, &str),
    ) -> Result<(), Error> {
        for pod in self.of_role(job, role).await? {
            let log = Log { api: self.pods(), name: pod.name_any(), follow: false };
            let short = short_name(&pod);
            let Some(mut lines) = log.lines().await? else { continue };
            let broken = |error: std::io::Error| {
                let (what, reason) = (log.what(), error.to_string());
                Error::Unreachable { what, reason }
            };
            while let Some(line) = lines.try_next().await.map_err(broken)? {
                each(&short, &line);
            }
        }
        Ok(())
    }

    /// The same, and goes on with what is added, until the job is over; looks for new pods every so often.
    pub async fn follow_logs(
        &self,
        job: &str,
        role: Option<&str>,
        every: Duration,
        mut each: impl FnMut(&str, &str),
    ) -> Result<(), Error> {
        let (sender, mut lines) = mpsc::channel::<(String, String)>(WAITING);
        let (mut known, mut readers) = (BTreeSet::new(), JoinSet::new());
        let mut looks = interval(every);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                Some((pod, line)) = lines.recv() => each(&pod, &line),
                Some(ended) = readers.join_next() => {
                    if let Ok(Err(error)) = ended {
                        return Err(error);
                    }
                }
                _ = looks.tick() => {
                    let Some(pods) = self.still_there(job, role).await? else {
                        break;
                    };
                    let (pods, over) = pods;
                    for pod in pods.into_iter().filter(has_begun) {
                        if known.insert(pod.name_any()) {
                            let log = Log { api: self.pods(), name: pod.name_any(), follow: true };
                            readers.spawn(log.follow(short_name(&pod), sender.clone()));
                        }
                    }
                    if over && readers.is_empty() {
                        break;
                    }
                }
            }
        }
        while let Ok((pod, line)) = lines.try_recv() {
            each(&pod, &line);
        }
        Ok(())
    }

    /// A job's pods and whether it is over; nothing if it was deleted.
    async fn still_there(
        &self,
        job: &str,
        role: Option<&str>,
    ) -> Result<Option<(Vec<Pod>, bool)>, Error> {
        match self.view(job).await {
            Ok(view) => Ok(Some((self.of_role(job, role).await?, view.ended().is_some()))),
            Err(Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The pods of a role.
    async fn of_role(&self, job: &str, role: Option<&str>) -> Result<Vec<Pod>, Error> {
        let mut pods = self.list(job).await?;
        pods.retain(|pod| role.is_none_or(|role| role == short_name(pod)));
        Ok(pods)
    }
}

/// The log of a pod.
struct Log {
    api: Api<Pod>,
    name: String,
    follow: bool,
}

impl Log {
    /// Gives its lines away until it ends or nobody takes them. A broken connection is made again, and goes on behind
    /// what was read: a pod's log only grows, since its container is never started again.
    async fn follow(self, short: String, out: mpsc::Sender<(String, String)>) -> Result<(), Error> {
        let mut seen = 0;
        for _ in 0..ATTEMPTS {
            let mut lines = match self.lines().await {
                Ok(Some(lines)) => lines.skip(seen),
                // Deleted: what it said last is not to be had any more.
                Ok(None) | Err(Error::NotFound { .. }) => return Ok(()),
                Err(error) => return Err(error),
            };
            loop {
                match lines.try_next().await {
                    Ok(Some(line)) => {
                        seen += 1;
                        if out.send((short.clone(), line)).await.is_err() {
                            return Ok(());
                        }
                    }
                    Ok(None) => return Ok(()),
                    Err(error) => {
                        debug!(%error, pod = self.name, "reading a log again");
                        break;
                    }
                }
            }
            sleep(Duration::from_millis(200)).await;
        }
        Ok(())
    }

    /// Its lines; nothing if it has not begun.
    async fn lines(&self) -> Result<Option<Lines<impl AsyncBufRead + Unpin>>, Error> {
        let params = LogParams { follow: self.follow, ..LogParams::default() };
        match self.api.log_stream(&self.name, &params).await {
            Ok(stream) => Ok(Some(stream.lines())),
            Err(error) if code(&error) == Some(400) => Ok(None),
            Err(error) => Err(Error::doing(self.what())(error)),
        }
    }

    fn what(&self) -> String {
        format!("reading the log of {}", self.name)
    }
}

fn has_begun(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    !matches!(phase, None | Some("Pending"))
}
