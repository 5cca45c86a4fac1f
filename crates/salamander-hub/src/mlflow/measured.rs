//! The values of metrics of a run: a file of lines, of which only the last of each metric is kept in memory.

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Seek, SeekFrom, Write};
use std::path::Path;

use super::tracked::{Latest, MetricValue};
use crate::Error;

/// Adds values to the file of a run. What a crash left of a line is closed first, so that nothing is joined to it.
pub(super) fn append(path: &Path, values: &[(String, MetricValue)]) -> Result<(), Error> {
    if values.is_empty() {
        return Ok(());
    }
    let mut text = String::new();
    for (key, measured) in values {
        let value = super::tracked::number(measured.value);
        let line = serde_json::json!([key, value, measured.timestamp, measured.step]);
        text += &format!("{line}\n");
    }
    let open = || {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        let mut file = OpenOptions::new().create(true).read(true).append(true).open(path)?;
        let end = file.seek(SeekFrom::End(0))?;
        if end > 0 {
            let mut last = [0];
            std::os::unix::fs::FileExt::read_exact_at(&file, &mut last, end - 1)?;
            if last != *b"\n" {
                file.write_all(b"\n")?;
            }
        }
        let end = file.seek(SeekFrom::End(0))?;
        file.write_all(text.as_bytes()).inspect_err(|_| {
            let _ = file.set_len(end);
        })
    };
    open().map_err(Error::io(path))
}

/// All values of one metric, or of all, in the order in which they came; a torn line is none.
pub(super) fn read(path: &Path, mut each: impl FnMut(String, MetricValue)) -> Result<(), Error> {
    let file = match File::open(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        file => file.map_err(Error::io(path))?,
    };
    for line in BufReader::new(file).split(b'\n') {
        let line = line.map_err(Error::io(path))?;
        let Ok((key, value, timestamp, step)) =
            serde_json::from_slice::<(String, serde_json::Value, i64, i64)>(&line)
        else {
            continue;
        };
        each(key, MetricValue { value: value.as_f64().unwrap_or(f64::NAN), timestamp, step });
    }
    Ok(())
}

/// The last value of each metric.
pub(super) fn latest(path: &Path) -> Result<Latest, Error> {
    let mut latest = Latest::new();
    read(path, |key, measured| take(&mut latest, key, measured))?;
    Ok(latest)
}

/// Takes a value for the last one if it follows that.
pub(super) fn take(latest: &mut Latest, key: String, measured: MetricValue) {
    let last = latest.entry(key).or_insert_with(|| measured.clone());
    if measured.follows(last) {
        *last = measured;
    }
}

/// The values of one metric by time, then by size; what was sent twice is there once.
pub(super) fn history(path: &Path, wanted: &str) -> Result<Vec<MetricValue>, Error> {
    let mut all = Vec::new();
    read(path, |key, measured| {
        if key == wanted {
            all.push(measured);
        }
    })?;
    let time = |one: &MetricValue| (one.timestamp, one.step);
    all.sort_by(|one, other| {
        time(one).cmp(&time(other)).then_with(|| one.value.total_cmp(&other.value))
    });
    let same = |one: &mut MetricValue, other: &mut MetricValue| {
        (one.timestamp, one.step, one.value.to_bits())
            == (other.timestamp, other.step, other.value.to_bits())
    };
    all.dedup_by(same);
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(value: f64, timestamp: i64, step: i64) -> MetricValue {
        MetricValue { value, timestamp, step }
    }

    #[test]
    fn values_come_back_once_and_a_torn_line_is_left_out() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("run/metrics.jsonl");
        let loss = |value, time, step| ("loss".to_string(), measured(value, time, step));
        append(&path, &[loss(0.5, 10, 1), loss(f64::NAN, 11, 2)]).expect("written");
        let mut torn = OpenOptions::new().append(true).open(&path).expect("opened");
        torn.write_all(b"[\"loss\", 0.").expect("written");
        append(&path, &[loss(0.25, 12, 3), loss(0.25, 12, 3)]).expect("written");
        let history = history(&path, "loss").expect("read");
        assert_eq!(history.len(), 3);
        assert_eq!(history[0], measured(0.5, 10, 1));
        assert!(history[1].value.is_nan());
        assert_eq!(latest(&path).expect("read")["loss"], measured(0.25, 12, 3));
        assert!(latest(&folder.path().join("none")).expect("read").is_empty());
    }
}
