//! A model is tried on two records before anything starts: what every worker would stumble over is told at once, and is
//! not retried as a crash. It takes place on the host, and draws nothing that training draws: parameters and each
//! micro-batch are seeded anew.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use burn::tensor::Device;
use salamander_core::course;
use salamander_core::experiment::{Experiment, OnBadRecord, Strategy};
use salamander_core::hparams;
use salamander_core::metrics::Metrics;
use salamander_core::order::{Order, Shuffle};
use salamander_core::plan::{MicroBatch, Slice};
use salamander_core::report::EvaluationPart;
use salamander_data::{Dataset, Format, OpenOptions, files, open_indexed};

use crate::Error;
use crate::asynchronous::{check_running, only_pass};
use crate::caught::attempt;
use crate::context::BatchContext;
use crate::example::{AssetFiles, Assets, Batch, Example, ExampleContext, absent_inputs};
use crate::loader::{LoadJob, LoaderOptions, load};
use crate::model::{build_in_context, seed, with_pretrained};
use crate::params::{self, ParamInfo};
use crate::tables::{LocalRows, Opened, Tables};
use crate::trainer::StreamedData;
use crate::trial::{BatchOf, Trial};

/// Records that are tried: of one alone, a loss that is a mean would have as many values as it should.
const TRIED: u64 = 2;
/// Records that are looked at where bad ones may be skipped.
const LOOK_AT: u64 = 32;

/// Tries a model on the first records; indexes of the files that were opened are kept in `folder`. Returns what people
/// should know although nothing is wrong.
pub(crate) fn preflight<T: Trial>(
    experiment: &Experiment,
    files: &AssetFiles,
    folder: Option<&Path>,
) -> Result<Vec<String>, Error> {
    let data = &experiment.data;
    if data.training.0.is_empty() {
        return Err(Error::Invalid("data.training: name the files to train on".to_string()));
    }
    let batch = experiment.global_batch;
    let slice = batch.div_ceil(u64::from(experiment.slices()));
    let training = First::open("data.training", &data.training.0, experiment, slice, folder)?;
    let validation = match data.validation.0.as_slice() {
        [] => None,
        paths => Some(First::open("data.validation", paths, experiment, batch, folder)?),
    };
    let mut notes = absent_inputs(T::Example::INPUTS, &training.dataset)?;
    if let Some(validation) = &validation {
        notes.extend(absent_inputs(T::Example::INPUTS, &validation.dataset)?);
    }
    let assets = Assets::load(T::Example::ASSETS, files.clone())?;
    let tried = Tried::<T>::build(experiment, &assets)?;
    tried.train(&training.batch::<T>(&assets, &Device::flex().autodiff())?)?;
    if let Some(validation) = validation {
        let found = tried.evaluate(&validation.batch::<T>(&assets, &Device::flex())?)?;
        has_metric(&found, experiment)?;
    }
    Ok(notes)
}

/// The first file of some data, which stands for all of it.
struct First {
    what: &'static str,
    dataset: Arc<Dataset>,
    on_bad_record: OnBadRecord,
    /// How many records are in one batch at most: examples of different sizes may not fit into one.
    most: u64,
}

impl First {
    fn open(
        what: &'static str,
        paths: &[String],
        experiment: &Experiment,
        most: u64,
        folder: Option<&Path>,
    ) -> Result<Self, Error> {
        let data = &experiment.data;
        if data.stream && paths == data.training.0 {
            // Nothing is tried where no record is written yet.
            let dataset = Arc::new(StreamedData::so_far(data, folder)?.dataset()?);
            return Ok(Self { what, dataset, on_bad_record: data.on_bad_record, most });
        }
        let format = data.format.as_deref().map(str::parse::<Format>).transpose();
        let format = format.map_err(|error| Error::Invalid(format!("data.format: {error}")))?;
        let paths: Vec<PathBuf> = paths.iter().map(PathBuf::from).collect();
        // All places must be there, but only the first file is opened: there may be thousands.
        let all = files(&paths, format)?;
        let only = all.len() == 1;
        let first: Vec<PathBuf> = all.into_iter().take(1).collect();
        let cache_folder = folder.map(Path::to_path_buf);
        let options = OpenOptions { cache_folder, ..OpenOptions::of(data) };
        let dataset = Arc::new(Dataset::new(Arc::from(open_indexed(&first, format, &options)?))?);
        // Of several files others may have records.
        if only && dataset.is_empty() {
            let file = paths.first().map(|path| path.display().to_string()).unwrap_or_default();
            return Err(Error::Invalid(format!("{what}: no records in {file}")));
        }
        Ok(Self { what, dataset, on_bad_record: data.on_bad_record, most })
    }

    /// A batch of the first two records; of the first few where bad ones are skipped. Nothing where the file is empty.
    fn batch<T: Trial>(
        &self,
        assets: &Assets,
        device: &Device,
    ) -> Result<Option<BatchOf<T>>, Error> {
        let records = self.dataset.len();
        let reading = ExampleContext { labels: true, assets: assets.clone() };
        let read = |count: u64, on_bad_record| {
            let name = MicroBatch { epoch: 0, step: 0, k: 0 };
            let order = Order::new(records, Shuffle::None, 0, 0);
            let job = LoadJob { slice: Slice { name, positions: 0..count.min(records) }, order };
            let (device, reading) = (device.clone(), reading.clone());
            let options =
                LoaderOptions { device, on_bad_record, reading, augment: None, threads: 1 };
            attempt::<T, _>("decode", &[], || load::<T::Example>(&self.dataset, &job, &options))?
        };
        if records == 0 {
            return Ok(None);
        }
        let count =
            if self.on_bad_record == OnBadRecord::Skip { LOOK_AT } else { TRIED.min(self.most) };
        match read(count, self.on_bad_record)?.batch {
            Some(batch) => Ok(Some(batch)),
            None => {
                let reason = read(1, OnBadRecord::Fail).err().map(|error| error.to_string());
                let (what, reason) = (self.what, reason.unwrap_or_default());
                Err(Error::Invalid(format!(
                    "{what}: none of the first {} records can be decoded: {reason}",
                    count.min(records)
                )))
            }
        }
    }
}

/// A model with fresh parameters, and rows of this process where it has tables.
struct Tried<'a, T: Trial> {
    experiment: &'a Experiment,
    model: T,
    tables: Tables,
    layers: Vec<ParamInfo>,
}

impl<'a, T: Trial> Tried<'a, T> {
    fn build(experiment: &'a Experiment, assets: &Assets) -> Result<Self, Error> {
        let device = Device::flex().autodiff();
        let build = || build_in_context::<T>(experiment, &device, assets.clone());
        let (model, cx) = attempt::<T, _>("build", &[], build)??;
        let (model, tables) = match experiment.start_from {
            Some(_) => (model, cx.tables),
            None => (with_pretrained(model, &cx)?, cx.tables),
        };
        let hp = hparams::read::<T::Hparams>(&experiment.hyperparameters)?;
        if experiment.strategy == Strategy::Ps {
            only_pass::<T>(&T::passes(&hp))?;
        }
        if !tables.is_empty() {
            if experiment.strategy == Strategy::Allreduce {
                let reason = "it has tables, whose rows several workers share on parameter servers: \
                              add --strategy hybrid --ps 1, or train in one process";
                return Err(Error::model::<T>(reason));
            }
            let rows = LocalRows::new(seed(experiment))?;
            let optimizer = T::optimizer(&hp).into();
            tables.with_optimizer(optimizer).open(Opened::Staged(Box::new(rows)))?;
        }
        let layers = params::list(&model);
        Ok(Self { experiment, model, tables, layers })
    }

    /// Each pass of a step, without the way back.
    fn train(&self, batch: &Option<BatchOf<T>>) -> Result<(), Error> {
        let Some(batch) = batch else { return Ok(()) };
        let hp = hparams::read::<T::Hparams>(&self.experiment.hyperparameters)?;
        let passes = T::passes(&hp);
        let on_servers = self.experiment.strategy == Strategy::Ps;
        let running = on_servers.then(|| params::running(&self.model));
        let cx = BatchContext {
            name: MicroBatch { epoch: 0, step: 0, k: 0 },
            device: Device::flex().autodiff(),
            seed: seed(self.experiment),
        };
        for pass in &passes {
            let phase = match passes.len() {
                1 => "metrics".to_string(),
                _ => format!("pass {}", pass.name),
            };
            let found = self.attempt(&phase, || self.model.train_batch(pass, batch, &cx));
            let found = found.map_err(|error| self.blame(batch).err().unwrap_or(error))?;
            self.check_loss(found.loss.dims()[0], batch)?;
        }
        if let Some(before) = running {
            check_running::<T>(&before, params::running(&self.model).into_iter())?;
        }
        self.tables.check()
    }

    /// A batch has failed: which part of it was it?
    fn blame(&self, batch: &BatchOf<T>) -> Result<(), Error> {
        let output = self.attempt("forward", || self.model.forward(batch))?;
        self.attempt("loss", || self.model.loss(&output, batch)).map(drop)
    }

    /// What validation reports.
    fn evaluate(&self, batch: &Option<BatchOf<T>>) -> Result<Metrics, Error> {
        let Some(batch) = batch else { return Ok(Metrics::new()) };
        let model = self.model.valid();
        let output = self.attempt("forward in validation", || model.forward(batch))?;
        let loss = self.attempt("loss in validation", || model.loss(&output, batch))?;
        self.check_loss(loss.dims()[0], batch)?;
        let metrics = self.attempt("metrics in validation", || model.metrics(&output, batch))?;
        self.tables.check()?;
        let records = batch.records() as u64;
        let part = EvaluationPart { records, metrics, ..EvaluationPart::default() };
        Ok(part.finish().metrics)
    }

    fn attempt<R>(&self, phase: &str, work: impl FnOnce() -> R) -> Result<R, Error> {
        attempt::<T, R>(phase, &self.layers, work)
    }

    fn check_loss(&self, values: usize, batch: &BatchOf<T>) -> Result<(), Error> {
        let records = batch.records();
        match values == records {
            true => Ok(()),
            false => Err(Error::model::<T>(format!(
                "the loss has {values} values for {records} records: return one value per record, not a mean"
            ))),
        }
    }
}

/// Whether validation reports what the experiment watches.
fn has_metric(found: &Metrics, experiment: &Experiment) -> Result<(), Error> {
    let (values, name) = (found.values(), experiment.metric());
    if found.is_empty() || values.contains_key(name) {
        return Ok(());
    }
    let known: Vec<&str> = values.keys().map(String::as_str).collect();
    Err(course::Error::NoMetric { name: name.to_string(), known: known.join(", ") }.into())
}

#[cfg(test)]
mod tests {
    use burn::module::Module;
    use burn::nn::{BatchNorm, BatchNormConfig, Linear, LinearConfig};
    use burn::tensor::Tensor;
    use salamander_core::optimizer::Optimizer;

    use super::*;
    use crate::context::Context;
    use crate::groups::ParamGroup;
    use crate::table::Table;
    use crate::testing::{LinearNet, Points, TestPoint};
    use crate::trial::{BuildError, Pass};

    /// Gives the mean of the losses, as loops of PyTorch do.
    #[derive(Module, Debug)]
    struct NetOfMeans {
        out: Linear,
    }

    impl Trial for NetOfMeans {
        const NAME: &'static str = "means";
        type Hparams = ();
        type Example = TestPoint;
        type Output = Tensor<2>;

        fn build(cx: &Context<()>) -> Result<Self, BuildError> {
            Ok(Self { out: LinearConfig::new(2, 2).init(&cx.device) })
        }

        fn forward(&self, batch: &Points) -> Tensor<2> {
            self.out.forward(batch.at.clone())
        }

        fn loss(&self, output: &Tensor<2>, batch: &Points) -> Tensor<1> {
            crate::loss::cross_entropy(output, &batch.side).mean()
        }

        fn optimizer(_: &()) -> impl Into<Optimizer> {
            Optimizer::sgd(1.0)
        }
    }

    /// A row per side.
    #[derive(Module, Debug)]
    struct NetWithRows {
        rows: Table,
    }

    impl Trial for NetWithRows {
        const NAME: &'static str = "rows";
        type Hparams = ();
        type Example = TestPoint;
        type Output = Tensor<2>;

        fn build(cx: &Context<()>) -> Result<Self, BuildError> {
            Ok(Self { rows: cx.table("rows", 2).build() })
        }

        fn forward(&self, batch: &Points) -> Tensor<2> {
            self.rows.lookup_one(&batch.side)
        }

        fn loss(&self, output: &Tensor<2>, batch: &Points) -> Tensor<1> {
            crate::loss::cross_entropy(output, &batch.side)
        }

        fn optimizer(_: &()) -> impl Into<Optimizer> {
            Optimizer::sgd(1.0)
        }
    }

    /// Keeps running values, and has as many passes and groups as its hyperparameters say.
    #[derive(Module, Debug)]
    struct NormedNet<const PASSES: usize, const GROUPS: usize> {
        out: Linear,
        norm: Option<BatchNorm>,
    }

    impl<const PASSES: usize, const GROUPS: usize> Trial for NormedNet<PASSES, GROUPS> {
        const NAME: &'static str = "normed";
        type Hparams = ();
        type Example = TestPoint;
        type Output = Tensor<2>;

        fn build(cx: &Context<()>) -> Result<Self, BuildError> {
            // Only the plain one has it, so that each is refused for one reason.
            let norm =
                (PASSES == 1 && GROUPS == 0).then(|| BatchNormConfig::new(2).init(&cx.device));
            Ok(Self { out: LinearConfig::new(2, 2).init(&cx.device), norm })
        }

        fn forward(&self, batch: &Points) -> Tensor<2> {
            let output = self.out.forward(batch.at.clone());
            match &self.norm {
                Some(norm) => norm.forward(output),
                None => output,
            }
        }

        fn loss(&self, output: &Tensor<2>, batch: &Points) -> Tensor<1> {
            crate::loss::cross_entropy(output, &batch.side)
        }

        fn optimizer(_: &()) -> impl Into<Optimizer> {
            Optimizer::sgd(1.0)
        }

        fn passes(_: &()) -> Vec<Pass> {
            let pass = |name| {
                let pass = Pass::new(name, Optimizer::sgd(1.0));
                (0..GROUPS).fold(pass, |pass, _| pass.group(ParamGroup::of(["*.bias"]).rate(0.5)))
            };
            ["first", "second"][..PASSES].iter().copied().map(pass).collect()
        }
    }

    /// What is said about a model, data and more of the experiment.
    fn tried<T: Trial>(csv: &str, rest: &str) -> String {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("points.csv");
        std::fs::write(&path, csv).expect("written");
        let path = path.display();
        let text = format!("data: {{training: {path}, validation: {path}}}\n{rest}");
        let experiment = Experiment::parse(&text, &[]).expect("valid");
        let tried = preflight::<T>(&experiment, &AssetFiles::default(), None);
        tried.map_or_else(|error| error.to_string(), |_| "fine".to_string())
    }

    const DATA: &str = "x,y,side\n1,2,0\n";

    #[test]
    fn mistakes_are_told_by_phase_layer_column_and_metric() {
        assert_eq!(tried::<LinearNet<2>>(DATA, ""), "fine");
        let layer = tried::<LinearNet<3>>(DATA, "");
        assert!(layer.starts_with("model net: forward: "), "{layer}");
        assert!(layer.contains("out.weight [3, 2]"), "{layer}");
        let label = tried::<LinearNet<2>>("x,y,side\n1,2,left\n", "");
        assert!(label.contains("column \"side\""), "{label}");
        let column = tried::<LinearNet<2>>("x,side\n1,0\n", "");
        assert!(column.contains("column \"y\""), "{column}");
        let metric = tried::<LinearNet<2>>(DATA, "searcher: {metric: accuray}\n");
        assert!(
            metric.contains("validation reports no \"accuray\" (it reports: loss)"),
            "{metric}"
        );
    }

    const ON_SERVERS: &str = "strategy: ps\nworkers: 2\n";
    const TWO: &str = "x,y,side\n1,2,0\n2,1,1\n";

    #[test]
    fn several_passes_and_groups_are_refused_before_strategy_ps_starts() {
        assert_eq!(tried::<LinearNet<2>>(TWO, ON_SERVERS), "fine");
        assert_eq!(tried::<NormedNet<2, 0>>(TWO, ""), "fine");
        let error = tried::<NormedNet<2, 0>>(TWO, ON_SERVERS);
        assert!(error.starts_with("model normed: it has several passes"), "{error}");
        assert_eq!(tried::<NormedNet<1, 1>>(TWO, ""), "fine");
        let error = tried::<NormedNet<1, 1>>(TWO, ON_SERVERS);
        assert!(error.starts_with("model normed: it has groups of parameters"), "{error}");
    }

    #[test]
    fn running_values_are_refused_before_strategy_ps_starts() {
        assert_eq!(tried::<NormedNet<1, 0>>(TWO, ""), "fine");
        let error = tried::<NormedNet<1, 0>>(TWO, ON_SERVERS);
        assert!(error.starts_with("model normed: norm.running_"), "{error}");
        assert!(error.contains("use strategy hybrid or allreduce"), "{error}");
    }

    #[test]
    fn a_mean_is_no_loss_of_records() {
        let error = tried::<NetOfMeans>(TWO, "");
        let expected = "model means: the loss has 1 values for 2 records: return one value per record, not a mean";
        assert_eq!(error, expected);
        assert_eq!(tried::<NetOfMeans>(DATA, ""), "fine", "one record's mean is its loss");
    }

    #[test]
    fn an_empty_file_is_told_unless_there_are_others() {
        let error = tried::<LinearNet<2>>("x,y,side\n", "");
        assert!(error.starts_with("data.training: no records in "), "{error}");
        let folder = tempfile::tempdir().expect("a folder");
        for (name, text) in [("a.csv", "x,y,side\n"), ("b.csv", DATA)] {
            std::fs::write(folder.path().join(name), text).expect("written");
        }
        let text = format!("data: {{training: {}/*.csv}}\n", folder.path().display());
        let experiment = Experiment::parse(&text, &[]).expect("valid");
        preflight::<LinearNet<2>>(&experiment, &AssetFiles::default(), None).expect("fine");
    }

    #[test]
    fn a_second_record_that_cannot_be_read_is_told() {
        let error = tried::<LinearNet<2>>("x,y,side\n1,2,0\n1,2,left\n", "");
        assert!(error.contains("column \"side\""), "{error}");
    }

    #[test]
    fn tables_need_servers_where_several_workers_train() {
        assert_eq!(tried::<NetWithRows>(DATA, ""), "fine");
        assert_eq!(tried::<NetWithRows>(DATA, "strategy: hybrid\n"), "fine");
        let error = tried::<NetWithRows>(DATA, "strategy: allreduce\nworkers: 2\n");
        assert!(error.contains("add --strategy hybrid"), "{error}");
    }
}
