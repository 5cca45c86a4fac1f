//! What clients ask and change of a server while it runs, by the calls that Triton's clients have: whether each request
//! is logged. Requests are not traced: those settings are told, and stay as they are.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Map, Value as Json, json};

use crate::refusal::Refusal;

/// The one that can be changed.
const REQUESTS: &str = "log_info";

/// Settings of a running server. A copy is the same settings.
#[derive(Clone, Debug)]
pub(crate) struct LiveSettings {
    access_log: Arc<AtomicBool>,
}

impl LiveSettings {
    pub(crate) fn new(access_log: bool) -> Self {
        Self { access_log: Arc::new(AtomicBool::new(access_log)) }
    }

    /// Whether each request is logged.
    pub(crate) fn logs_requests(&self) -> bool {
        self.access_log.load(Ordering::Relaxed)
    }

    /// What is logged.
    pub(crate) fn log(&self) -> Map<String, Json> {
        object(json!({
            "log_file": "",
            REQUESTS: self.logs_requests(),
            "log_warning": true,
            "log_error": true,
            "log_verbose_level": 0,
            "log_format": "default",
        }))
    }

    /// Changes what is logged; nothing is changed where a part of it cannot be.
    pub(crate) fn set_log(&self, mut changes: Map<String, Json>) -> Result<(), Refusal> {
        let requests = changes.remove(REQUESTS).unwrap_or_default();
        unchanged(&self.log(), &changes)?;
        match requests {
            Json::Null => {}
            Json::Bool(on) => self.access_log.store(on, Ordering::Relaxed),
            other => {
                return Err(Refusal::Invalid(format!(
                    "{REQUESTS} is {other}: write true or false"
                )));
            }
        }
        Ok(())
    }

    /// What is traced: nothing.
    pub(crate) fn trace() -> Map<String, Json> {
        object(json!({
            "trace_file": "",
            "trace_level": ["OFF"],
            "trace_rate": "1000",
            "trace_count": "-1",
            "log_frequency": "0",
        }))
    }

    /// Refuses to trace anything.
    pub(crate) fn set_trace(changes: &Map<String, Json>) -> Result<(), Refusal> {
        unchanged(&Self::trace(), changes)
    }
}

fn object(json: Json) -> Map<String, Json> {
    match json {
        Json::Object(object) => object,
        _ => Map::new(),
    }
}

/// Refuses changes but those to what is so already; nothing stands for what a server begins with.
fn unchanged(known: &Map<String, Json>, changes: &Map<String, Json>) -> Result<(), Refusal> {
    for (name, value) in changes {
        let Some(now) = known.get(name) else {
            let known: Vec<&str> = known.keys().map(String::as_str).collect();
            let known = known.join(", ");
            return Err(Refusal::Invalid(format!(
                "there is no setting \"{name}\" (there are: {known})"
            )));
        };
        if !value.is_null() && flat(value) != flat(now) {
            return Err(Refusal::Unsupported(format!(
                "{name} is {now} and stays so: of these settings only {REQUESTS} (a line per request) can be changed; \
                 /metrics has the times of each stage"
            )));
        }
    }
    Ok(())
}

/// One value and a list of it are the same, and so are a number and its text.
fn flat(value: &Json) -> Vec<String> {
    match value {
        Json::Array(items) => items.iter().flat_map(flat).collect(),
        Json::String(text) => vec![text.clone()],
        other => vec![other.to_string()],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_logged_on_demand_and_the_rest_stays() {
        let settings = LiveSettings::new(false);
        settings.set_log(object(json!({"log_info": true, "log_verbose_level": 0}))).unwrap();
        assert!(settings.logs_requests());
        assert_eq!(settings.log()["log_info"], true);
        let check = |changes: Json, expected: &str| {
            let refused = settings.set_log(object(changes)).unwrap_err().to_string();
            assert!(refused.contains(expected), "{refused}");
            assert!(settings.logs_requests(), "nothing was changed");
        };
        check(json!({"log_info": false, "log_file": "x.txt"}), "log_file is \"\" and stays so");
        check(json!({"log_info": "no"}), "write true or false");
        check(json!({"log_colour": 1}), "there is no setting \"log_colour\"");
    }

    #[test]
    fn nothing_is_traced() {
        let set = |changes| LiveSettings::set_trace(&object(changes));
        assert_eq!(
            set(json!({"trace_level": "OFF", "trace_count": -1, "trace_rate": null})),
            Ok(())
        );
        let refused = set(json!({"trace_level": ["TIMESTAMPS"]})).unwrap_err();
        assert!(matches!(refused, Refusal::Unsupported(_)), "{refused}");
    }
}
