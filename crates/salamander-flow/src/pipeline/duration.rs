//! Times as people write them: `90s`, `30m`, `2h`, `1d`, or plain seconds.

use std::time::Duration;

use salamander_core::yaml::{Error, Node, Value};

/// The longest wait between two attempts.
pub(crate) const LONGEST_BACKOFF: Duration = Duration::from_secs(300);

/// Reads a time; not below zero.
pub(crate) fn read(node: &Node) -> Result<Duration, Error> {
    let seconds = match &node.value {
        Value::Int(seconds) => Some(*seconds as f64),
        Value::Float(seconds) => Some(*seconds),
        Value::Text(text) => seconds(text),
        _ => None,
    };
    seconds
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .ok_or_else(|| Error::at(&node.place, "write a time, as in 90s, 30m, 2h or 1d"))
}

fn seconds(text: &str) -> Option<f64> {
    let units = [("ms", 0.001), ("s", 1.0), ("m", 60.0), ("h", 3600.0), ("d", 86400.0)];
    let (number, unit) = units
        .iter()
        .find_map(|(unit, seconds)| Some((text.strip_suffix(unit)?, seconds)))
        .filter(|(number, _)| number.ends_with(|c: char| c.is_ascii_digit() || c == '.'))?;
    Some(number.trim().parse::<f64>().ok()? * unit)
}

/// How long to wait before an attempt, the second being number 1: twice as long each time.
pub(crate) fn backoff(base: Duration, retry: u32) -> Duration {
    let factor = 1u32.checked_shl(retry.saturating_sub(1)).unwrap_or(u32::MAX);
    base.saturating_mul(factor).min(LONGEST_BACKOFF.max(base))
}

#[cfg(test)]
mod tests {
    use salamander_core::yaml::parse;

    use super::*;

    #[test]
    fn times_have_units() {
        let check = |text: &str, expected: Option<u64>| {
            let found = read(&parse(text).expect("a value")).ok();
            assert_eq!(found, expected.map(Duration::from_millis), "{text}");
        };
        check("90", Some(90_000));
        check("0.5", Some(500));
        check("90s", Some(90_000));
        check("250ms", Some(250));
        check("1.5h", Some(5_400_000));
        check("1d", Some(86_400_000));
        for wrong in ["-1", "-1s", "h", "two hours", "[1]", "1x", "1e400", "inf s", "nans"] {
            check(wrong, None);
        }
    }

    #[test]
    fn waits_double_up_to_a_limit() {
        let base = Duration::from_secs(10);
        let waits: Vec<u64> = (1..8).map(|retry| backoff(base, retry).as_secs()).collect();
        assert_eq!(waits, [10, 20, 40, 80, 160, 300, 300]);
        assert_eq!(backoff(base, 99), LONGEST_BACKOFF);
        assert_eq!(backoff(Duration::from_secs(999), 3).as_secs(), 999);
        assert_eq!(backoff(Duration::ZERO, 5), Duration::ZERO);
    }
}
