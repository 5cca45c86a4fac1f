//! Lines of a metrics file, as points of curves. Pure: text in, points out.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Value as Json, json};

use crate::store::points::{NewPoints, StoredPoint};
use crate::store::runs::{MetricsProgress, Validation};

/// Fields of a step that are no curves.
const NO_CURVES: [&str; 4] = ["steps", "epoch", "batches", "records"];

/// What some lines say.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Parsed {
    pub(crate) points: NewPoints,
    pub(crate) validations: Vec<Validation>,
    /// After the last line; none: no line says it.
    pub(crate) progress: Option<MetricsProgress>,
    /// Lines.
    pub(crate) lines: i64,
}

/// Reads whole lines; what is none of a metrics file is left out, as after a crash.
pub(crate) fn parse(text: &[u8]) -> Parsed {
    let mut parsed = Parsed::default();
    for line in text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        parsed.lines += 1;
        if let Ok(line) = serde_json::from_slice::<Line<'_>>(line) {
            parsed.take(line);
        }
    }
    parsed
}

impl Parsed {
    fn take(&mut self, line: Line<'_>) {
        let Some(steps) = line.steps else { return };
        match line.kind.as_ref() {
            "step" => {
                for (name, value) in &line.numbers {
                    self.add(name, steps, *value);
                }
            }
            "epoch" => self.take_epoch(&line, steps),
            kind => {
                for (name, value) in &line.numbers {
                    self.add(&format!("{kind}/{name}"), steps, *value);
                }
            }
        }
        self.progress = Some(MetricsProgress { steps, epoch: line.epoch });
    }

    fn take_epoch(&mut self, line: &Line<'_>, steps: i64) {
        let maps = [("training", &line.training), ("validation", &line.validation)];
        for (name, values) in maps {
            for (metric, value) in values.iter().flatten() {
                self.add(&format!("{name}/{metric}"), steps, value.unwrap_or(f64::NAN));
            }
        }
        let seconds = line.numbers.iter().find(|(name, _)| name == "seconds").map(|(_, s)| *s);
        let json = |values: &BTreeMap<String, Option<f64>>| json!(values);
        self.validations.push(Validation {
            steps,
            epoch: line.epoch,
            complete: line.complete,
            best: line.best,
            seconds,
            training: line.training.as_ref().map_or(Json::Null, json),
            validation: line.validation.as_ref().map(json),
        });
    }

    fn add(&mut self, name: &str, step: i64, value: f64) {
        let point = StoredPoint { step, value };
        match self.points.get_mut(name) {
            Some(points) => points.push(point),
            None => drop(self.points.insert(name.to_string(), vec![point])),
        }
    }
}

#[derive(Default)]
struct Line<'a> {
    kind: Cow<'a, str>,
    steps: Option<i64>,
    epoch: i64,
    complete: bool,
    best: bool,
    numbers: Vec<(Cow<'a, str>, f64)>,
    training: Option<BTreeMap<String, Option<f64>>>,
    validation: Option<BTreeMap<String, Option<f64>>>,
}

#[derive(serde::Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'de> Deserialize<'de> for Line<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(LineVisitor)
    }
}

struct LineVisitor;

impl<'de> Visitor<'de> for LineVisitor {
    type Value = Line<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a line of a metrics file")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Line<'de>, A::Error> {
        let mut line = Line::default();
        while let Some(Text(key)) = map.next_key()? {
            if key == "kind" {
                line.kind = map.next_value::<Text<'de>>()?.0;
                continue;
            }
            match (key.as_ref(), map.next_value()?) {
                ("steps", LineField::Number(steps)) => line.steps = Some(steps as i64),
                ("epoch", LineField::Number(epoch)) => line.epoch = epoch as i64,
                ("complete", LineField::Truth(complete)) => line.complete = complete,
                ("best", LineField::Truth(best)) => line.best = best,
                ("training", LineField::Numbers(values)) => line.training = Some(values),
                ("validation", LineField::Numbers(values)) => line.validation = Some(values),
                // JSON has no NaN; other fields are null where they mean nothing.
                ("loss", LineField::Null) => line.numbers.push((key, f64::NAN)),
                (name, LineField::Number(value)) if !NO_CURVES.contains(&name) => {
                    line.numbers.push((key, value));
                }
                _ => {}
            }
        }
        Ok(line)
    }
}

enum LineField {
    Number(f64),
    Truth(bool),
    Null,
    Numbers(BTreeMap<String, Option<f64>>),
    Other,
}

impl<'de> Deserialize<'de> for LineField {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(FieldVisitor)
    }
}

struct FieldVisitor;

impl<'de> Visitor<'de> for FieldVisitor {
    type Value = LineField;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_f64<E>(self, value: f64) -> Result<LineField, E> {
        Ok(LineField::Number(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<LineField, E> {
        Ok(LineField::Number(value as f64))
    }

    fn visit_i64<E>(self, value: i64) -> Result<LineField, E> {
        Ok(LineField::Number(value as f64))
    }

    fn visit_bool<E>(self, value: bool) -> Result<LineField, E> {
        Ok(LineField::Truth(value))
    }

    fn visit_unit<E>(self) -> Result<LineField, E> {
        Ok(LineField::Null)
    }

    fn visit_str<E>(self, _: &str) -> Result<LineField, E> {
        Ok(LineField::Other)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<LineField, A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(LineField::Other)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<LineField, A::Error> {
        let mut values = BTreeMap::new();
        while let Some(key) = map.next_key::<String>()? {
            match map.next_value()? {
                LineField::Number(value) => drop(values.insert(key, Some(value))),
                LineField::Null => drop(values.insert(key, None)),
                _ => {}
            }
        }
        Ok(LineField::Numbers(values))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn steps_and_epochs_become_curves() {
        let parsed = parse(
            b"{\"kind\":\"step\",\"steps\":1,\"epoch\":0,\"batches\":1,\"records\":64,\"loss\":0.5,\
              \"learning_rate\":0.1,\"gradient_norm\":null,\"skipped\":false,\"loss_scale\":null}\n\
              not a line\n\
              {\"kind\":\"step\",\"steps\":2,\"epoch\":1,\"loss\":null}\n\
              {\"kind\":\"epoch\",\"steps\":2,\"epoch\":1,\"complete\":true,\"training\":{\"a\":1.0},\
              \"validation\":{\"a\":null,\"b\":2},\"seconds\":3.5,\"best\":true}\n\
              {\"kind\":\"system\",\"steps\":2,\"memory\":7}\n",
        );
        let names: Vec<&str> = parsed.points.keys().map(String::as_str).collect();
        let expected = [
            "learning_rate",
            "loss",
            "system/memory",
            "training/a",
            "validation/a",
            "validation/b",
        ];
        assert_eq!(names, expected);
        assert_eq!(parsed.points["loss"][0], StoredPoint { step: 1, value: 0.5 });
        assert!(parsed.points["loss"][1].value.is_nan());
        assert!(parsed.points["validation/a"][0].value.is_nan());
        assert_eq!(parsed.lines, 5);
        assert_eq!(parsed.progress, Some(MetricsProgress { steps: 2, epoch: 0 }));
        let validation = &parsed.validations[0];
        assert!(validation.best && validation.complete);
        assert_eq!(validation.seconds, Some(3.5));
        assert_eq!(validation.validation, Some(json!({"a": null, "b": 2.0})));
    }

    proptest! {
        #[test]
        fn any_bytes_are_lines_or_left_out(bytes: Vec<u8>) {
            let _ = parse(&bytes);
        }
    }
}
