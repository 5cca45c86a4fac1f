//! What a master tells about itself: a small record on its own pod, which the operator and commands read.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::milestones::Milestones;
use crate::names::Role;

/// How far a run is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Progress {
    /// `gathering`, `regrouping`, `running`, `stopping`, `completed`, `interrupted` or `failed`.
    pub state: String,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Workers that train together.
    pub workers: u32,
    /// Workers that are wanted.
    pub wanted: u32,
    /// Parameter servers that serve.
    pub servers: u32,
    /// Parameter servers that are wanted.
    pub wanted_servers: u32,
    /// Pods that wait for a place, or cannot start.
    pub pending: u32,
    /// What one of them waits for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting: Option<String>,
    /// Steps done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<u64>,
    /// The epoch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epoch: Option<u64>,
    /// The last loss.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss: Option<f64>,
    /// The part of the time since the first step in which training went on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub goodput: Option<f64>,
    /// The group of workers that train together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generation: Option<String>,
    /// The last checkpoint that counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<String>,
    /// Workers that were started again.
    pub restarts: u64,
    /// Parameter servers that were started again.
    pub server_restarts: u64,
    /// How the last pod that broke did so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_crash: Option<String>,
    /// What it told on its way.
    #[serde(skip_serializing_if = "Milestones::is_empty")]
    pub milestones: Milestones,
}

impl Progress {
    /// Reads what the master answers when it is asked for its status.
    pub fn read(status: &Value) -> Self {
        let text = |value: &Value| value.as_str().map(str::to_string);
        let count = |value: &Value| value.as_u64().unwrap_or(0) as u32;
        let workers = taking_part(status).count() as u32;
        let servers = list(&status["servers"]).len() as u32;
        let wanted_servers = count(&status["wanted_servers"]);
        // Without membership a master never waits; but nothing is trained without somebody on each side.
        let alone = status["names"].is_object() && (workers == 0 || servers < wanted_servers);
        let state = text(&status["state"]).unwrap_or_default();
        let state = if alone && state == "running" { "gathering".to_string() } else { state };
        let report = &status["last_report"];
        let step = if report["step"].is_object() { &report["step"] } else { &report["epoch"] };
        Self {
            state,
            reason: text(&status["reason"]),
            workers,
            wanted: count(&status["wanted"]),
            servers,
            wanted_servers,
            step: step["steps"].as_u64(),
            epoch: step["epoch"].as_u64(),
            loss: step["loss"].as_f64(),
            generation: text(&status["generation"]),
            checkpoint: text(&status["checkpoint"]["id"]),
            restarts: status["restarts"]["worker"].as_u64().unwrap_or(0),
            server_restarts: status["restarts"]["ps"].as_u64().unwrap_or(0),
            ..Self::default()
        }
    }

    /// The (slot, number) of workers and servers that take part, from the same answer.
    pub fn members(status: &Value) -> Vec<(u32, u32)> {
        let number = |value: &Value| value.as_u64().and_then(|value| u32::try_from(value).ok());
        let workers =
            taking_part(status).filter_map(|w| Some((number(&w["slot"])?, number(&w["pid"])?)));
        let servers = list(&status["servers"]).iter().filter_map(|server| {
            Some((Role::Ps.slot(number(&server["seat"])?)?, number(&server["pid"])?))
        });
        workers.chain(servers).collect()
    }

    /// Reads the annotation.
    pub fn from_annotation(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    /// Whether the run is over, and how.
    pub fn ended(&self) -> Option<End> {
        match self.state.as_str() {
            "completed" => Some(End::Completed),
            "interrupted" => Some(End::Interrupted),
            "failed" => {
                Some(End::Failed(self.reason.clone().unwrap_or("no reason was given".into())))
            }
            _ => None,
        }
    }
}

/// The workers that train: members of the group, or whoever is connected where there is no group.
fn taking_part(status: &Value) -> impl Iterator<Item = &Value> {
    let grouped = !status["names"].is_object();
    list(&status["workers"]).iter().filter(move |worker| match grouped {
        true => worker["member"].is_u64(),
        false => worker["connected"] == true,
    })
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// It is done.
    Completed,
    /// It was stopped and can go on.
    Interrupted,
    /// It cannot be done.
    Failed(String),
}

/// Counts for how long training went on.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Goodput {
    good: f64,
    all: f64,
}

impl Goodput {
    /// So many seconds passed in this state. Time before the first step does not count.
    pub fn add(&mut self, seconds: f64, running: bool) {
        if running {
            self.good += seconds;
        }
        if running || self.all > 0.0 {
            self.all += seconds;
        }
    }

    /// The part of the time in which training went on, in thousandths.
    pub fn value(&self) -> Option<f64> {
        (self.all > 0.0).then(|| (self.good / self.all * 1000.0).round() / 1000.0)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_status_becomes_a_small_record() {
        let status = json!({
            "state": "running", "reason": null, "generation": "1.2", "wanted": 3,
            "workers": [{"member": 0, "slot": 2, "pid": 7}, {"member": null}, {"member": 1}],
            "restarts": {"worker": 4, "master": 1},
            "checkpoint": {"id": "step-20"},
            "last_report": {"step": {"steps": 25, "epoch": 1, "loss": 0.5}},
        });
        let progress = Progress::read(&status);
        assert_eq!((progress.workers, progress.wanted, progress.restarts), (2, 3, 4));
        assert_eq!((progress.step, progress.epoch, progress.loss), (Some(25), Some(1), Some(0.5)));
        assert_eq!(progress.checkpoint.as_deref(), Some("step-20"));
        assert_eq!(Progress::members(&status), [(2, 7)]);
        assert_eq!(progress.ended(), None);
        let text = serde_json::to_string(&progress).expect("written");
        assert_eq!(Progress::from_annotation(&text), Some(progress));
        assert_eq!(Progress::from_annotation("{"), None);
        let failed = Progress::read(&json!({"state": "failed", "reason": "bad data"}));
        assert_eq!(failed.ended(), Some(End::Failed("bad data".into())));
    }

    #[test]
    fn without_groups_whoever_is_connected_trains() {
        let mut status = json!({
            "state": "running", "wanted": 2, "wanted_servers": 2, "names": {"left": 3},
            "workers": [{"member": null, "connected": true, "slot": 0, "pid": 3}, {"connected": false}],
            "servers": [{"seat": 0, "pid": 8}, {"seat": 1, "pid": 9}],
            "restarts": {"worker": 0, "ps": 1},
        });
        let progress = Progress::read(&status);
        assert_eq!((progress.workers, progress.servers, progress.server_restarts), (1, 2, 1));
        assert_eq!(progress.state, "running");
        let seat = |index| Role::Ps.slot(index).expect("a slot");
        assert_eq!(Progress::members(&status), [(0, 3), (seat(0), 8), (seat(1), 9)]);
        status["servers"] = json!([{"seat": 0, "pid": 8}]);
        assert_eq!(Progress::read(&status).state, "gathering");
    }

    #[test]
    fn goodput_starts_with_the_first_step() {
        let mut goodput = Goodput::default();
        goodput.add(100.0, false);
        assert_eq!(goodput.value(), None);
        goodput.add(9.0, true);
        goodput.add(1.0, false);
        assert_eq!(goodput.value(), Some(0.9));
    }
}
