//! A set of pods beside all pods that there are: those of an earlier master, and those whose events were missed.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;

use super::{Creation, PodAction, PodKey, PodSet, SlotPod};
use crate::objects::container_memory;
use crate::platform::pod_state::{self, PodEnd, PodState};

impl PodSet {
    /// Takes over the pods of an earlier master.
    pub fn adopt(&mut self, now: Timestamp, pods: Vec<Pod>) -> Vec<PodAction> {
        let mut actions = Vec::new();
        let keyed = pods.into_iter().filter_map(|pod| Some((PodKey::of(&pod)?, pod)));
        let mut pods: Vec<(PodKey, Pod)> = keyed.collect();
        pods.sort_by_key(|(key, _)| *key);
        for (key, pod) in pods {
            self.newest = self.newest.max(key.process);
            self.memory(key.slot).grow_to(container_memory(&pod));
            let entry = SlotPod::new(key.process, Creation::Done, Some(pod));
            // Only the newest one of a slot counts; the end of others was told before.
            if let Some(older) = self.slots.insert(key.slot, entry) {
                actions.push(self.delete(older.key(key.slot), false));
            }
        }
        let last = |(slot, entry): (&u32, &SlotPod)| Some((entry.key(*slot), entry.last.clone()?));
        let adopted: Vec<(PodKey, Pod)> = self.slots.iter().filter_map(last).collect();
        for (key, pod) in adopted {
            // Pods end well only with their run, so that this one belongs to what the run was before it was resumed.
            if pod_state::read(&pod, now) == PodState::Ended(PodEnd::Finished) {
                self.slots.remove(&key.slot);
                actions.push(self.delete(key, false));
            } else {
                actions.extend(self.seen(now, pod));
            }
        }
        actions
    }

    /// All pods that there are, after events may have been missed.
    pub fn relisted(&mut self, now: Timestamp, pods: Vec<Pod>) -> Vec<PodAction> {
        let there: Vec<PodKey> = pods.iter().filter_map(PodKey::of).collect();
        let missed = |(slot, entry): (&u32, &SlotPod)| {
            let missed = entry.creation == Creation::Done && !there.contains(&entry.key(*slot));
            missed.then(|| (*slot, entry.last.clone().unwrap_or_default()))
        };
        let missed: Vec<(u32, Pod)> = self.slots.iter().filter_map(missed).collect();
        let mut actions = Vec::new();
        for (slot, last) in missed {
            actions.extend(self.finish(slot, pod_state::gone(&last)));
        }
        actions.extend(self.strays(&pods));
        actions.extend(pods.into_iter().flat_map(|pod| self.seen(now, pod)));
        actions
    }

    /// Pods whose end was reported, but which could not be deleted then.
    fn strays(&self, pods: &[Pod]) -> Vec<PodAction> {
        let known = self.inventory();
        let stray = |pod: &Pod| {
            let leaves = pod.metadata.deletion_timestamp.is_some();
            let key = PodKey::of(pod)?;
            // Kept for its log.
            let done = pod.status.as_ref().and_then(|status| status.phase.as_deref());
            let leaves = leaves || done == Some("Succeeded");
            let stray = !known.contains(&key) && !leaves && key.process <= self.newest;
            stray.then(|| self.delete(key, false))
        };
        if self.over { Vec::new() } else { pods.iter().filter_map(stray).collect() }
    }
}
