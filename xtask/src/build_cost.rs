//! What README's first command costs on a machine that has built nothing yet: CPU time, time, size, and which crates.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, ensure};
use serde_json::Value;

/// The budget that `--check` enforces.
const CPU_SECONDS: f64 = 1_000.0;
const MEGABYTES: f64 = 100.0;
/// Linux counts the time of processes in hundredths of a second, whatever its timer does.
const TICKS_PER_SECOND: f64 = 100.0;
/// How many crates are listed.
const LISTED: usize = 10;

/// Builds the default program in a new target folder, and prints what it cost; with `check` fails beyond the budget.
pub(crate) fn run(root: &Path, check: bool) -> anyhow::Result<()> {
    let target = tempfile::tempdir().context("cannot make a folder")?;
    let folder = target.path().display().to_string();
    let (begun, before) = (Instant::now(), cpu_seconds_of_children()?);
    let env = [("CARGO_TARGET_DIR", folder.as_str()), ("CARGO_INCREMENTAL", "0")];
    crate::cargo(root, &["build", "--release", "--timings", "--quiet"], &env)?;
    let cpu = cpu_seconds_of_children()? - before;
    let program = target.path().join("release/salamander");
    let bytes = fs::metadata(&program).with_context(|| program.display().to_string())?.len();
    let megabytes = bytes as f64 / 1e6;
    println!("CPU      {cpu:.0} s (budget {CPU_SECONDS})");
    println!("time     {:.0} s", begun.elapsed().as_secs_f64());
    println!("program  {megabytes:.1} MB (budget {MEGABYTES})");
    let report = target.path().join("cargo-timings/cargo-timing.html");
    let report = fs::read_to_string(&report).with_context(|| report.display().to_string())?;
    println!("\nthe {LISTED} crates that took longest, build scripts included:");
    for (name, seconds) in most_expensive(&report)?.into_iter().take(LISTED) {
        println!("{seconds:>7.1} s  {name}");
    }
    ensure!(!check || cpu <= CPU_SECONDS, "{cpu:.0} CPU-seconds: the budget is {CPU_SECONDS}");
    ensure!(!check || megabytes <= MEGABYTES, "{megabytes:.1} MB: the budget is {MEGABYTES}");
    Ok(())
}

/// User and system time of all children that were waited for, theirs included.
fn cpu_seconds_of_children() -> anyhow::Result<f64> {
    let stat = fs::read_to_string("/proc/self/stat").context("CPU time is read on Linux only")?;
    parse_stat(&stat).context("/proc/self/stat: not as proc(5) describes it")
}

fn parse_stat(stat: &str) -> Option<f64> {
    // The name of the program may have spaces and brackets in it; what follows it has none.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    // Fields 16 and 17 of proc(5), which counts from 1 and has two before these.
    let ticks = |field: usize| fields.get(field - 3)?.parse::<f64>().ok();
    Some((ticks(16)? + ticks(17)?) / TICKS_PER_SECOND)
}

/// The crates of cargo's report with the time that rustc was at them, longest first.
fn most_expensive(report: &str) -> anyhow::Result<Vec<(String, f64)>> {
    let data = report.split_once("UNIT_DATA = ").context("cargo's report has no UNIT_DATA")?.1;
    // A stream of values ends with the first, whatever script follows.
    let mut values = serde_json::Deserializer::from_str(data).into_iter::<Value>();
    let units = values.next().context("UNIT_DATA is empty")?.context("UNIT_DATA is not JSON")?;
    let mut crates: BTreeMap<String, f64> = BTreeMap::new();
    for unit in units.as_array().context("UNIT_DATA is no list")? {
        let of = |name: &str| unit[name].as_str().unwrap_or_default();
        let name = format!("{} {}", of("name"), of("version"));
        *crates.entry(name).or_default() += unit["duration"].as_f64().unwrap_or(0.0);
    }
    let mut crates: Vec<(String, f64)> = crates.into_iter().collect();
    crates.sort_by(|left, right| right.1.total_cmp(&left.1));
    Ok(crates)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_of_children_is_read_behind_any_name() {
        let fields: Vec<String> = (3..=20).map(|field| field.to_string()).collect();
        let stat = format!("1 (a) b) {}", fields.join(" "));
        assert_eq!(parse_stat(&stat), Some(0.33));
        assert_eq!(parse_stat("1 (a) S 1"), None);
        assert!(cpu_seconds_of_children().unwrap() >= 0.0);
    }

    #[test]
    fn crates_are_sorted_by_the_time_of_all_their_units() {
        let report = r#"<script>
            const UNIT_DATA = [
                {"name": "a", "version": "1.0.0", "target": " build script", "duration": 2.0},
                {"name": "b", "version": "1.0.0", "target": "", "duration": 3.0},
                {"name": "a", "version": "1.0.0", "target": "", "duration": 2.0}
            ];
            const CONCURRENCY_DATA = [];"#;
        let expected = [("a 1.0.0".to_owned(), 4.0), ("b 1.0.0".to_owned(), 3.0)];
        assert_eq!(most_expensive(report).unwrap(), expected);
        assert!(most_expensive("<html>").is_err());
    }
}
