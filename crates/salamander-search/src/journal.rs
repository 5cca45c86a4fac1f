//! What a search has heard, one line per event: the same lines give the same decisions.

use serde_json::{Value as Json, json};

use crate::machine::{Ending, SearchEvent, TrialId};

/// An event and when it was heard.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HeardEvent {
    /// What was heard.
    pub event: SearchEvent,
    /// Seconds that the search had taken by then, pauses left out; nothing is decided by it.
    pub seconds: f64,
}

impl HeardEvent {
    /// As a line of a journal.
    pub fn to_line(&self) -> String {
        // Written out: a search may hear tens of thousands of these in a second.
        let event = match self.event {
            // Bits, so that what is not a number, or nearly none, comes back as it was.
            SearchEvent::Report { trial, length, metric } => format!(
                "\"report\":{{\"trial\":{trial},\"length\":{length},\"metric\":{},\"bits\":{}}}",
                Json::from(metric),
                metric.to_bits()
            ),
            SearchEvent::Ended { trial, how } => {
                format!("\"ended\":{}", json!({"trial": trial, "how": how}))
            }
            SearchEvent::OutOfTime => "\"out_of_time\":{}".to_string(),
        };
        format!("{{{event},\"seconds\":{}}}", Json::from(self.seconds))
    }

    /// From a line of a journal; `None`: the line is torn or not one of ours.
    pub fn from_line(line: &str) -> Option<Self> {
        let value: Json = serde_json::from_str(line).ok()?;
        let seconds = value.get("seconds")?.as_f64()?;
        Some(Self { event: event(&value)?, seconds })
    }
}

fn event(value: &Json) -> Option<SearchEvent> {
    let trial = |event: &Json| Some(TrialId(event.get("trial")?.as_u64()?));
    if value.get("out_of_time").is_some() {
        return Some(SearchEvent::OutOfTime);
    }
    if let Some(event) = value.get("ended") {
        let how: Ending = serde_json::from_value(event.get("how")?.clone()).ok()?;
        return Some(SearchEvent::Ended { trial: trial(event)?, how });
    }
    let event = value.get("report")?;
    let metric = f64::from_bits(event.get("bits")?.as_u64()?);
    let length = event.get("length")?.as_u64()?;
    Some(SearchEvent::Report { trial: trial(event)?, length, metric })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lines_come_back_as_they_were() {
        let trial = TrialId(3);
        for event in [
            SearchEvent::Report { trial, length: 7, metric: 0.1 + 0.2 },
            SearchEvent::Report { trial, length: 7, metric: f64::NEG_INFINITY },
            SearchEvent::Ended { trial, how: Ending::Invalid },
            SearchEvent::OutOfTime,
        ] {
            let heard = HeardEvent { event, seconds: 1.25 };
            assert_eq!(HeardEvent::from_line(&heard.to_line()), Some(heard));
        }
        let event = SearchEvent::Report { trial, length: 7, metric: 0.5 };
        let line = r#"{"report":{"trial":3,"length":7,"metric":0.5,"bits":4602678819172646912},"seconds":2.0}"#;
        assert_eq!(HeardEvent { event, seconds: 2.0 }.to_line(), line);
        let event = SearchEvent::Ended { trial, how: Ending::Failed };
        let line = r#"{"ended":{"trial":3,"how":"failed"},"seconds":2.0}"#;
        assert_eq!(HeardEvent { event, seconds: 2.0 }.to_line(), line);
        let event = SearchEvent::Report { trial, length: 1, metric: f64::NAN };
        let nan = HeardEvent { event, seconds: 0.0 }.to_line();
        let Some(SearchEvent::Report { metric, .. }) = HeardEvent::from_line(&nan).map(|h| h.event)
        else {
            panic!("{nan}")
        };
        assert!(metric.is_nan());
    }

    proptest! {
        #[test]
        fn no_line_is_too_strange_to_be_refused(line in ".*") {
            let _ = HeardEvent::from_line(&line);
        }

        #[test]
        fn a_torn_line_is_never_taken_for_another(bits in any::<u64>(), cut in 0usize..100) {
            let metric = f64::from_bits(bits);
            let event = SearchEvent::Report { trial: TrialId(9), length: 77, metric };
            let line = HeardEvent { event, seconds: 12.5 }.to_line();
            prop_assert_eq!(HeardEvent::from_line(&line[..cut.min(line.len() - 1)]), None);
        }
    }
}
