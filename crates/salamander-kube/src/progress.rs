//! What a master tells about itself: a small record on its own pod, which the operator and commands read.

use serde::{Deserialize, Serialize};
use serde_json::Value;

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
    /// Workers whose pods wait for a place, or cannot start.
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
    /// How the last worker that broke did so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_crash: Option<String>,
}

impl Progress {
    /// Reads what the master answers when it is asked for its status.
    pub fn read(status: &Value) -> Self {
        let text = |value: &Value| value.as_str().map(str::to_string);
        let workers = status["workers"].as_array().map(Vec::as_slice).unwrap_or_default();
        let members = workers.iter().filter(|worker| worker["member"].is_u64()).count();
        let report = &status["last_report"];
        let step = if report["step"].is_object() { &report["step"] } else { &report["epoch"] };
        Self {
            state: text(&status["state"]).unwrap_or_default(),
            reason: text(&status["reason"]),
            workers: members as u32,
            wanted: status["wanted"].as_u64().unwrap_or(0) as u32,
            step: step["steps"].as_u64(),
            epoch: step["epoch"].as_u64(),
            loss: step["loss"].as_f64(),
            generation: text(&status["generation"]),
            checkpoint: text(&status["checkpoint"]["id"]),
            restarts: status["restarts"]["worker"].as_u64().unwrap_or(0),
            ..Self::default()
        }
    }

    /// The (slot, number) of workers that train together, from the same answer.
    pub fn members(status: &Value) -> Vec<(u32, u32)> {
        let workers = status["workers"].as_array().map(Vec::as_slice).unwrap_or_default();
        let number = |value: &Value| value.as_u64().and_then(|value| u32::try_from(value).ok());
        let members = workers.iter().filter(|worker| worker["member"].is_u64());
        members.filter_map(|w| Some((number(&w["slot"])?, number(&w["pid"])?))).collect()
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
    fn goodput_starts_with_the_first_step() {
        let mut goodput = Goodput::default();
        goodput.add(100.0, false);
        assert_eq!(goodput.value(), None);
        goodput.add(9.0, true);
        goodput.add(1.0, false);
        assert_eq!(goodput.value(), Some(0.9));
    }
}
