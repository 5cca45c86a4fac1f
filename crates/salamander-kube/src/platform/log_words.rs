//! The end of a pod's log in words that people read. Pods log JSON, for machines; whoever looks at a job's status does
//! not want to see it.

use serde_json::Value;

/// Lines of a log that a crash quotes.
const QUOTED: usize = 5;

/// The end of a log, on one line: what the program said itself, if it said anything, else the last lines it logged.
pub fn last_lines(text: &str) -> String {
    let lines: Vec<String> = text.lines().filter_map(in_words).collect();
    let own = |line: &&String| line.starts_with("error: ");
    if let Some(error) = lines.iter().rev().find(own) {
        return error.trim_start_matches("error: ").to_string();
    }
    lines[lines.len().saturating_sub(QUOTED)..].join(" | ")
}

/// The last thing that a log says.
pub fn last_words(text: &str) -> Option<String> {
    Some(last_lines(text)).filter(|words| !words.is_empty())
}

/// A line of a log: the message of one in JSON, with its fields. A tail may begin in the middle of one, which says
/// nothing.
fn in_words(line: &str) -> Option<String> {
    let line = line.trim();
    let Ok(Value::Object(logged)) = serde_json::from_str::<Value>(line) else {
        let torn = line.is_empty() || (line.ends_with('}') && line.contains("\":"));
        return (!torn).then(|| line.to_string());
    };
    let fields = logged.get("fields").and_then(Value::as_object).unwrap_or(&logged);
    let word = |value: &Value| value.as_str().map_or(value.to_string(), str::to_string);
    let message = fields.get("message").map(word).unwrap_or_default();
    let named = ["error", "reason"].iter().filter_map(|name| Some((*name, fields.get(*name)?)));
    let named: Vec<String> =
        named.map(|(name, value)| format!("{name}: {}", word(value))).collect();
    let words = [message, named.join(", ")].into_iter().filter(|part| !part.is_empty());
    Some(words.collect::<Vec<_>>().join(": ")).filter(|words| !words.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logs_for_machines_become_words_for_people() {
        let log = "0Z\",\"level\":\"INFO\",\"fields\":{\"message\":\"torn\"}}\n\
            {\"job\":\"j\",\"level\":\"INFO\",\"fields\":{\"message\":\"starts\",\"pid\":1}}\n\
            {\"job\":\"j\",\"fields\":{\"message\":\"the master refuses\",\"reason\":\"no room\"}}\n";
        assert_eq!(last_lines(log), "starts | the master refuses: reason: no room");
        let failed = format!("{log}error: experiment /x: no such file\n");
        assert_eq!(last_lines(&failed), "experiment /x: no such file");
        assert_eq!(last_lines("1\n2\n3\n\n4\n5\n  6\n"), "2 | 3 | 4 | 5 | 6");
        assert_eq!(last_words("\n"), None);
    }
}
