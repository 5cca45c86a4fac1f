//! Tells a collector of OpenTelemetry of a run: the run is a span, its epochs are spans below it, and the trials of a
//! search stand below that of the search.
//!
//! Which trace a run is stands in its folder before anybody hears of it, and a span's number follows from it: what is
//! sent again after a lost answer is the same span.

mod collector;

use std::collections::VecDeque;

use reqwest::Client;
use salamander_core::layout::RunLayout;
use salamander_files::{Durability, replace};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::about::{self, About, TrackedEnd, read_json};
use crate::follow::{Follower, Found};
use crate::http;
use crate::mlflow::SendProgress;
use crate::mlflow::state::random_name;
use crate::point::{LoggedPoint, PointKind};

pub use collector::Collector;

/// Spans of one request.
const MOST: usize = 256;

/// Why nothing more is sent for now.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Of the run's folder.
    #[error(transparent)]
    Folder(#[from] about::Error),
    /// It may work later: nobody answers, or the collector is busy.
    #[error("{0}")]
    Away(String),
    /// The collector has refused it, and would again.
    #[error("{0}")]
    Refused(String),
    /// A trial's search begins the trace.
    #[error("the trace of the search is not there yet")]
    NoParent,
}

/// What a collector has been told of a run, kept in its folder.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TraceState {
    /// The collector; another one is told of everything.
    pub endpoint: String,
    /// The trace: 32 hexadecimal digits.
    pub trace: String,
    /// The run's span in it: 16.
    pub span: String,
    /// Epochs were told up to this step.
    pub steps: u64,
    /// How the run ended, and when, in milliseconds, as it was told.
    pub ended: Option<(String, i64)>,
}

impl TraceState {
    fn keep(&self, run: &RunLayout) -> Result<(), Error> {
        let path = run.traces();
        let bytes = serde_json::to_vec(self).unwrap_or_default();
        Ok(replace(&path, &bytes, Durability::Synced).map_err(about::Error::file(&path))?)
    }

    /// The number of the span of what ended at a step.
    fn span_at(&self, step: u64) -> String {
        format!("{:016x}", u64::from_str_radix(&self.span, 16).unwrap_or(0) ^ step)
    }
}

/// Tells one collector of one run.
pub struct TraceSender {
    run: RunLayout,
    about: About,
    collector: Collector,
    client: Client,
    follower: Follower,
    state: Option<TraceState>,
    /// The span of the search.
    parent: Option<String>,
    /// Spans of epochs that were not told yet, with their steps.
    waiting: VecDeque<(u64, Value)>,
    epochs: u64,
    /// When the first point was measured, and when the last epoch ended, in seconds since 1970.
    first: Option<f64>,
    last: Option<f64>,
}

impl TraceSender {
    /// For a run's folder; nothing is sent yet.
    pub fn new(run: &RunLayout, about: About, collector: &Collector) -> Result<Self, Error> {
        let client = http::client().map_err(|error| Error::Refused(http::reasons(&error)))?;
        Ok(Self {
            run: run.clone(),
            about,
            collector: collector.clone(),
            client,
            follower: Follower::new(run.metrics()),
            state: None,
            parent: None,
            waiting: VecDeque::new(),
            epochs: 0,
            first: None,
            last: None,
        })
    }

    /// Does the next thing that is to be done. Once the run is `over`, that includes how it ended.
    pub async fn advance(&mut self, over: bool) -> Result<SendProgress, Error> {
        let mut state = match &self.state {
            Some(state) => state.clone(),
            None => {
                let state = self.open()?;
                self.state = Some(state.clone());
                state
            }
        };
        self.read(&state)?;
        let epochs = self.waiting.len().min(MOST);
        let mut spans: Vec<Value> =
            self.waiting.iter().take(epochs).map(|(_, span)| span.clone()).collect();
        // The run itself comes last.
        let ended = over.then(|| TrackedEnd::read(&self.run)).flatten();
        if let Some(ended) = ended.filter(|_| epochs == self.waiting.len()) {
            let stands = Some((ended.state.clone(), (ended.time * 1000.0) as i64));
            if state.ended != stands {
                spans.push(self.whole(&state, &ended));
                state.ended = stands;
            }
        }
        if spans.is_empty() {
            return Ok(SendProgress::UpToDate);
        }
        self.collector.send(&self.client, &spans).await?;
        for (step, _) in self.waiting.drain(..epochs) {
            state.steps = state.steps.max(step);
        }
        state.keep(&self.run)?;
        self.state = Some(state);
        Ok(SendProgress::Sent)
    }

    /// Which trace this run is.
    fn open(&mut self) -> Result<TraceState, Error> {
        let search = match &self.about.search {
            None => None,
            Some(search) if !search.traces().is_file() => return Err(Error::NoParent),
            Some(search) => Some(read_json::<TraceState>(&search.traces())?),
        };
        let path = self.run.traces();
        let kept: Option<TraceState> = path.is_file().then(|| read_json(&path)).transpose()?;
        let goes_on = |kept: &TraceState| {
            let same = search.as_ref().is_none_or(|search| search.trace == kept.trace);
            same && kept.endpoint == self.collector.endpoint
        };
        let state = match kept.filter(goes_on) {
            Some(kept) => kept,
            None => {
                let trace = search.as_ref().map(|search| Ok(search.trace.clone()));
                let trace = trace.unwrap_or_else(|| random_name(&path))?;
                let span = random_name(&path)?[..16].to_string();
                let endpoint = self.collector.endpoint.clone();
                let state = TraceState { endpoint, trace, span, steps: 0, ended: None };
                // Before anybody hears of it.
                state.keep(&self.run)?;
                state
            }
        };
        self.parent = search.map(|search| search.span);
        Ok(state)
    }

    /// Reads what is new, up to what one request has.
    fn read(&mut self, state: &TraceState) -> Result<(), Error> {
        while self.waiting.len() < MOST {
            let path = self.follower.path().to_path_buf();
            let found = self.follower.poll().map_err(about::Error::file(&path))?;
            if found.is_empty() {
                break;
            }
            for found in found {
                match found {
                    Found::FromTheBeginning => {
                        self.waiting.clear();
                        (self.epochs, self.first, self.last) = (0, None, None);
                    }
                    Found::Point(point) => self.take(&point, state),
                }
            }
        }
        Ok(())
    }

    fn take(&mut self, point: &LoggedPoint, state: &TraceState) {
        let time = point.time.unwrap_or(self.about.begun);
        self.first.get_or_insert(time);
        if point.kind != PointKind::Epoch {
            return;
        }
        self.epochs += 1;
        let begin = self.last.unwrap_or_else(|| self.begin()).min(time);
        self.last = Some(time);
        if point.step <= state.steps {
            return;
        }
        let numbers = point.values.iter().map(|(name, value)| attribute(name, &json!(value)));
        let steps = attribute("steps", &json!(point.step));
        let span = TraceSpan {
            trace: &state.trace,
            id: state.span_at(point.step),
            parent: Some(&state.span),
            name: format!("epoch {}", self.epochs),
            time: (begin, time),
            attributes: std::iter::once(steps).chain(numbers).collect(),
            failure: None,
        };
        self.waiting.push_back((point.step, span.to_json()));
    }

    /// When the run began: a folder that was touched later has points of before.
    fn begin(&self) -> f64 {
        self.about.begun.min(self.first.unwrap_or(f64::INFINITY))
    }

    /// The span of the run.
    fn whole(&self, state: &TraceState, ended: &TrackedEnd) -> Value {
        let experiment = &self.about.experiment;
        let mut attributes = vec![
            attribute("salamander.run", &json!(self.about.id)),
            attribute("salamander.state", &json!(ended.state)),
            attribute("salamander.strategy", &json!(experiment.strategy)),
            attribute("salamander.workers", &json!(experiment.workers.max)),
        ];
        attributes
            .extend(experiment.model().map(|model| attribute("salamander.model", &json!(model))));
        attributes.extend(ended.best.map(|(best, _)| attribute("salamander.best", &json!(best))));
        let named =
            |(name, value): &(String, Value)| attribute(&format!("hyperparameters.{name}"), value);
        attributes.extend(self.about.hyperparameters.iter().map(named));
        let failure = (ended.state == "failed").then(|| "the run has failed".to_string());
        let span = TraceSpan {
            trace: &state.trace,
            id: state.span.clone(),
            parent: self.parent.as_deref(),
            name: format!(
                "{} {}",
                if self.about.is_search { "search" } else { "train" },
                self.about.title()
            ),
            time: (self.begin().min(ended.time), ended.time),
            attributes,
            failure,
        };
        span.to_json()
    }
}

/// Something that took time.
struct TraceSpan<'a> {
    trace: &'a str,
    id: String,
    parent: Option<&'a str>,
    name: String,
    /// From when to when, in seconds since 1970.
    time: (f64, f64),
    attributes: Vec<Value>,
    failure: Option<String>,
}

impl TraceSpan<'_> {
    fn to_json(&self) -> Value {
        let (begin, end) = self.time;
        let mut span = json!({
            "traceId": self.trace,
            "spanId": self.id,
            "name": self.name,
            // Internal: it answers nobody.
            "kind": 1,
            "startTimeUnixNano": nanoseconds(begin),
            "endTimeUnixNano": nanoseconds(end),
            "attributes": self.attributes,
            "status": match &self.failure {
                Some(failure) => json!({"code": 2, "message": failure}),
                None => json!({"code": 1}),
            },
        });
        if let Some(parent) = self.parent {
            span["parentSpanId"] = parent.into();
        }
        span
    }
}

/// A whole number of 64 bits is text in OTLP's JSON. What is measured in milliseconds is told as such.
fn nanoseconds(seconds: f64) -> String {
    let millis = (seconds * 1000.0).round().max(0.0) as u64;
    format!("{millis}000000")
}

/// An attribute; what is no plain value is told as text.
fn attribute(key: &str, value: &Value) -> Value {
    let value = match value {
        Value::Bool(truth) => json!({"boolValue": truth}),
        Value::Number(number) if number.is_i64() => json!({"intValue": number.to_string()}),
        Value::Number(number) => json!({"doubleValue": number}),
        Value::String(text) => json!({"stringValue": text}),
        // A number that JSON has not.
        Value::Null => json!({"doubleValue": "NaN"}),
        other => json!({"stringValue": other.to_string()}),
    };
    json!({"key": key, "value": value})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_have_the_types_of_the_protocol() {
        let check = |value: Value, expected: Value| {
            assert_eq!(attribute("a", &value), json!({"key": "a", "value": expected}));
        };
        check(json!(3), json!({"intValue": "3"}));
        check(json!(0.5), json!({"doubleValue": 0.5}));
        check(json!(f64::NAN), json!({"doubleValue": "NaN"}));
        check(json!(true), json!({"boolValue": true}));
        check(json!("x"), json!({"stringValue": "x"}));
        check(json!([1, 2]), json!({"stringValue": "[1,2]"}));
        assert_eq!(nanoseconds(1.5), "1500000000");
        assert_eq!(nanoseconds(-1.0), "0000000");
    }

    #[test]
    fn spans_of_one_run_have_numbers_of_their_own() {
        let state = TraceState { span: "00000000000000ff".into(), ..TraceState::default() };
        assert_eq!(state.span_at(1), "00000000000000fe");
        assert_ne!(state.span_at(1), state.span_at(2));
    }
}
