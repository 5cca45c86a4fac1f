//! Histograms that a run has kept, read as they come.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Seek, SeekFrom};
use std::path::PathBuf;

use serde::Deserialize;

use super::message::{Content, SpreadOfValues, SummaryValue};

/// A line: the histograms of a step.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct HistogramLine {
    pub(super) steps: u64,
    pub(super) time: f64,
    #[serde(default)]
    weights: BTreeMap<String, KeptHistogram>,
    #[serde(default)]
    gradients: BTreeMap<String, KeptHistogram>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct KeptHistogram {
    count: f64,
    min: f64,
    max: f64,
    sum: f64,
    squares: f64,
    counts: Vec<f64>,
}

impl HistogramLine {
    /// As values of TensorBoard: `weights/PATH` and `gradients/PATH`.
    pub(super) fn values(&self) -> Vec<SummaryValue> {
        let named = |kind: &'static str, all: &BTreeMap<String, KeptHistogram>| {
            let known = all.iter().filter(|(_, kept)| kept.count > 0.0 && !kept.counts.is_empty());
            let value = |(path, kept): (&String, &KeptHistogram)| SummaryValue {
                tag: format!("{kind}/{path}"),
                metadata: None,
                content: Some(Content::Histogram(kept.spread())),
            };
            known.map(value).collect::<Vec<_>>()
        };
        [named("weights", &self.weights), named("gradients", &self.gradients)].concat()
    }
}

impl KeptHistogram {
    fn spread(&self) -> SpreadOfValues {
        let width = (self.max - self.min) / self.counts.len() as f64;
        // All the same value: its stretch must still have a width.
        let width = if width > 0.0 { width } else { self.max.abs().max(1.0) * 1e-6 };
        let ends = (1..=self.counts.len()).map(|at| self.min + width * at as f64);
        SpreadOfValues {
            min: self.min,
            max: self.max,
            num: self.count,
            sum: self.sum,
            sum_squares: self.squares,
            bucket_limit: ends.collect(),
            bucket: self.counts.clone(),
        }
    }
}

/// The file of histograms and how far it was read.
#[derive(Debug)]
pub(super) struct HistogramFollower {
    path: PathBuf,
    offset: u64,
    /// The last step of what was read.
    newest: u64,
}

/// Histograms that are new.
#[derive(Debug)]
pub(super) enum NewHistograms {
    /// They follow those before.
    More(Vec<HistogramLine>),
    /// Some belong to steps that others were read for: a run went back to a checkpoint. All are to be read again.
    Again,
}

impl HistogramFollower {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path, offset: 0, newest: 0 }
    }

    /// All lines are new again.
    pub(super) fn again(&mut self) {
        (self.offset, self.newest) = (0, 0);
    }

    /// Lines that are new, by their steps. A run that went back to a checkpoint has done some of them again: the last
    /// of them counts.
    pub(super) fn poll(&mut self) -> io::Result<NewHistograms> {
        let mut file = match File::open(&self.path) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Ok(NewHistograms::More(Vec::new()));
            }
            file => file?,
        };
        file.seek(SeekFrom::Start(self.offset))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        self.offset += whole as u64;
        let lines = bytes[..whole].split(|byte| *byte == b'\n');
        let mut found: BTreeMap<u64, HistogramLine> = BTreeMap::new();
        for line in lines.filter_map(|line| serde_json::from_slice::<HistogramLine>(line).ok()) {
            // What was done before a step that comes again is given up.
            found.split_off(&line.steps);
            found.insert(line.steps, line);
        }
        let first = found.first_key_value().map(|(steps, _)| *steps);
        if first.is_some_and(|first| first <= self.newest) {
            self.again();
            return Ok(NewHistograms::Again);
        }
        self.newest = found.last_key_value().map_or(self.newest, |(steps, _)| *steps);
        Ok(NewHistograms::More(found.into_values().collect()))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn line(steps: u64, most: f64) -> String {
        let weights =
            format!("{{\"w\":{{\"count\":2,\"min\":0,\"max\":{most},\"counts\":[1,1]}}}}");
        format!("{{\"steps\":{steps},\"time\":1.5,\"weights\":{weights}}}\n")
    }

    fn steps(found: NewHistograms) -> Option<Vec<u64>> {
        match found {
            NewHistograms::More(lines) => Some(lines.iter().map(|line| line.steps).collect()),
            NewHistograms::Again => None,
        }
    }

    #[test]
    fn steps_that_were_done_again_count_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("histograms.jsonl");
        let mut follower = HistogramFollower::new(path.clone());
        assert_eq!(steps(follower.poll().expect("absent")), Some(vec![]));
        let mut text = [line(10, 1.0), line(20, 1.0), line(30, 1.0), line(20, 4.0)].concat();
        fs::write(&path, format!("{text}{{\"steps\":30")).expect("written");
        let NewHistograms::More(found) = follower.poll().expect("read") else { panic!("new ones") };
        assert_eq!(found.iter().map(|line| line.steps).collect::<Vec<_>>(), [10, 20]);
        let values = found[1].values();
        let Some(Content::Histogram(spread)) = &values[0].content else { panic!("a histogram") };
        assert_eq!(values[0].tag, "weights/w");
        assert_eq!(spread.bucket_limit, [2.0, 4.0]);
        assert_eq!(steps(follower.poll().expect("read")), Some(vec![]), "the line is not whole");
        text += &line(30, 1.0);
        fs::write(&path, &text).expect("written");
        assert_eq!(steps(follower.poll().expect("read")), Some(vec![30]));
        text += &line(20, 9.0);
        fs::write(&path, &text).expect("written");
        assert_eq!(steps(follower.poll().expect("read")), None, "it went back");
        assert_eq!(steps(follower.poll().expect("read")), Some(vec![10, 20]));
    }
}
