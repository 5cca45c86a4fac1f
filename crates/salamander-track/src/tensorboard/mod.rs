//! TensorBoard's event files, in the run's folder: `tensorboard --logdir runs` shows every run under its id.
//!
//! A run that goes on from a checkpoint repeats steps. The points that were given up must be gone for whoever reads
//! the files later, and for a TensorBoard that is looking right now. So another file is written beside the one before
//! it with all points that count, begins with the mark that makes readers forget what they have, and takes its place:
//! the one before becomes empty, and is removed later, since TensorBoard never leaves a file that has gone.

mod histograms;
pub mod message;
pub mod picture;
pub mod record;

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use prost::Message;
use salamander_core::layout::RunLayout;
use serde_json::Value as Json;

use self::histograms::{HistogramFollower, NewHistograms};
use self::message::{
    Content, Dimension, EventRecord, EventSummary, HparamsData, HparamsStatus, HparamsWhat,
    Metadata, PluginData, ProtoKind, ProtoValue, SessionEnd, SessionLog, SessionStart,
    SessionStatus, SummaryImage, SummaryValue, Tensor, TensorShape, What,
};
use self::picture::RgbPicture;
use crate::about::{About, Confusion, Error, TrackedEnd, seconds};
use crate::follow::{Follower, Found};
use crate::point::LoggedPoint;

/// What TensorBoard recognises its files by, and what we recognise ours by.
const PREFIX: &str = "events.out.tfevents.";
const SUFFIX: &str = ".salamander";
/// A file that is being written; its name must not look like an event file's.
const BESIDE: &str = ".tensorboard-beside";
/// After this time every reader has left an empty file.
const LEFT: Duration = Duration::from_secs(3600);

/// Writes a run's event files.
pub struct EventFiles {
    run: RunLayout,
    about: About,
    follower: Follower,
    histograms: HistogramFollower,
    file: Option<EventFile>,
    last_step: u64,
    /// Whether the end is written.
    ended: bool,
}

struct EventFile {
    out: BufWriter<File>,
    /// The name that it will have; none once it has it.
    pending: Option<PathBuf>,
}

impl EventFiles {
    /// Of a run's folder.
    pub fn new(run: &RunLayout, about: About) -> Self {
        let follower = Follower::new(run.metrics());
        let histograms = HistogramFollower::new(run.histograms());
        let run = run.clone();
        Self { run, about, follower, histograms, file: None, last_step: 0, ended: false }
    }

    /// Writes what is new. Once the run is `over`, also how it ended.
    pub fn advance(&mut self, over: bool) -> Result<(), Error> {
        loop {
            let path = self.follower.path().to_path_buf();
            let found = self.follower.poll().map_err(Error::file(&path))?;
            if found.is_empty() {
                break;
            }
            for found in found {
                match found {
                    Found::FromTheBeginning => self.begin()?,
                    Found::Point(point) => self.point(&point)?,
                }
            }
        }
        if self.file.is_some() {
            let path = self.run.histograms();
            match self.histograms.poll().map_err(Error::file(&path))? {
                NewHistograms::More(lines) => {
                    for line in lines {
                        self.summary(line.time, line.steps, line.values())?;
                    }
                }
                NewHistograms::Again => {
                    self.follower = Follower::new(self.run.metrics());
                    return self.advance(over);
                }
            }
        }
        if over && !self.ended && self.file.is_some() {
            self.end()?;
            self.ended = true;
        }
        self.publish()
    }

    /// Another file, with all points from the beginning.
    fn begin(&mut self) -> Result<(), Error> {
        let beside = self.run.file(BESIDE);
        let now = seconds(SystemTime::now());
        // Readers go from one file to the next by their names.
        let newest = self.own_files().iter().filter_map(|(secs, _)| *secs).max();
        let secs = newest.map_or(now as u64, |newest| (newest + 1).max(now as u64));
        let name = format!("{PREFIX}{secs:010}.{}{SUFFIX}", std::process::id());
        let out = BufWriter::new(File::create(&beside).map_err(Error::file(&beside))?);
        self.file = Some(EventFile { out, pending: Some(self.run.file(&name)) });
        self.last_step = 0;
        self.histograms.again();
        self.ended = false;
        let version = What::FileVersion("brain.Event:2".to_string());
        self.write(EventRecord { wall_time: now, step: 0, what: Some(version) })?;
        let start = SessionLog { status: SessionStatus::Start as i32 };
        self.write(EventRecord { wall_time: now, step: 0, what: Some(What::SessionLog(start)) })?;
        let hparams = self.about.hyperparameters.iter();
        let start = SessionStart {
            hparams: hparams.map(|(name, value)| (name.clone(), hparam(value))).collect(),
            group_name: self.about.id.clone(),
            start_time: self.about.begun,
        };
        let value = hparams_value("_hparams_/session_start_info", HparamsWhat::Start(start));
        self.summary(self.about.begun, 0, vec![value])
    }

    fn point(&mut self, point: &LoggedPoint) -> Result<(), Error> {
        let value = |(name, value): &(String, f64)| SummaryValue {
            tag: name.clone(),
            metadata: None,
            content: Some(Content::Number(*value as f32)),
        };
        self.last_step = self.last_step.max(point.step);
        let values = point.values.iter().map(value).collect();
        self.summary(point.time.unwrap_or(self.about.begun), point.step, values)
    }

    /// The confusion matrix of the last validation, and how the run ended.
    fn end(&mut self) -> Result<(), Error> {
        let Some(ended) = TrackedEnd::read(&self.run) else { return Ok(()) };
        if let Some(confusion) = Confusion::read(&self.run) {
            let picture = RgbPicture::of_confusion(&confusion);
            let encoded = picture.to_png().map_err(Error::file(&self.run.report()))?;
            let (height, width) = (picture.height as i32, picture.width as i32);
            let image = SummaryImage { height, width, colorspace: 3, encoded };
            let content = Some(Content::Image(image));
            let value =
                SummaryValue { tag: "validation/confusion".to_string(), metadata: None, content };
            self.summary(ended.time, self.last_step, vec![value])?;
        }
        let status = match ended.state.as_str() {
            "completed" => HparamsStatus::Success,
            "failed" => HparamsStatus::Failure,
            _ => HparamsStatus::Unknown,
        };
        let end = SessionEnd { status: status as i32, end_time: ended.time };
        let value = hparams_value("_hparams_/session_end_info", HparamsWhat::End(end));
        self.summary(ended.time, self.last_step, vec![value])
    }

    fn summary(
        &mut self,
        wall_time: f64,
        step: u64,
        value: Vec<SummaryValue>,
    ) -> Result<(), Error> {
        let what = Some(What::Summary(EventSummary { value }));
        self.write(EventRecord { wall_time, step: step as i64, what })
    }

    fn write(&mut self, event: EventRecord) -> Result<(), Error> {
        let Some(file) = &mut self.file else { return Ok(()) };
        let written = record::write(&mut file.out, &event.encode_to_vec());
        written.map_err(Error::file(self.run.folder()))
    }

    /// Lets readers see what was written; a new file takes the place of those before it.
    fn publish(&mut self) -> Result<(), Error> {
        let Some(file) = &mut self.file else { return Ok(()) };
        file.out.flush().map_err(Error::file(self.run.folder()))?;
        let Some(path) = file.pending.take() else { return Ok(()) };
        let before = self.own_files();
        fs::rename(self.run.file(BESIDE), &path).map_err(Error::file(&path))?;
        for (_, old) in before {
            give_up(&old).map_err(Error::file(&old))?;
        }
        Ok(())
    }

    /// The event files of this run that were written here, with the time in their names.
    fn own_files(&self) -> Vec<(Option<u64>, PathBuf)> {
        let entries = fs::read_dir(self.run.folder()).into_iter().flatten().flatten();
        let own = entries.filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let rest = name.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?;
            let secs = rest.split('.').next().and_then(|secs| secs.parse().ok());
            Some((secs, entry.path()))
        });
        own.collect()
    }
}

/// Empties a file; one that has been empty for long is removed.
fn give_up(path: &Path) -> io::Result<()> {
    let file = fs::metadata(path)?;
    let age = file.modified()?.elapsed().unwrap_or_default();
    if file.len() == 0 {
        return if age > LEFT { fs::remove_file(path) } else { Ok(()) };
    }
    File::options().write(true).open(path)?.set_len(0)
}

fn hparam(value: &Json) -> ProtoValue {
    let kind = match value {
        Json::Bool(yes) => ProtoKind::Bool(*yes),
        Json::String(text) => ProtoKind::Text(text.clone()),
        other => match other.as_f64() {
            Some(number) => ProtoKind::Number(number),
            None => ProtoKind::Text(other.to_string()),
        },
    };
    ProtoValue { kind: Some(kind) }
}

fn hparams_value(tag: &str, what: HparamsWhat) -> SummaryValue {
    let data = HparamsData { version: 0, what: Some(what) };
    let plugin = PluginData { name: "hparams".to_string(), content: data.encode_to_vec() };
    // The plugin reads the metadata only, and wants an array without elements beside it.
    let shape = Some(TensorShape { dim: vec![Dimension { size: 0 }] });
    SummaryValue {
        tag: tag.to_string(),
        metadata: Some(Metadata { plugin: Some(plugin) }),
        content: Some(Content::Tensor(Tensor { dtype: 1, shape })),
    }
}
