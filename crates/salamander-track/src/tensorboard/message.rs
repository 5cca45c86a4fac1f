//! The messages of event files, as far as they are written here. Numbers are those of TensorBoard's `event.proto`,
//! `summary.proto` and the hparams plugin's `plugin_data.proto`.

use std::collections::HashMap;

use prost::{Enumeration, Message, Oneof};

/// One entry of an event file.
#[derive(Clone, PartialEq, Message)]
pub struct EventRecord {
    /// Seconds since 1970.
    #[prost(double, tag = "1")]
    pub wall_time: f64,
    /// The step that it belongs to.
    #[prost(int64, tag = "2")]
    pub step: i64,
    /// What it tells.
    #[prost(oneof = "What", tags = "3, 5, 7")]
    pub what: Option<What>,
}

/// What an event tells.
#[derive(Clone, PartialEq, Oneof)]
pub enum What {
    /// The first event of a file: `brain.EventRecord:2`.
    #[prost(string, tag = "3")]
    FileVersion(String),
    /// Values.
    #[prost(message, tag = "5")]
    Summary(EventSummary),
    /// A beginning: readers forget what they have from this step on.
    #[prost(message, tag = "7")]
    SessionLog(SessionLog),
}

/// Where a session stands.
#[derive(Clone, PartialEq, Message)]
pub struct SessionLog {
    /// Its state.
    #[prost(enumeration = "SessionStatus", tag = "1")]
    pub status: i32,
}

/// The state of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enumeration)]
#[repr(i32)]
pub enum SessionStatus {
    /// Nothing is said.
    Unspecified = 0,
    /// It starts.
    Start = 1,
}

/// Values of one moment.
#[derive(Clone, PartialEq, Message)]
pub struct EventSummary {
    /// The values.
    #[prost(message, repeated, tag = "1")]
    pub value: Vec<SummaryValue>,
}

/// A value with its name.
#[derive(Clone, PartialEq, Message)]
pub struct SummaryValue {
    /// The name; what stands before a slash groups values.
    #[prost(string, tag = "1")]
    pub tag: String,
    /// Which plugin it is for, where the value does not tell.
    #[prost(message, optional, tag = "9")]
    pub metadata: Option<Metadata>,
    /// The value.
    #[prost(oneof = "Content", tags = "2, 4, 5, 8")]
    pub content: Option<Content>,
}

/// A value.
#[derive(Clone, PartialEq, Oneof)]
pub enum Content {
    /// A number.
    #[prost(float, tag = "2")]
    Number(f32),
    /// A picture.
    #[prost(message, tag = "4")]
    Image(SummaryImage),
    /// How values are spread.
    #[prost(message, tag = "5")]
    Histogram(SpreadOfValues),
    /// An array; here only the empty one that plugins want beside their own data.
    #[prost(message, tag = "8")]
    Tensor(Tensor),
}

/// A picture.
#[derive(Clone, PartialEq, Message)]
pub struct SummaryImage {
    /// Pixels.
    #[prost(int32, tag = "1")]
    pub height: i32,
    /// Pixels.
    #[prost(int32, tag = "2")]
    pub width: i32,
    /// 3 is red, green and blue.
    #[prost(int32, tag = "3")]
    pub colorspace: i32,
    /// A PNG file.
    #[prost(bytes = "vec", tag = "4")]
    pub encoded: Vec<u8>,
}

/// How values are spread: TensorBoard's `HistogramProto`.
#[derive(Clone, PartialEq, Message)]
pub struct SpreadOfValues {
    /// The smallest value.
    #[prost(double, tag = "1")]
    pub min: f64,
    /// The largest value.
    #[prost(double, tag = "2")]
    pub max: f64,
    /// How many there are.
    #[prost(double, tag = "3")]
    pub num: f64,
    /// Their sum.
    #[prost(double, tag = "4")]
    pub sum: f64,
    /// The sum of their squares.
    #[prost(double, tag = "5")]
    pub sum_squares: f64,
    /// Where each stretch ends.
    #[prost(double, repeated, tag = "6")]
    pub bucket_limit: Vec<f64>,
    /// Values in each stretch.
    #[prost(double, repeated, tag = "7")]
    pub bucket: Vec<f64>,
}

/// An array without elements.
#[derive(Clone, PartialEq, Message)]
pub struct Tensor {
    /// 1 is f32.
    #[prost(int32, tag = "1")]
    pub dtype: i32,
    /// Its shape.
    #[prost(message, optional, tag = "2")]
    pub shape: Option<TensorShape>,
}

/// A shape.
#[derive(Clone, PartialEq, Message)]
pub struct TensorShape {
    /// Each dimension.
    #[prost(message, repeated, tag = "2")]
    pub dim: Vec<Dimension>,
}

/// A dimension.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct Dimension {
    /// Its size.
    #[prost(int64, tag = "1")]
    pub size: i64,
}

/// Which plugin a value is for.
#[derive(Clone, PartialEq, Message)]
pub struct Metadata {
    /// The plugin and its own data.
    #[prost(message, optional, tag = "1")]
    pub plugin: Option<PluginData>,
}

/// A plugin's own data.
#[derive(Clone, PartialEq, Message)]
pub struct PluginData {
    /// The plugin.
    #[prost(string, tag = "1")]
    pub name: String,
    /// A message of the plugin's.
    #[prost(bytes = "vec", tag = "2")]
    pub content: Vec<u8>,
}

/// What the hparams plugin is told.
#[derive(Clone, PartialEq, Message)]
pub struct HparamsData {
    /// The format; 0.
    #[prost(int32, tag = "1")]
    pub version: i32,
    /// What it is about.
    #[prost(oneof = "HparamsWhat", tags = "3, 4")]
    pub what: Option<HparamsWhat>,
}

/// The beginning or the end of a session, which is a run.
#[derive(Clone, PartialEq, Oneof)]
pub enum HparamsWhat {
    /// It begins.
    #[prost(message, tag = "3")]
    Start(SessionStart),
    /// It has ended.
    #[prost(message, tag = "4")]
    End(SessionEnd),
}

/// A run begins.
#[derive(Clone, PartialEq, Message)]
pub struct SessionStart {
    /// Its hyperparameters.
    #[prost(map = "string, message", tag = "1")]
    pub hparams: HashMap<String, ProtoValue>,
    /// Runs of one group are shown as one.
    #[prost(string, tag = "4")]
    pub group_name: String,
    /// Seconds since 1970.
    #[prost(double, tag = "5")]
    pub start_time: f64,
}

/// A run has ended.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct SessionEnd {
    /// How.
    #[prost(enumeration = "HparamsStatus", tag = "1")]
    pub status: i32,
    /// Seconds since 1970.
    #[prost(double, tag = "2")]
    pub end_time: f64,
}

/// How a run ended, as the hparams plugin knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enumeration)]
#[repr(i32)]
pub enum HparamsStatus {
    /// Nothing is known.
    Unknown = 0,
    /// It is complete.
    Success = 1,
    /// It failed.
    Failure = 2,
    /// It goes on.
    Running = 3,
}

/// `google.protobuf.SummaryValue`, as far as a hyperparameter can be one.
#[derive(Clone, PartialEq, Message)]
pub struct ProtoValue {
    /// The value.
    #[prost(oneof = "ProtoKind", tags = "2, 3, 4")]
    pub kind: Option<ProtoKind>,
}

/// A hyperparameter's value.
#[derive(Clone, PartialEq, Oneof)]
pub enum ProtoKind {
    /// A number.
    #[prost(double, tag = "2")]
    Number(f64),
    /// A text.
    #[prost(string, tag = "3")]
    Text(String),
    /// Yes or no.
    #[prost(bool, tag = "4")]
    Bool(bool),
}
