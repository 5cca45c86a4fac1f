//! A trained model that is asked: records that come one by one, from many at once, and what it says to them.
//!
//! Records are decoded and put side by side by the example's own functions, as in training, so that a model that is
//! served sees what it has learned from.
//!
//! ```
//! use salamander::data::{Row, Value};
//! use salamander::prelude::*;
//! use salamander::train::*;
//! use salamander_train::model::{Trained, Weights};
//! # #[derive(Example)]
//! # struct Point { #[input(columns = ["x", "y"])] at: [f32; 2], #[label] side: u8 }
//! # #[derive(Module, Debug)]
//! # struct Net { out: Linear }
//! # impl Trial for Net {
//! #     const NAME: &str = "net";
//! #     type Hparams = ();
//! #     type Example = Point;
//! #     type Output = Tensor<2>;
//! #     fn build(cx: &Context<()>) -> Result<Self, BuildError> {
//! #         Ok(Self { out: LinearConfig::new(2, 2).init(&cx.device) })
//! #     }
//! #     fn forward(&self, batch: &PointBatch) -> Tensor<2> { self.out.forward(batch.at.clone()) }
//! #     fn loss(&self, output: &Tensor<2>, batch: &PointBatch) -> Tensor<1> {
//! #         cross_entropy(output, &batch.side)
//! #     }
//! #     fn optimizer(_: &()) -> impl Into<Optimizer> { Optimizer::sgd(1.0) }
//! # }
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("model.safetensors");
//! # let device = device::select("cpu")?;
//! # let experiment = Experiment::parse("hyperparameters: {}", &[])?;
//! # weights::save(&build::<Net>(&experiment, &device.clone().autodiff())?, &path)?;
//!
//! let weights = Weights::File(&path);
//! let trained = Trained { experiment: &experiment, weights, device: &device, table_memory: None };
//! let net = models![Net].find(Some("net"))?.load(trained)?;
//!
//! // On any thread: records are decoded as they come. They need no label.
//! let decoder = net.decoder();
//! let mut examples = decoder.empty();
//! for (x, y) in [("0.9", "0.1"), ("0.2", "0.7"), ("0.5", "0.4")] {
//!     let cells = [("x", x), ("y", y)];
//!     let row = Row::new(cells.map(|(name, text)| (name.into(), Value::Text(text))).into());
//!     decoder.push(&row, &mut examples)?;
//! }
//! // On the model's own: two of them at once, at most.
//! let answers = net.infer(vec![examples], 2)?;
//! assert_eq!((answers.records, answers.values.width), (3, 2));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::any::Any;
use std::marker::PhantomData;

use salamander_data::Row;
use salamander_kernels::ops::{Int8Layers, use_int8_layers};

use crate::caught::attempt;
use crate::example::{Assets, DecodeError, Example, ExampleContext, InputSpec};
use crate::gradients::host;
use crate::trial::{Output, Trial};
use crate::{Error, threads};

/// Whether linear layers compute in eight bits on this thread from now on: smaller numbers, a little less exact.
/// Measure both: `salamander evaluate --int8` tells what it costs.
pub fn use_int8(on: bool) {
    salamander_kernels::ops::use_int8(on);
}

/// How the threads that ask a model compute: the one that warms it and the one that owns it do the same.
#[derive(Clone, Debug)]
pub struct AskingThread {
    threads: usize,
    /// Where linear layers compute in eight bits: their weights, which become whole numbers once.
    int8: Option<Int8Layers>,
}

impl AskingThread {
    /// With so many threads, the asking one among them, and linear layers in eight bits or not.
    pub fn new(threads: usize, int8: bool) -> Self {
        Self { threads, int8: int8.then(Int8Layers::default) }
    }

    /// The calling thread is one from now on.
    pub fn begin(&self) {
        threads::join(Some(self.threads));
        use_int8_layers(self.int8.clone());
    }

    /// The calling thread is one from now on, without others.
    pub fn begin_alone(&self) {
        Self { threads: 1, ..self.clone() }.begin();
    }
}

/// Decodes records, on any thread.
pub trait RecordDecoder: Send + Sync {
    /// What a record has.
    fn inputs(&self) -> &'static [InputSpec];
    /// No examples yet.
    fn empty(&self) -> Examples;
    /// Decodes a record and adds it; nothing is added where it cannot be.
    fn push(&self, row: &Row<'_>, to: &mut Examples) -> Result<(), DecodeError>;
}

/// Decoded records of a model, without their type.
pub struct Examples {
    /// A `Vec` of the model's examples.
    examples: Box<dyn Any + Send>,
    records: usize,
    tokens: usize,
}

impl Examples {
    /// How many.
    pub fn records(&self) -> usize {
        self.records
    }

    /// How many tokens their texts have together; see [`Example::tokens`].
    pub fn tokens(&self) -> usize {
        self.tokens
    }
}

/// What a model says to some records.
#[derive(Clone, Debug, PartialEq)]
pub struct Answers {
    /// How many.
    pub records: usize,
    /// Whether a record's values are scores of classes, or one value: see [`Output::CLASSES`].
    pub classes: bool,
    /// What `salamander predict` writes.
    pub values: Rows,
    /// What `forward` gave, where that can be told.
    pub raw: Option<Rows>,
}

/// One row of values per record.
#[derive(Clone, Debug, PartialEq)]
pub struct Rows {
    /// Values of a record.
    pub width: usize,
    /// Row by row.
    pub values: Vec<f32>,
}

/// The decoder of a type of examples.
pub(crate) struct ExampleDecoder<E> {
    reading: ExampleContext,
    kind: PhantomData<fn() -> E>,
}

impl<E: Example> ExampleDecoder<E> {
    /// Labels may be absent.
    pub(crate) fn new(assets: Assets) -> Self {
        Self { reading: ExampleContext { labels: false, assets }, kind: PhantomData }
    }
}

impl<E: Example> RecordDecoder for ExampleDecoder<E> {
    fn inputs(&self) -> &'static [InputSpec] {
        E::INPUTS
    }

    fn empty(&self) -> Examples {
        Examples { examples: Box::new(Vec::<E>::new()), records: 0, tokens: 0 }
    }

    fn push(&self, row: &Row<'_>, to: &mut Examples) -> Result<(), DecodeError> {
        let example = E::decode(row, &self.reading)?;
        let Some(examples) = to.examples.downcast_mut::<Vec<E>>() else {
            return Err(DecodeError::new("", "the examples are of another model"));
        };
        to.tokens += example.tokens();
        to.records += 1;
        examples.push(example);
        Ok(())
    }
}

/// Examples that could not be asked about, given back with the reason: others that came with a bad one are sound.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct NotAnswered {
    /// Why.
    pub error: Error,
    /// As they were given.
    pub examples: Vec<Examples>,
}

impl std::fmt::Debug for Examples {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Examples").field("records", &self.records).finish_non_exhaustive()
    }
}

/// What a model that does not learn says to examples, at most so many of them at once.
pub(crate) fn infer<T: Trial>(
    model: &T,
    assets: &Assets,
    examples: Vec<Examples>,
    most: usize,
) -> Result<Answers, Box<NotAnswered>> {
    let mut all: Vec<T::Example> = Vec::new();
    let mut counts = Vec::with_capacity(examples.len());
    for some in examples {
        match some.examples.downcast::<Vec<T::Example>>() {
            Ok(some) => {
                counts.push(some.len());
                all.extend(*some);
            }
            Err(_) => {
                let error = Error::model::<T>("these examples are of another model");
                return Err(NotAnswered { error, examples: Vec::new() }.into());
            }
        }
    }
    let mut answers: Option<Answers> = None;
    for some in all.chunks(most.max(1)) {
        match forward(model, assets, some) {
            Ok(more) => match &mut answers {
                None => answers = Some(more),
                Some(answers) => answers.append(more),
            },
            Err(error) => {
                return Err(NotAnswered { error, examples: cut(all, &counts) }.into());
            }
        }
    }
    answers.ok_or_else(|| {
        let error = Error::model::<T>("it was asked about nothing");
        NotAnswered { error, examples: Vec::new() }.into()
    })
}

impl Answers {
    fn append(&mut self, more: Answers) {
        self.records += more.records;
        self.values.values.extend(more.values.values);
        if let (Some(raw), Some(more)) = (&mut self.raw, more.raw) {
            raw.values.extend(more.values);
        }
    }
}

/// Examples as they were before they were put together.
fn cut<E: Example>(mut all: Vec<E>, counts: &[usize]) -> Vec<Examples> {
    let own = |count: &usize| {
        let rest = all.split_off((*count).min(all.len()));
        let own = std::mem::replace(&mut all, rest);
        let tokens = own.iter().map(Example::tokens).sum();
        Examples { records: own.len(), tokens, examples: Box::new(own) }
    };
    counts.iter().map(own).collect()
}

fn forward<T: Trial>(
    model: &T,
    assets: &Assets,
    examples: &[T::Example],
) -> Result<Answers, Error> {
    let device = model.devices().into_iter().next().unwrap_or_default().without_autodiff();
    let reading = ExampleContext { labels: false, assets: assets.clone() };
    attempt::<T, _>("forward", &[], || {
        let batch = T::Example::collate(examples, &reading, &device)
            .map_err(|error| Error::Invalid(error.to_string()))?;
        let output = model.forward(&batch);
        let raw = output.raw_rows().map(|rows| Rows { width: rows.dims()[1], values: host(rows) });
        let values = model.predict(output);
        let ([rows, width], records) = (values.dims(), examples.len());
        if records != rows {
            let reason = format!("forward gave {rows} rows for {records} records");
            return Err(Error::model::<T>(reason));
        }
        let values = Rows { width, values: host(values) };
        Ok(Answers { records, classes: T::Output::CLASSES, values, raw })
    })?
}
