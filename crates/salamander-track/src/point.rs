//! A line of a run's metrics file: values at a step and a time.

use serde_json::{Map, Value};

/// Values that were measured together.
#[derive(Clone, Debug, PartialEq)]
pub struct LoggedPoint {
    /// Whether it is a step, an epoch's end, or a validation within an epoch.
    pub kind: PointKind,
    /// Steps done in all.
    pub step: u64,
    /// Seconds since 1970, where the line tells.
    pub time: Option<f64>,
    /// Values by name, such as `loss`, `training/accuracy` (of an epoch so far) and `validation/loss`.
    pub values: Vec<(String, f64)>,
}

/// What a line is about. The order is that of lines of the same step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PointKind {
    /// A step.
    Step,
    /// A validation within an epoch.
    Validation,
    /// The end of an epoch.
    Epoch,
}

impl LoggedPoint {
    /// Reads a line; nothing if it is none, as the last one of a killed process.
    ///
    /// ```
    /// use salamander_track::point::LoggedPoint;
    ///
    /// let point = LoggedPoint::parse(r#"{"kind":"step","steps":3,"time":9.5,"loss":0.25}"#).expect("a line");
    /// assert_eq!((point.step, point.time), (3, Some(9.5)));
    /// assert_eq!(point.values, [("loss".to_string(), 0.25)]);
    /// ```
    pub fn parse(line: &str) -> Option<Self> {
        let line: Value = serde_json::from_str(line).ok()?;
        let step = line["steps"].as_u64()?;
        let time = line["time"].as_f64();
        let (kind, values) = match line["kind"].as_str()? {
            "step" => (PointKind::Step, step_values(&line)),
            "epoch" => {
                let complete = line["complete"].as_bool().unwrap_or(true);
                (
                    if complete { PointKind::Epoch } else { PointKind::Validation },
                    epoch_values(&line),
                )
            }
            _ => return None,
        };
        Some(Self { kind, step, time, values })
    }
}

fn step_values(line: &Value) -> Vec<(String, f64)> {
    // A step that overflowed has no loss.
    let skipped = line["skipped"] == true;
    let loss = line.get("loss").filter(|_| !skipped).map(number);
    let optional = ["learning_rate", "gradient_norm", "loss_scale"];
    let optional = optional.into_iter().filter_map(|name| Some((name, line[name].as_f64()?)));
    let all = loss.map(|loss| ("loss", loss)).into_iter().chain(optional);
    all.map(|(name, value)| (name.to_string(), value)).collect()
}

fn epoch_values(line: &Value) -> Vec<(String, f64)> {
    let named = |group: &'static str| {
        let values = line[group].as_object().map(Map::iter).into_iter().flatten();
        values.map(move |(name, value)| (format!("{group}/{name}"), number(value)))
    };
    ["training", "validation"].into_iter().flat_map(named).collect()
}

/// JSON has no NaN: it is written as null.
fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_become_values_with_names() {
        let check = |line: &str, kind: PointKind, expected: &[(&str, f64)]| {
            let point = LoggedPoint::parse(line).expect("a line");
            assert_eq!(point.kind, kind);
            let values: Vec<(&str, f64)> =
                point.values.iter().map(|(name, value)| (name.as_str(), *value)).collect();
            assert_eq!(format!("{values:?}"), format!("{expected:?}"));
        };
        check(
            r#"{"kind":"step","steps":1,"loss":null,"learning_rate":0.1,"gradient_norm":null}"#,
            PointKind::Step,
            &[("loss", f64::NAN), ("learning_rate", 0.1)],
        );
        check(
            r#"{"kind":"step","steps":1,"loss":0,"skipped":true,"loss_scale":2}"#,
            PointKind::Step,
            &[("loss_scale", 2.0)],
        );
        check(
            r#"{"kind":"epoch","steps":9,"complete":true,"training":{"loss":1},"validation":{"accuracy":null}}"#,
            PointKind::Epoch,
            &[("training/loss", 1.0), ("validation/accuracy", f64::NAN)],
        );
        check(
            r#"{"kind":"epoch","steps":9,"complete":false,"training":{},"validation":null}"#,
            PointKind::Validation,
            &[],
        );
        for wrong in
            ["", "{", "[]", "{\"steps\":1}", "{\"kind\":\"step\"}", "{\"kind\":\"x\",\"steps\":1}"]
        {
            assert_eq!(LoggedPoint::parse(wrong), None, "{wrong}");
        }
    }
}
