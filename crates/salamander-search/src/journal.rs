//! What a search has heard, one line per event: the same lines give the same decisions.

use serde_json::{Value as Json, json};

use crate::machine::{Ending, Event, TrialId};

impl Event {
    /// As a line of a journal.
    pub fn to_line(&self) -> String {
        let event = match self {
            // Bits, so that what is not a number, or nearly none, comes back as it was.
            Event::Report { trial, length, metric } => json!({"report": {
                "trial": trial, "length": length, "metric": metric, "bits": metric.to_bits()}}),
            Event::Ended { trial, how } => json!({"ended": {"trial": trial, "how": how}}),
            Event::OutOfTime => json!("out_of_time"),
        };
        event.to_string()
    }

    /// From a line of a journal; `None`: the line is torn or not one of ours.
    pub fn from_line(line: &str) -> Option<Self> {
        let value: Json = serde_json::from_str(line).ok()?;
        let trial = |event: &Json| Some(TrialId(event.get("trial")?.as_u64()?));
        if value == "out_of_time" {
            return Some(Event::OutOfTime);
        }
        if let Some(event) = value.get("ended") {
            let how: Ending = serde_json::from_value(event.get("how")?.clone()).ok()?;
            return Some(Event::Ended { trial: trial(event)?, how });
        }
        let event = value.get("report")?;
        let metric = f64::from_bits(event.get("bits")?.as_u64()?);
        let length = event.get("length")?.as_u64()?;
        Some(Event::Report { trial: trial(event)?, length, metric })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_back_as_they_were() {
        let trial = TrialId(3);
        for event in [
            Event::Report { trial, length: 7, metric: 0.1 + 0.2 },
            Event::Report { trial, length: 7, metric: f64::NEG_INFINITY },
            Event::Ended { trial, how: Ending::Invalid },
            Event::OutOfTime,
        ] {
            assert_eq!(Event::from_line(&event.to_line()), Some(event));
        }
        let nan = Event::Report { trial, length: 1, metric: f64::NAN }.to_line();
        let Some(Event::Report { metric, .. }) = Event::from_line(&nan) else { panic!("{nan}") };
        assert!(metric.is_nan());
        assert_eq!(Event::from_line("{\"report\": {\"trial\""), None);
    }
}
