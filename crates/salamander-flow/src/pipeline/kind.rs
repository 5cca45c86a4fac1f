//! The steps that are commands of the program, in one table: their fields, how these become arguments, and what a
//! step leaves.

use serde_json::Value as Json;

/// A kind of step.
#[derive(Debug)]
pub struct StepKind {
    /// The field that tells it, and whose value is the command's first argument.
    pub name: &'static str,
    /// What it does, in a sentence.
    pub about: &'static str,
    /// The subcommand; nothing for a command of the user's own.
    pub words: &'static [&'static str],
    /// What its first argument is.
    pub main: FieldKind,
    /// Its other fields, which become options of the same name.
    pub fields: &'static [(&'static str, FieldKind)],
    /// The option that tells where to write, and the place below the step's folder; `{to}` in it stands for a field.
    pub(crate) out: Option<(&'static str, &'static str)>,
    /// Whether it ends with one line of JSON on standard output.
    pub(crate) json: bool,
    /// What it leaves; the first is meant where a step is named alone.
    pub outputs: &'static [(&'static str, Leaves)],
    /// Where numbers are that the model names, in that line of JSON.
    pub(crate) metrics: Option<&'static str>,
    /// Whether a run that was begun can be gone on with.
    pub(crate) resumes: bool,
}

/// What a field holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldKind {
    /// Text.
    Text,
    /// A number.
    Number,
    /// True or false: an option without a value.
    Flag,
    /// One text or several, given together: `0.8,0.2`.
    Texts,
    /// One file, folder, pattern or address, or several; their content counts.
    Files,
    /// A folder or file, whose content counts; or an address that files are below, which counts as text: nothing is at
    /// the address itself.
    Source,
    /// An experiment file; it counts, and so does the data that it names.
    Experiment,
    /// Changes to it: fields by path.
    Sets,
    /// A run or an exported model; or one of a run's checkpoints.
    Model,
    /// Which checkpoint: best, latest, its id or its folder.
    Checkpoint,
    /// The ending of the file that is written; no option.
    Ending(&'static str),
    /// A command line: a text for the shell, or a list of words without one.
    Shell,
}

/// What a step leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leaves {
    /// A file or folder below the step's folder; `{to}` stands for a field.
    File(&'static str),
    /// The first of these files that is there.
    FirstOf(&'static [&'static str]),
    /// A file or folder that a field of the JSON names.
    Named(&'static str),
    /// A file in the folder that a field of the JSON names.
    Within(&'static str, &'static str),
    /// A number of the JSON.
    Number(&'static str),
    /// Any value of the JSON.
    Value(&'static str),
}

/// All kinds.
pub const KINDS: &[StepKind] = &[
    StepKind {
        name: "fetch",
        about: "Get a public data set, verify it and convert it",
        words: &["data", "fetch"],
        main: FieldKind::Text,
        fields: &[("from", FieldKind::Source)],
        out: Some(("--to", "data")),
        json: false,
        outputs: &[
            ("data", Leaves::File("data")),
            ("train", Leaves::FirstOf(FETCHED_TRAINING)),
            ("test", Leaves::FirstOf(FETCHED_TEST)),
        ],
        metrics: None,
        resumes: false,
    },
    StepKind {
        name: "convert",
        about: "Write records in another format, in one file or in shards",
        words: &["data", "convert"],
        main: FieldKind::Files,
        fields: &[
            ("to", FieldKind::Ending("recordio")),
            ("format", FieldKind::Text),
            ("header", FieldKind::Text),
            ("separator", FieldKind::Text),
            ("shard_records", FieldKind::Number),
            ("shard_megabytes", FieldKind::Number),
        ],
        out: Some(("--out", "data/part.{to}")),
        json: false,
        outputs: &[("data", Leaves::File("data"))],
        metrics: None,
        resumes: false,
    },
    StepKind {
        name: "split",
        about: "Divide records into training, validation and test files",
        words: &["data", "split"],
        main: FieldKind::Files,
        fields: &[
            ("to", FieldKind::Text),
            ("shares", FieldKind::Texts),
            ("stratify", FieldKind::Text),
            ("oversample", FieldKind::Flag),
            ("seed", FieldKind::Number),
            ("format", FieldKind::Text),
            ("header", FieldKind::Text),
            ("separator", FieldKind::Text),
        ],
        out: Some(("--out", "data")),
        json: false,
        outputs: &[
            ("data", Leaves::File("data")),
            ("train", Leaves::File("data/train.{to}")),
            ("validation", Leaves::File("data/validation.{to}")),
            ("test", Leaves::File("data/test.{to}")),
        ],
        metrics: None,
        resumes: false,
    },
    StepKind {
        name: "flow",
        about: "Pre-process records by a function of the program, into shards; needs a program with flows",
        words: &["flow", "run"],
        main: FieldKind::Text,
        fields: &[
            ("in", FieldKind::Files),
            ("in_format", FieldKind::Text),
            ("reads", FieldKind::Files),
            ("set", FieldKind::Sets),
            ("to", FieldKind::Text),
            ("shards", FieldKind::Number),
            ("shard_records", FieldKind::Number),
            ("shard_megabytes", FieldKind::Number),
            ("shuffle", FieldKind::Number),
            ("split", FieldKind::Texts),
            ("stratify", FieldKind::Text),
            ("statistics", FieldKind::Flag),
            ("vocabulary", FieldKind::Texts),
            ("memory", FieldKind::Number),
            ("workers", FieldKind::Number),
        ],
        out: Some(("--out", "data")),
        json: true,
        outputs: &[
            ("train", Leaves::File("data/train")),
            ("validation", Leaves::File("data/validation")),
            ("test", Leaves::File("data/test")),
            ("data", Leaves::File("data")),
            ("statistics", Leaves::File("data/stats.json")),
            ("vocabulary", Leaves::File("data/vocabulary")),
            ("rows", Leaves::Number("/rows")),
            ("bad_rows", Leaves::Number("/bad_rows")),
            ("digest", Leaves::Value("/digest")),
        ],
        metrics: None,
        resumes: false,
    },
    StepKind {
        name: "train",
        about: "Train a model as an experiment file says; goes on with its last checkpoint after a kill",
        words: &["train"],
        main: FieldKind::Experiment,
        fields: TRAINING,
        out: Some(("--out", "runs")),
        json: true,
        outputs: &[
            ("run", Leaves::Named("/dir")),
            ("checkpoint", Leaves::Named("/checkpoint")),
            ("best_checkpoint", Leaves::Named("/best_checkpoint")),
            ("stats", Leaves::Within("/dir", "stats.csv")),
            ("steps", Leaves::Number("/steps")),
            ("records", Leaves::Number("/records")),
            ("epochs", Leaves::Number("/epochs")),
            ("workers", Leaves::Number("/workers")),
            ("parameters", Leaves::Number("/parameters")),
            ("weights_hash", Leaves::Value("/weights_hash")),
            ("timings", Leaves::Value("/timings")),
        ],
        metrics: Some("/metrics/validation"),
        resumes: true,
    },
    StepKind {
        name: "search",
        about: "Search hyperparameters as an experiment file says; goes on with its trials after a kill",
        words: &["train"],
        main: FieldKind::Experiment,
        fields: SEARCHING,
        out: Some(("--out", "runs")),
        json: true,
        outputs: &[
            ("best", Leaves::Named("/best/dir")),
            ("search", Leaves::Named("/dir")),
            ("metric", Leaves::Number("/best/metric")),
            ("hparams", Leaves::Value("/best/hparams")),
            ("trials", Leaves::Value("/trials")),
        ],
        metrics: None,
        resumes: true,
    },
    StepKind {
        name: "evaluate",
        about: "Measure a trained model on data that it did not learn from",
        words: &["evaluate"],
        main: FieldKind::Model,
        fields: &[
            ("data", FieldKind::Files),
            ("checkpoint", FieldKind::Checkpoint),
            ("device", FieldKind::Text),
            ("workers", FieldKind::Number),
        ],
        out: None,
        json: true,
        outputs: &[
            ("records", Leaves::Number("/records")),
            ("skipped", Leaves::Number("/skipped")),
            ("report", Leaves::Value("/report")),
        ],
        metrics: Some("/metrics"),
        resumes: false,
    },
    StepKind {
        name: "predict",
        about: "Write a trained model's outputs for every record",
        words: &["predict"],
        main: FieldKind::Model,
        fields: &[
            ("data", FieldKind::Files),
            ("to", FieldKind::Ending("parquet")),
            ("checkpoint", FieldKind::Checkpoint),
            ("device", FieldKind::Text),
            ("workers", FieldKind::Number),
        ],
        out: Some(("--out", "predictions.{to}")),
        json: false,
        outputs: &[("predictions", Leaves::File("predictions.{to}"))],
        metrics: None,
        resumes: false,
    },
    StepKind {
        name: "export",
        about: "Write a trained model's weights as safetensors, with what is needed to use them",
        words: &["export"],
        main: FieldKind::Model,
        fields: &[
            ("format", FieldKind::Text),
            ("checkpoint", FieldKind::Checkpoint),
            ("device", FieldKind::Text),
        ],
        out: Some(("--out", "model")),
        json: false,
        outputs: &[("model", Leaves::File("model"))],
        metrics: None,
        resumes: false,
    },
    StepKind {
        name: "register",
        about: "Make a trained model a version of a model of a hub, in the hub's folder of runs",
        words: &["model", "add"],
        main: FieldKind::Model,
        fields: &[
            ("model", FieldKind::Text),
            ("alias", FieldKind::Text),
            ("checkpoint", FieldKind::Checkpoint),
            ("runs", FieldKind::Text),
            ("hub", FieldKind::Text),
        ],
        out: None,
        json: true,
        outputs: &[
            ("version", Leaves::Number("/version")),
            ("trial", Leaves::Value("/run")),
            ("folder", Leaves::Value("/folder")),
        ],
        metrics: None,
        resumes: false,
    },
    StepKind {
        name: "serve_check",
        about: "Serve a trained model for a moment, and see whether it says what it predicts",
        words: &["serve-check"],
        main: FieldKind::Model,
        fields: &[
            ("data", FieldKind::Files),
            ("tolerance", FieldKind::Number),
            ("checkpoint", FieldKind::Checkpoint),
            ("device", FieldKind::Text),
        ],
        out: Some(("--out", "check")),
        json: true,
        outputs: &[
            ("answers", Leaves::File("check/answers.jsonl")),
            ("predictions", Leaves::File("check/predictions.jsonl")),
            ("records", Leaves::Number("/records")),
            ("largest_difference", Leaves::Number("/largest_difference")),
        ],
        metrics: None,
        resumes: false,
    },
    StepKind {
        name: "run",
        about: "Run a command: a text for the shell, or a list of words without one",
        words: &[],
        main: FieldKind::Shell,
        fields: &[],
        out: None,
        json: false,
        outputs: &[],
        metrics: None,
        resumes: false,
    },
];

/// Names of what data sets train on, as `data fetch` writes them: of digits, tables and reviews, passages, pictures.
const FETCHED_TRAINING: &[&str] =
    &["data/train.recordio", "data/train.csv", "data/train.jsonl", "data/data_batch_1.bin"];
/// What they are tried on.
const FETCHED_TEST: &[&str] =
    &["data/test.recordio", "data/valid.csv", "data/valid.jsonl", "data/test_batch.bin"];

const TRAINING: &[(&str, FieldKind)] = &[
    ("set", FieldKind::Sets),
    ("workers", FieldKind::Number),
    ("min_workers", FieldKind::Number),
    ("max_workers", FieldKind::Number),
    ("strategy", FieldKind::Text),
    ("ps", FieldKind::Number),
    ("device", FieldKind::Text),
    ("threads", FieldKind::Number),
];

const SEARCHING: &[(&str, FieldKind)] = &[
    ("set", FieldKind::Sets),
    ("slots", FieldKind::Number),
    ("strategy", FieldKind::Text),
    ("device", FieldKind::Text),
    ("threads", FieldKind::Number),
];

impl StepKind {
    /// A kind by the field that tells it.
    pub fn named(name: &str) -> Option<&'static StepKind> {
        KINDS.iter().find(|kind| kind.name == name)
    }

    /// Whether it is a command of the user's own.
    pub fn is_shell(&self) -> bool {
        self.main == FieldKind::Shell
    }

    /// What a field of this name holds.
    pub(crate) fn field(&self, name: &str) -> Option<FieldKind> {
        if name == self.name {
            return Some(self.main);
        }
        self.fields.iter().find(|(other, _)| *other == name).map(|(_, field)| *field)
    }

    /// A place below the step's folder, with fields in it.
    pub(crate) fn place(&self, pattern: &str, fields: &Json) -> String {
        let ending = fields.get("to").and_then(Json::as_str);
        let default = match self.field("to") {
            Some(FieldKind::Ending(default)) => default,
            _ => "recordio",
        };
        pattern.replace("{to}", ending.unwrap_or(default))
    }
}
