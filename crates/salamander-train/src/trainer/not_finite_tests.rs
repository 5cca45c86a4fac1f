//! A loss can be a number where its gradient is none: it ends the run or is left out, as `on_nan` says, and reaches no
//! parameter either way, in one process or several.

use std::path::Path;

use burn::module::{Initializer, Module};
use burn::nn::{Linear, LinearConfig};
use burn::tensor::Tensor;
use salamander_core::optimizer::Optimizer;
use salamander_core::order::Shuffle;

use crate::Error;
use crate::checkpoint::Checkpoint;
use crate::context::Context;
use crate::model::entry;
use crate::table::Table;
use crate::testing::{EIGHT_POINTS, Points, TestPoint, setup, train_together};
use crate::trainer::Outcome;
use crate::trial::{BuildError, Trial};

/// Its loss has a finite value always. At points beyond 100 the gradient is infinite, since a root is taken where it is
/// steepest; at points of 3e38 it is finite, and two of them are too large together.
#[derive(Module, Debug)]
struct Steep {
    out: Linear,
}

impl Trial for Steep {
    const NAME: &'static str = "steep";
    type Hparams = ();
    type Example = TestPoint;
    type Output = Tensor<2>;

    fn build(cx: &Context<()>) -> Result<Self, BuildError> {
        let layer = LinearConfig::new(2, 2).with_bias(false);
        Ok(Self { out: layer.with_initializer(Initializer::Zeros).init(&cx.device) })
    }

    fn forward(&self, batch: &Points) -> Tensor<2> {
        self.out.forward(batch.at.clone())
    }

    fn loss(&self, output: &Tensor<2>, batch: &Points) -> Tensor<1> {
        let records = batch.at.dims()[0];
        let plain = output.clone().sum_dim(1).reshape([records]);
        let x = batch.at.clone().slice([0..records, 0..1]).reshape([records]);
        let steep = x.clone().greater_elem(100.0).float() * x.lower_elem(1e30).float();
        let nothing = plain.clone() - plain.clone().detach();
        let root = (nothing * steep.clone() + (steep.neg() + 1.0)).sqrt();
        plain + root
    }

    fn optimizer(_: &()) -> impl Into<Optimizer> {
        Optimizer::sgd(0.1)
    }
}

/// Points, of which these are others.
fn points(places: &[usize], x: &str) -> String {
    let mut lines: Vec<String> = EIGHT_POINTS.lines().map(str::to_string).collect();
    places.iter().for_each(|place| lines[place + 1] = format!("{x},0,0"));
    lines.join("\n") + "\n"
}

fn rest(on_nan: &str) -> String {
    format!(
        "entrypoint: steep\nhyperparameters: {{global_batch_size: 4}}\nmicro_batches: 4\nworkers: 4\n\
         strategy: allreduce\nreproducibility: {{experiment_seed: 1}}\non_nan: {on_nan}\n\
         max_length: {{epochs: 2}}\n"
    )
}

/// What became of all members; one is trained without an exchange.
fn trained(folder: &Path, size: usize, csv: &str, on_nan: &str) -> Vec<Result<Outcome, Error>> {
    let setup = |rank: usize| {
        let own = folder.join(format!("{size}-{on_nan}-{rank}"));
        std::fs::create_dir_all(&own).expect("made");
        let mut setup = setup(&own, csv, &rest(on_nan));
        setup.experiment.settings_mut().data.shuffle = Shuffle::None;
        setup
    };
    match size {
        1 => vec![entry::<Steep>().train(setup(0), None, Vec::new())],
        size => train_together::<Steep>(size, setup, |_, _| {}, None),
    }
}

/// With on_nan: fail all members end with this; with skip so many records are left out of each epoch, all parameters
/// stay finite, and any number of members has the same bits.
fn check(csv: &str, failed: &str, left_out: [u64; 2]) {
    let folder = tempfile::tempdir().expect("a folder");
    let mut hashes = Vec::new();
    for size in [1, 2, 3] {
        let ends = trained(folder.path(), size, csv, "fail");
        let said = |end: &Result<Outcome, Error>| match end {
            Ok(outcome) => format!("{} steps", outcome.progress.steps),
            Err(error) => error.to_string(),
        };
        let said: Vec<String> = ends.iter().map(said).collect();
        assert!(said.iter().any(|end| end.starts_with(failed)), "{size} members: {said:?}");
        assert!(said.iter().all(|end| !end.ends_with("steps")), "{size} members: {said:?}");

        let ends = trained(folder.path(), size, csv, "skip");
        let outcomes: Vec<Outcome> = ends.into_iter().map(|end| end.expect("it goes on")).collect();
        for line in outcomes[0].progress.ledger.lines() {
            let counts = [line.skipped, line.overflowed];
            assert_eq!((counts, line.missing), (left_out, 0), "{size} members");
            assert_eq!(line.applied + left_out.iter().sum::<u64>(), 8, "{size} members");
        }
        let path = outcomes[0].checkpoint.as_ref().expect("a checkpoint");
        let Checkpoint { manifest, state, .. } = crate::checkpoint::read(path).expect("intact");
        let values = state.model.values().flat_map(|data| data.iter::<f32>().collect::<Vec<_>>());
        let values: Vec<f32> = values.collect();
        assert!(values.iter().all(|value| value.is_finite()), "{size} members: {values:?}");
        assert!(values.iter().any(|value| *value != 0.0), "it learned from the others");
        hashes.push(manifest.weights_hash);
    }
    assert!(hashes[0].is_some() && hashes.iter().all(|hash| *hash == hashes[0]), "{hashes:?}");
}

#[test]
fn an_infinite_gradient_with_a_finite_loss_is_covered_by_on_nan() {
    let failed =
        "a gradient is infinite or not a number, though the loss is one, at epoch 0, step 1";
    check(&points(&[5], "200"), failed, [1, 0]);
}

#[test]
fn finite_gradients_whose_sum_is_infinite_are_covered_by_on_nan() {
    // Alone one of them moves its weights by what they cannot have been meant to, but by a number.
    let failed = "the sum of all gradients is infinite, though none of them is, at epoch 0, step 1";
    check(&points(&[4, 7], "3e38"), failed, [0, 4]);
}

/// A row that all points share, whose gradient is the sum of their places.
#[derive(Module, Debug)]
struct SharedRow {
    row: Table,
}

impl Trial for SharedRow {
    const NAME: &'static str = "shared_row";
    type Hparams = ();
    type Example = TestPoint;
    type Output = Tensor<2>;

    fn build(cx: &Context<()>) -> Result<Self, BuildError> {
        Ok(Self { row: cx.table("row", 1).zeros().build() })
    }

    fn forward(&self, batch: &Points) -> Tensor<2> {
        self.row.lookup_one(&batch.side.zeros_like())
    }

    fn loss(&self, output: &Tensor<2>, batch: &Points) -> Tensor<1> {
        let records = batch.at.dims()[0];
        let x = batch.at.clone().slice([0..records, 0..1]);
        (output.clone() * x).reshape([records])
    }

    fn optimizer(_: &()) -> impl Into<Optimizer> {
        Optimizer::sgd(0.1)
    }
}

/// Servers add the slices of a step up, and nobody looks at the sum before rows move.
#[test]
fn rows_whose_sum_would_be_infinite_are_covered_by_on_nan() {
    let folder = tempfile::tempdir().expect("a folder");
    let train = |on_nan: &str| {
        let own = folder.path().join(on_nan);
        std::fs::create_dir(&own).expect("made");
        let rest = rest(on_nan).replace("steep", "shared_row").replace("allreduce", "local");
        let csv = points(&[4, 7], "3e38");
        let mut setup = setup(&own, &csv, &rest.replace("workers: 4", "workers: 1"));
        setup.experiment.settings_mut().data.shuffle = Shuffle::None;
        entry::<SharedRow>().train(setup, None, Vec::new())
    };
    let failed = train("fail").expect_err("two of them are too much").to_string();
    let expected = "a row's gradient is no number or too large, though the loss is a number, at \
                    epoch 0, step 1";
    assert!(failed.starts_with(expected), "{failed}");

    let outcome = train("skip").expect("it goes on");
    for line in outcome.progress.ledger.lines() {
        assert_eq!((line.applied, line.skipped, line.missing), (6, 2, 0));
    }
    let path = outcome.checkpoint.as_ref().expect("a checkpoint");
    let files = crate::checkpoint::read(path).expect("intact").table_files();
    let mut values = Vec::new();
    let each = |_: u64, row: &[f32]| values.extend_from_slice(row);
    salamander_ps::checkpoint::for_each_row(&files, "row", each).expect("read");
    assert!(values.iter().all(|value| value.is_finite() && *value != 0.0), "{values:?}");
    assert_eq!(values.len(), 1);
}
