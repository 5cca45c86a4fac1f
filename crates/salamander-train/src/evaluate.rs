//! A model on data that it does not learn from: each record once, weighted alike.
//!
//! ```
//! use salamander::prelude::*;
//! use salamander::train::*;
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
//! # let file = folder.path().join("points.csv");
//! # std::fs::write(&file, "x,y,side\n0.9,0.1,0\n0.1,0.8,1\n0.8,0.3,0\n0.2,0.7,1\n")?;
//! # let device = device::select("cpu")?.autodiff();
//! # let points = open_data("points", &[file.display().to_string()], &Data::default())?;
//!
//! let net: Net = build(&Experiment::parse("hyperparameters: {}", &[])?, &device)?;
//! let found = evaluate(&net, &points, Over::batches_of(3), &mut || {})?;
//! assert_eq!(found.records, 4);
//! assert!(found.metrics.values()["loss"] > 0.0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::ops::Range;
use std::sync::Arc;

use salamander_core::experiment::{Experiment, OnBadRecord};
use salamander_core::ledger::Tally;
use salamander_core::order::{Order, Shuffle};
use salamander_core::plan::Plan;
use salamander_core::tree::{Share, TreeSum};
use salamander_data::Dataset;

use crate::Error;
use crate::caught::attempt_in_run;
use crate::example::{Assets, Example, ExampleContext};
use crate::loader::{Loader, LoaderOptions, steps};
use crate::trial::{BatchOf, Trial};

pub use salamander_core::report::{Evaluation, EvaluationPart};

/// How to go over the data.
#[derive(Clone, Copy, Debug)]
pub struct Over {
    /// Records at a time.
    pub batch: u64,
    /// What a record that cannot be decoded does.
    pub on_bad_record: OnBadRecord,
    /// Whether labels must be there.
    pub labels: bool,
    /// Threads that read and decode.
    pub threads: usize,
}

impl Over {
    /// So many records at a time, with their labels; one that cannot be decoded is an error.
    pub fn batches_of(batch: u64) -> Self {
        Self { batch, on_bad_record: OnBadRecord::Fail, labels: true, threads: 1 }
    }

    /// As an experiment goes over its data.
    pub fn new(experiment: &Experiment, labels: bool) -> Self {
        let data = &experiment.data;
        Self {
            batch: experiment.global_batch,
            on_bad_record: data.on_bad_record,
            labels,
            threads: data.threads(),
        }
    }
}

/// Called after every batch; its error ends the evaluation.
pub type AfterBatch<'a> = dyn FnMut() -> Result<(), Error> + 'a;

/// Some batches of a dataset, in the order of the files.
#[derive(Clone, Debug)]
pub struct BatchRange<'a> {
    /// The records.
    pub dataset: &'a Arc<Dataset>,
    /// How to go over them.
    pub over: Over,
    /// Which batches.
    pub batches: Range<u64>,
}

impl<'a> BatchRange<'a> {
    /// All batches.
    pub fn all(dataset: &'a Arc<Dataset>, over: Over) -> Self {
        Self { dataset, over, batches: 0..batches(dataset, over.batch) }
    }
}

/// Batches that an evaluation takes.
pub fn batches(dataset: &Dataset, batch: u64) -> u64 {
    dataset.len().div_ceil(batch.max(1))
}

/// Evaluates a model; `each` is called after every batch. Statistics and vocabularies of its examples are looked for in
/// the current folder.
pub fn evaluate<T: Trial>(
    model: &T,
    dataset: &Arc<Dataset>,
    over: Over,
    each: &mut dyn FnMut(),
) -> Result<Evaluation, Error> {
    let mut go_on = || {
        each();
        Ok(())
    };
    let assets = Assets::in_current_folder(T::Example::ASSETS)?;
    Ok(evaluate_part(model, &assets, BatchRange::all(dataset, over), &mut go_on)?.finish())
}

/// Evaluates a model on some of the batches; `each` is called after every one and may end it.
pub fn evaluate_part<T: Trial>(
    model: &T,
    assets: &Assets,
    part: BatchRange<'_>,
    each: &mut AfterBatch<'_>,
) -> Result<EvaluationPart, Error> {
    let leaves: Vec<u32> =
        (0..part.batches.end.saturating_sub(part.batches.start) as u32).collect();
    let found = evaluate_share(model, assets, part, Share::whole(&leaves), each)?;
    Ok(found.into_iter().next().unwrap_or_default())
}

/// Evaluates a model on a share of batches, the leaves of a tree: the sums of the nodes that the share has as a whole.
pub(crate) fn evaluate_share<T: Trial>(
    model: &T,
    assets: &Assets,
    part: BatchRange<'_>,
    share: Share<'_>,
    each: &mut AfterBatch<'_>,
) -> Result<Vec<EvaluationPart>, Error> {
    let model = model.valid();
    let device = model.devices().into_iter().next().unwrap_or_default();
    let leaves = share.leaves[share.own.clone()].to_vec();
    let mut sums = TreeSum::new(share);
    for (loaded, leaf) in in_file_order(&model, assets, part)?.zip(leaves) {
        let loaded = loaded?;
        let Tally { applied: records, skipped, .. } = loaded.tally;
        let mut found = EvaluationPart { records, skipped, ..EvaluationPart::default() };
        if let Some(batch) = &loaded.batch {
            let phase = || format!("evaluation, batch {}", loaded.name.step);
            (found.loss, found.metrics) = attempt_in_run(&model, &device, phase, || {
                let output = model.forward(batch);
                let loss = model.loss(&output, batch).into_data();
                let loss = loss.iter::<f32>().map(f64::from).sum::<f64>();
                (loss, model.metrics(&output, batch))
            })?;
        }
        sums.push(leaf, found, EvaluationPart::join);
        each()?;
    }
    Ok(sums.finish(EvaluationPart::join).into_iter().map(|(_, sum)| sum).collect())
}

/// Some batches of the records in the order of the files.
pub(crate) fn in_file_order<T: Trial>(
    model: &T,
    assets: &Assets,
    part: BatchRange<'_>,
) -> Result<Loader<BatchOf<T>>, Error> {
    let BatchRange { dataset, over, batches } = part;
    let records = dataset.len();
    let plan = Plan { records, batch: over.batch.max(1), aggregation: 1, slices: 1 };
    let order = Order::new(records, Shuffle::None, 0, 0);
    let jobs = steps(plan, order, 0, batches);
    let device = model.devices().into_iter().next().unwrap_or_default().without_autodiff();
    let Over { on_bad_record, labels, threads, .. } = over;
    let reading = ExampleContext { labels, assets: assets.clone() };
    let options = LoaderOptions { device, on_bad_record, reading, augment: None, threads };
    Loader::start::<T::Example>(Arc::clone(dataset), jobs, options)
}
