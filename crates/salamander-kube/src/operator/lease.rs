//! Leader election: only one operator works at a time, by a lease that it must renew. Whether to take it is a
//! pure decision that trusts no clock but its own: a lease is over when it did not *change* for its duration,
//! whatever time it carries.
//!
//! Not kube-lease-manager (0.13): it compares the holder's clock with its own, takes an expired lease by a
//! patch without
//! the version it read, so that it can overwrite a renewal, and does not say when a lease can no longer be renewed.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::{Api, PostParams};
use tokio::time::{Instant, sleep, timeout};
use tracing::{info, warn};

use crate::Error;
use crate::error::{code, root};

/// Who wants the lease, and for how long it holds.
#[derive(Clone, Debug)]
pub struct LeaseOptions {
    /// The lease.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
    /// This operator; no other has this name.
    pub identity: String,
    /// How long a lease holds that is not renewed.
    pub duration: Duration,
}

/// A lease as it was last observed, and since when it is so.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ObservedLease {
    holder: Option<String>,
    renewed: Option<Timestamp>,
    since: Option<Instant>,
}

/// What to do about a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseAction {
    /// It is ours: renew it.
    Renew,
    /// It is nobody's any more: take it.
    Acquire,
    /// It is somebody else's.
    Wait,
}

impl ObservedLease {
    /// Notes what a lease says now.
    pub fn update(&mut self, now: Instant, spec: &LeaseSpec) {
        let renewed = spec.renew_time.as_ref().map(|time| time.0);
        if self.since.is_none() || self.renewed != renewed || self.holder != spec.holder_identity {
            *self = Self { holder: spec.holder_identity.clone(), renewed, since: Some(now) };
        }
    }

    /// Decides.
    pub fn decide(&self, now: Instant, identity: &str, duration: Duration) -> LeaseAction {
        match (self.holder.as_deref(), self.since) {
            (Some(holder), _) if holder == identity => LeaseAction::Renew,
            (None | Some(""), _) | (_, None) => LeaseAction::Acquire,
            (_, Some(since)) if now - since >= duration => LeaseAction::Acquire,
            _ => LeaseAction::Wait,
        }
    }
}

/// Takes part in the election.
#[derive(Debug)]
pub struct LeaderElector {
    options: LeaseOptions,
    leases: Api<Lease>,
    observed: ObservedLease,
}

impl LeaderElector {
    /// Nothing is asked yet.
    pub fn new(client: kube::Client, options: LeaseOptions) -> Self {
        let leases = Api::namespaced(client, &options.namespace);
        Self { options, leases, observed: ObservedLease::default() }
    }

    /// Waits until this operator leads. Missing rights are an error, everything else is tried again.
    pub async fn acquire(&mut self) -> Result<(), Error> {
        let every = self.options.duration / 5;
        loop {
            match timeout(self.options.duration / 3, self.try_acquire_or_renew()).await {
                Ok(Ok(true)) => {
                    info!(identity = self.options.identity, "this operator leads");
                    return Ok(());
                }
                Ok(Ok(false)) => {}
                Ok(Err(error)) if matches!(code(&error), Some(401 | 403)) => {
                    let what = format!("taking the lease {}", self.options.name);
                    return Err(Error::doing(what)(error));
                }
                Ok(Err(error)) => warn!(error = root(&error), "the election"),
                Err(_) => warn!("the API server does not answer in the election"),
            }
            sleep(every).await;
        }
    }

    /// Renews the lease until that fails for so long that others may take it.
    pub async fn renew(&mut self) {
        let every = self.options.duration / 5;
        // Earlier than others may take it.
        let deadline = self.options.duration * 2 / 3;
        let mut renewed = Instant::now();
        while renewed.elapsed() < deadline {
            sleep(every).await;
            let began = Instant::now();
            match timeout(self.options.duration / 3, self.try_acquire_or_renew()).await {
                Ok(Ok(true)) => renewed = began,
                Ok(Ok(false)) => return,
                Ok(Err(error)) => warn!(error = root(&error), "the lease cannot be renewed"),
                Err(_) => warn!("the API server does not answer the renewal of the lease"),
            }
        }
    }

    /// Gives the lease back, so that another operator need not wait.
    pub async fn release(&mut self) {
        let Ok(Some(mut lease)) = self.leases.get_opt(&self.options.name).await else { return };
        let Some(spec) = lease.spec.as_mut() else { return };
        if spec.holder_identity.as_deref() == Some(&self.options.identity) {
            spec.holder_identity = Some(String::new());
            // Otherwise others wait, which is all that is lost.
            let _ = self.leases.replace(&self.options.name, &PostParams::default(), &lease).await;
        }
    }

    /// One try; true if the lease is ours now.
    async fn try_acquire_or_renew(&mut self) -> Result<bool, kube::Error> {
        let Some(mut lease) = self.leases.get_opt(&self.options.name).await? else {
            return self.write(None).await;
        };
        let now = Instant::now();
        let spec = lease.spec.get_or_insert_default();
        self.observed.update(now, spec);
        match self.observed.decide(now, &self.options.identity, self.options.duration) {
            LeaseAction::Renew | LeaseAction::Acquire => self.write(Some(lease)).await,
            LeaseAction::Wait => Ok(false),
        }
    }

    /// The server refuses a write to a lease that has changed since it was read.
    async fn write(&mut self, lease: Option<Lease>) -> Result<bool, kube::Error> {
        let LeaseOptions { name, identity, duration, .. } = &self.options;
        let now = MicroTime(Timestamp::now());
        let fresh = lease.is_none();
        let mut lease = lease.unwrap_or_else(|| Lease {
            metadata: ObjectMeta { name: Some(name.clone()), ..ObjectMeta::default() },
            spec: None,
        });
        let spec = lease.spec.get_or_insert_default();
        if spec.holder_identity.as_ref() != Some(identity) {
            spec.acquire_time = Some(now.clone());
            spec.lease_transitions = Some(spec.lease_transitions.unwrap_or(-1) + 1);
        }
        spec.holder_identity = Some(identity.clone());
        spec.renew_time = Some(now);
        spec.lease_duration_seconds = Some(duration.as_secs().max(1) as i32);
        let params = PostParams::default();
        let written = match fresh {
            true => self.leases.create(&params, &lease).await,
            false => self.leases.replace(name, &params, &lease).await,
        };
        match written {
            Ok(lease) => {
                if let Some(spec) = &lease.spec {
                    self.observed.update(Instant::now(), spec);
                }
                Ok(true)
            }
            // Somebody was faster.
            Err(error) if code(&error) == Some(409) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOLDS: Duration = Duration::from_secs(15);

    fn spec(holder: Option<&str>, renewed: i64) -> LeaseSpec {
        LeaseSpec {
            holder_identity: holder.map(str::to_string),
            renew_time: Some(MicroTime(Timestamp::from_second(renewed).expect("a time"))),
            ..LeaseSpec::default()
        }
    }

    #[test]
    fn a_lease_is_over_when_it_did_not_change_for_its_duration() {
        let start = Instant::now();
        let mut observed = ObservedLease::default();
        // Its holder's clock is years behind, which says nothing.
        observed.update(start, &spec(Some("other"), 1_000));
        assert_eq!(observed.decide(start, "me", HOLDS), LeaseAction::Wait);
        let later = start + HOLDS - Duration::from_secs(1);
        observed.update(later, &spec(Some("other"), 1_001));
        assert_eq!(
            observed.decide(start + HOLDS, "me", HOLDS),
            LeaseAction::Wait,
            "it was renewed"
        );
        observed.update(start + HOLDS, &spec(Some("other"), 1_001));
        assert_eq!(observed.decide(later + HOLDS, "me", HOLDS), LeaseAction::Acquire);
    }

    #[test]
    fn a_lease_of_nobody_is_taken_and_ones_own_renewed() {
        let now = Instant::now();
        for (holder, expected) in [
            (None, LeaseAction::Acquire),
            (Some(""), LeaseAction::Acquire),
            (Some("me"), LeaseAction::Renew),
        ] {
            let mut observed = ObservedLease::default();
            observed.update(now, &spec(holder, 1));
            assert_eq!(observed.decide(now, "me", HOLDS), expected, "{holder:?}");
        }
    }
}
