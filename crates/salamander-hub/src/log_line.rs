//! What a line of a log says of itself: when it was written, and how grave it is.

use serde::{Deserialize, Serialize};

/// How grave a line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// For those who look for something.
    Trace,
    /// For developers.
    Debug,
    /// What happens.
    Info,
    /// What should not happen often.
    Warn,
    /// What went wrong.
    Error,
}

/// The time that a line begins with, in milliseconds since 1970.
pub(crate) fn time(line: &str) -> Option<i64> {
    let text = match line.strip_prefix('{') {
        Some(_) => field(line, "\"timestamp\":\"")?,
        None => line.split(' ').next()?,
    };
    // Nearly all lines of a command's output have none: no parser is asked.
    if !text.as_bytes().first()?.is_ascii_digit() || text.len() < 20 {
        return None;
    }
    text.parse::<jiff::Timestamp>().ok().map(|time| time.as_millisecond())
}

/// A time as people write it, `2026-01-31T12:00:00Z`, in milliseconds since 1970.
pub fn parse_time(text: &str) -> Option<i64> {
    text.parse::<jiff::Timestamp>().ok().map(|time| time.as_millisecond())
}

/// The level that a line names.
pub(crate) fn level(line: &str) -> Option<Level> {
    let word = match line.strip_prefix('{') {
        Some(_) => field(line, "\"level\":\"")?,
        None if line.starts_with("error: ") => return Some(Level::Error),
        None if line.starts_with("warning: ") => return Some(Level::Warn),
        None => line.split_ascii_whitespace().nth(1)?,
    };
    match word {
        "TRACE" => Some(Level::Trace),
        "DEBUG" => Some(Level::Debug),
        "INFO" => Some(Level::Info),
        "WARN" => Some(Level::Warn),
        "ERROR" => Some(Level::Error),
        _ => None,
    }
}

fn field<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let from = line.find(name)? + name.len();
    line[from..].split('"').next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_both_formats_say_when_and_how_grave() {
        let check = |line: &str, at: Option<i64>, grave: Option<Level>| {
            assert_eq!((time(line), level(line)), (at, grave), "{line}");
        };
        check("1970-01-01T00:00:01.5Z  INFO starts", Some(1500), Some(Level::Info));
        check(
            "{\"timestamp\":\"1970-01-01T00:00:02Z\",\"level\":\"WARN\"}",
            Some(2000),
            Some(Level::Warn),
        );
        check("error: no data", None, Some(Level::Error));
        check("epoch 1: 22 %", None, None);
        check("", None, None);
        check("{", None, None);
    }
}
