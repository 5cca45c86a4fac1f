//! Experiment files, with the last line as a `--set` argument when it has the form of one.
#![no_main]

use libfuzzer_sys::fuzz_target;
use salamander_core::experiment::Experiment;

fuzz_target!(|text: &str| {
    let sets: Vec<String> = match text.trim_end().rsplit_once('\n') {
        Some((_, last)) if last.contains('=') => vec![last.to_owned()],
        _ => Vec::new(),
    };
    let _ = Experiment::parse(text, &[]);
    let rest = text.rsplit_once('\n').map_or(text, |(rest, _)| rest);
    let _ = Experiment::parse(rest, &sets);
});
