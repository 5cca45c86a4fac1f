//! What is sent together: points as MLflow wants them, in batches of its size, each point once.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::point::{LoggedPoint, PointKind};

/// The most metrics of one call.
pub(super) const MOST: usize = 1000;
/// The longest key and the longest value of a parameter.
const LONGEST_KEY: usize = 250;
const LONGEST_PARAM: usize = 6000;

/// A value at a step and a time. All of it is fixed once it is written down, so that sending it again adds nothing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MetricPoint {
    /// Its name.
    pub key: String,
    /// A number, or `"NaN"`, `"Infinity"`, `"-Infinity"`, which JSON has not.
    pub value: Value,
    /// Milliseconds since 1970.
    pub timestamp: i64,
    /// Steps done.
    pub step: u64,
}

/// How far a server was told. A run that goes through steps again does not tell of them again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SentUpTo {
    /// Steps up to this one.
    pub steps: u64,
    /// Epochs and validations up to this step, and whether that was the end of an epoch.
    pub epoch: Option<(u64, bool)>,
}

impl SentUpTo {
    /// Whether a point is new; it counts as told from then on.
    pub fn take(&mut self, point: &LoggedPoint) -> bool {
        let is_new = match point.kind {
            PointKind::Step => point.step > self.steps,
            kind => Some((point.step, kind == PointKind::Epoch)) > self.epoch,
        };
        match point.kind {
            PointKind::Step => self.steps = self.steps.max(point.step),
            kind => self.epoch = self.epoch.max(Some((point.step, kind == PointKind::Epoch))),
        }
        is_new
    }
}

/// The metrics of a point.
pub fn metrics(point: &LoggedPoint) -> impl Iterator<Item = MetricPoint> {
    let timestamp = (point.time.unwrap_or(0.0) * 1000.0) as i64;
    point.values.iter().map(move |(name, value)| MetricPoint {
        key: key(name),
        value: number(*value),
        timestamp,
        step: point.step,
    })
}

/// A name with the characters that MLflow allows.
pub fn key(name: &str) -> String {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "_-./ ".contains(c);
    let clean = name.chars().map(|c| if allowed(c) { c } else { '_' });
    // A path that leaves its folder is refused, and one that has another name.
    let clean: String = clean.take(LONGEST_KEY).collect::<String>().replace("..", "__");
    let parts = clean.trim_matches(['/', ' ']).split('/');
    let parts: Vec<&str> = parts.filter(|part| !matches!(*part, "" | ".")).collect();
    if parts.is_empty() { "_".to_string() } else { parts.join("/") }
}

/// A parameter's value as text.
pub fn param(value: &Value) -> String {
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_string);
    text.chars().take(LONGEST_PARAM).collect()
}

fn number(value: f64) -> Value {
    match value {
        value if value.is_nan() => json!("NaN"),
        f64::INFINITY => json!("Infinity"),
        f64::NEG_INFINITY => json!("-Infinity"),
        value => json!(value),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn point(kind: PointKind, step: u64) -> LoggedPoint {
        LoggedPoint { kind, step, time: Some(1.5), values: vec![("a".into(), 1.0)] }
    }

    #[test]
    fn what_was_told_is_not_told_again() {
        let mut told = SentUpTo::default();
        let mut check = |kind, step, expected: bool| {
            assert_eq!(told.take(&point(kind, step)), expected, "{kind:?} {step}");
        };
        check(PointKind::Validation, 0, true);
        check(PointKind::Step, 1, true);
        check(PointKind::Step, 2, true);
        check(PointKind::Validation, 2, true);
        check(PointKind::Epoch, 2, true);
        // From a checkpoint after step 1.
        check(PointKind::Step, 2, false);
        check(PointKind::Validation, 2, false);
        check(PointKind::Epoch, 2, false);
        check(PointKind::Step, 3, true);
    }

    proptest! {
        #[test]
        fn however_often_a_run_goes_back_each_step_is_told_once(
            backs in proptest::collection::vec((1u64..40, 0u64..40), 1..12),
        ) {
            let (mut told, mut seen, mut at) = (SentUpTo::default(), Vec::new(), 0);
            for (forward, back) in backs {
                for step in at + 1..=at + forward {
                    seen.extend(told.take(&point(PointKind::Step, step)).then_some(step));
                }
                at = (at + forward).saturating_sub(back);
            }
            let expected: Vec<u64> = (1..=seen.len() as u64).collect();
            prop_assert_eq!(seen, expected);
        }

        #[test]
        fn keys_are_allowed_whatever_a_model_calls_its_metrics(name in ".{0,300}") {
            let key = key(&name);
            prop_assert!(!key.is_empty() && key.len() <= LONGEST_KEY);
            prop_assert!(key.chars().all(|c| c.is_ascii_alphanumeric() || "_-./ ".contains(c)));
            prop_assert!(!key.contains(".."));
            prop_assert!(key.split('/').all(|part| !part.is_empty() && part != "."), "{key}");
        }
    }

    #[test]
    fn a_key_is_no_path_of_another_name() {
        for (name, expected) in [
            ("val//loss", "val/loss"),
            ("./loss", "loss"),
            ("a/./b/", "a/b"),
            ("../up", "__/up"),
            ("/", "_"),
            (" / . /", "_"),
            ("top 5", "top 5"),
        ] {
            assert_eq!(key(name), expected, "{name:?}");
        }
    }

    #[test]
    fn numbers_that_json_lacks_have_names() {
        let value = |value: f64| {
            let point =
                LoggedPoint { values: vec![("a".into(), value)], ..point(PointKind::Step, 1) };
            metrics(&point).next().expect("one").value
        };
        assert_eq!(value(f64::NAN), json!("NaN"));
        assert_eq!(value(f64::NEG_INFINITY), json!("-Infinity"));
        assert_eq!(value(0.5), json!(0.5));
    }
}
