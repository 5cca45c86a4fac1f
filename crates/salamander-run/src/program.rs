//! A program that trains: its models, and what can be done with them.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use salamander_core::experiment::{Experiment, Strategy};
use salamander_core::layout::RunLayout;
use salamander_files::{Durability, replace};
use salamander_net::Token;
use salamander_track::{Patience, Sinks, Tracker};
use salamander_train::callback::Callback;
use salamander_train::checkpoint::{CheckpointStore, Which};
use salamander_train::device;
use salamander_train::example::AssetFiles;
use salamander_train::model::{Model, Models};
use salamander_train::trainer::{Outcome, Setup};

use crate::Error;
use crate::TrainsOn;
#[cfg(feature = "kube")]
use crate::cluster::MirroredRun;
use crate::connect::Scale;
use crate::distributed::{self, Launch};
use crate::event::{Event, Forward};
use crate::experiment::{Overrides, in_file, load, strategy};
use crate::facts::Facts;
use crate::folder::{RunFolder, RunName, tidy};
use crate::keys::{ensure_certificates, ensure_keys};
use crate::metrics_log::{MetricsLog, PlanFile};
use crate::provenance::Provenance;
use crate::resumed;
use crate::roles::{Assignment, Exit, say_why};
use crate::run::{Finished, Run, RunShared, panicked};
use crate::stop_request::{self, StopWatch};
use crate::stored;
use crate::summary::Summary;
use crate::trained::TrainedModel;
use crate::warm_start;

/// The models of this program, and everything that can be done with them.
#[derive(Clone)]
pub struct Program {
    models: Arc<Models>,
    #[cfg(feature = "flow")]
    flows: Arc<salamander_flow::flow::Flows>,
}

impl Program {
    /// The first thing that `main` does. A distributed run starts this program again for each of its processes: there
    /// this function does the process's part and never returns. Everywhere else it returns at once.
    pub fn enter(models: Models) -> Self {
        Self::enter_with(models, |_| {})
    }

    /// [`Program::enter`], with a function that is called in processes of a run before they begin: to set up logs.
    pub fn enter_with(models: Models, begin: impl FnOnce(&Assignment)) -> Self {
        let program = Self {
            models: Arc::new(models),
            #[cfg(feature = "flow")]
            flows: Arc::default(),
        };
        program.entered(begin)
    }

    /// [`Program::enter_with`], for a program that has flows too.
    #[cfg(feature = "flow")]
    pub fn enter_with_flows(
        models: Models,
        flows: salamander_flow::flow::Flows,
        begin: impl FnOnce(&Assignment),
    ) -> Self {
        Self { models: Arc::new(models), flows: Arc::new(flows) }.entered(begin)
    }

    fn entered(self, begin: impl FnOnce(&Assignment)) -> Self {
        if let Some(assignment) = Assignment::of_this_process() {
            begin(&assignment);
            let code = assignment.run(&self).map_or_else(
                |error| {
                    // What its run quotes.
                    say_why(&error);
                    if error.is_mistake() { i32::from(Exit::Mistaken.code()) } else { 1 }
                },
                |exit| i32::from(exit.code()),
            );
            std::process::exit(code);
        }
        self
    }

    /// The flows.
    #[cfg(feature = "flow")]
    pub fn flows(&self) -> &salamander_flow::flow::Flows {
        &self.flows
    }

    /// The models.
    pub fn models(&self) -> &Models {
        &self.models
    }

    /// The models, to keep.
    pub(crate) fn models_shared(&self) -> Arc<Models> {
        Arc::clone(&self.models)
    }

    /// Reads an experiment file for a new run below `runs`.
    pub fn experiment(
        &self,
        file: impl AsRef<Path>,
        overrides: &Overrides,
        runs: impl AsRef<Path>,
    ) -> Result<Draft, Error> {
        let place = RunPlace::New(runs.as_ref().to_path_buf());
        Draft::read(self, file.as_ref(), overrides, place)
    }

    /// Goes on with a run: one below `runs`, or one that is not on this machine, by its place in a store
    /// (`s3://bucket/prefix/RUN`).
    pub fn resume(
        &self,
        run: &str,
        overrides: &Overrides,
        runs: impl AsRef<Path>,
        note: &mut dyn FnMut(String),
    ) -> Result<Draft, Error> {
        let folder = stored::find(run, runs.as_ref(), overrides.store.as_deref(), note)?;
        let file = RunLayout::new(&folder).experiment();
        let read = |overrides: &Overrides| {
            Draft::read(self, &file, overrides, RunPlace::There(folder.clone()))
        };
        let mut draft = read(overrides)?;
        let was = strategy(&file, &[])?;
        if (was == Strategy::Ps) != (draft.experiment.strategy == Strategy::Ps) {
            let reason = "a run of strategy ps goes on as one, and no other run does";
            return Err(Error::Invalid(reason.to_string()));
        }
        if resumed::is_tried(&draft.experiment, overrides) {
            let flags = Overrides { sets: Vec::new(), ..overrides.clone() };
            // A file that cannot be read without what is set is not gone on with without it.
            let unset = read(&flags).ok().filter(|unset| unset.in_force != draft.in_force);
            draft.unset = unset.map(Box::new);
        }
        Ok(draft)
    }

    /// Finds a trained model: a checkpoint of a run, or an exported folder.
    pub fn load(
        &self,
        folder: impl AsRef<Path>,
        checkpoint: &Which,
        device: &str,
    ) -> Result<TrainedModel, Error> {
        TrainedModel::open(Arc::clone(&self.models), folder.as_ref(), checkpoint, device)
    }
}

/// Where a run's folder is.
enum RunPlace {
    /// It will be made below this one.
    New(PathBuf),
    There(PathBuf),
}

/// An experiment that is read and checked, ready to be trained.
pub struct Draft {
    models: Arc<Models>,
    experiment: Experiment,
    file: PathBuf,
    in_force: String,
    /// What records are read with.
    assets: AssetFiles,
    place: RunPlace,
    /// The id that a new run is to have.
    id: Option<String>,
    trains_on: TrainsOn,
    pub(crate) slot: crate::search::TrialSlot,
    /// How many processes the command line asks for.
    asked: Scale,
    /// The same without what was `--set`, for a run that goes on and may have nothing left to train.
    unset: Option<Box<Draft>>,
    /// What whoever follows the run is told first.
    note: Option<&'static str>,
}

impl Draft {
    fn read(
        program: &Program,
        file: &Path,
        overrides: &Overrides,
        place: RunPlace,
    ) -> Result<Self, Error> {
        let mut experiment = load(file, &overrides.to_sets(file)?)?;
        if let RunPlace::New(runs) = &place {
            let weights = warm_start::resolve(&experiment, runs);
            let weights = weights.map_err(|reason| crate::experiment::wrong(file, reason))?;
            let start_from = &mut experiment.settings_mut().start_from;
            *start_from = start_from.take().or(weights);
        }
        let seed = &mut experiment.settings_mut().reproducibility.experiment_seed;
        seed.get_or_insert_with(chosen_seed);
        let slices = match &place {
            RunPlace::New(_) => experiment.slices(),
            RunPlace::There(_) => resumed::kept_slices(file, &overrides.sets)?,
        };
        // Written down, so that neither a resume nor another number of workers changes what a step adds up.
        experiment.settings_mut().micro_batches = Some(slices);
        let wrong = |error| in_file(file, error);
        let model = program.models.find(experiment.model()).map_err(wrong)?;
        experiment.settings_mut().entrypoint = Some(model.name().to_string());
        if let RunPlace::New(_) = &place {
            settle(model, &mut experiment, file).map_err(wrong)?;
        }
        let in_force = experiment.to_yaml(&model.hparams_in_force(&experiment).map_err(wrong)?);
        let assets = match &place {
            RunPlace::New(_) => find_assets(model, &experiment, file),
            RunPlace::There(folder) => AssetFiles::of_run(model.assets(), folder),
        };
        let assets = assets.map_err(wrong)?;
        let (models, file) = (Arc::clone(&program.models), file.to_path_buf());
        let asked = overrides.asked(&experiment);
        Ok(Self {
            models,
            experiment,
            file,
            in_force,
            assets,
            place,
            id: overrides.id.clone(),
            trains_on: TrainsOn::default(),
            slot: Default::default(),
            asked,
            unset: None,
            note: None,
        })
    }

    /// Trains there instead of on this machine.
    #[must_use]
    pub fn on(mut self, trains_on: TrainsOn) -> Self {
        self.trains_on = trains_on;
        self
    }

    /// The configuration in force, as YAML.
    pub fn in_force(&self) -> &str {
        &self.in_force
    }

    /// The experiment in force.
    pub fn experiment(&self) -> &Experiment {
        &self.experiment
    }

    /// Names of the model's classes.
    pub fn class_names(&self) -> Result<Vec<String>, Error> {
        Ok(self.model()?.class_names(&self.assets)?)
    }

    /// Only makes the run's folder with its secrets, for a master and workers that are started by hand on several
    /// hosts.
    pub fn prepare(mut self) -> Result<RunLayout, Error> {
        // The data may be on other hosts only.
        self.unset = None;
        let folder = self.make_folder(|_, _| Ok(()))?;
        ensure_keys(folder.layout())?;
        ensure_certificates(folder.layout())?;
        Ok(folder.layout().clone())
    }

    /// Starts training: in this process, or with a master, workers and parameter servers as processes of their own.
    pub fn start(mut self) -> Result<Run, Error> {
        if let Some(assignment) = Assignment::of_this_process().filter(|own| !own.is_trial()) {
            return Err(Error::NotEntered(assignment.role().to_string()));
        }
        // Devices and data of other machines are not seen from here.
        let is_here = self.trains_on.is_this_machine();
        let (slot, tries) = (self.slot.number as usize, is_here && !self.slot.is_tried);
        let device =
            is_here.then(|| device::select_for(&self.experiment.device.0, slot)).transpose()?;
        stored::check(&self.experiment)?;
        let mut warnings = Vec::new();
        let folder = self.make_folder(|draft, folder| {
            warnings = if tries { draft.preflight(folder)? } else { Vec::new() };
            Ok(())
        })?;
        if is_here {
            Provenance::note(folder.layout(), || Provenance::of(&self.experiment));
        }
        Run::spawn(folder.layout().clone(), move |shared, events| {
            let run = folder.layout();
            let notes = events.clone();
            let note = self.note.into_iter().map(str::to_string);
            note.chain(warnings).for_each(|note| notes.send(Event::Note(note)));
            let train = || {
                let Some(device) = device else { return self.train_as_job(run, shared, events) };
                if self.experiment.strategy != Strategy::Local {
                    return self.train_elsewhere(run, shared, events);
                }
                let _watch = StopWatch::start(run, Arc::clone(&shared.stop))?;
                let setup = Setup {
                    experiment: self.experiment.clone(),
                    folder: run.folder().to_path_buf(),
                    device,
                    stop: Arc::clone(&shared.stop),
                    kept_data: self.slot.kept_data.clone(),
                };
                self.train_here(setup, run, events).map(|outcome| (outcome, Facts::LOCAL))
            };
            tidy(run);
            let tracker = Tracker::start(run, &Sinks::from(&self.experiment.tracking));
            // The folder tells why a run ended, whatever it was.
            let trained = catch_unwind(AssertUnwindSafe(train));
            let trained = trained.unwrap_or_else(|panic| Err(panicked(&*panic)));
            tidy(run);
            let finished =
                trained.map(|(outcome, facts)| Finished { run: run.clone(), outcome, facts });
            Summary::new(run, &finished, self.class_names().unwrap_or_default()).write();
            if is_here && let Some(note) = stored::keep(run, &self.experiment.checkpoint_storage) {
                notes.send(Event::Note(note));
            }
            for note in tracker.finish(Patience::default()) {
                tracing::warn!("{note}");
                notes.send(Event::Note(note));
            }
            finished
        })
    }

    fn model(&self) -> Result<&dyn Model, Error> {
        Ok(self.models.find(self.experiment.model())?)
    }

    /// Takes the run's folder, or makes it if `check` finds nothing wrong.
    fn make_folder(
        &mut self,
        check: impl FnOnce(&Self, &Path) -> Result<(), Error>,
    ) -> Result<RunFolder, Error> {
        match &self.place {
            RunPlace::There(folder) => {
                let folder = RunFolder::open(folder)?;
                check(self, folder.layout().folder())?;
                self.try_settings(folder.layout())?;
                let path = folder.layout().experiment();
                replace(&path, self.in_force.as_bytes(), Durability::Synced)
                    .map_err(Error::io(&path))?;
                // A run that came from a store has them in its checkpoints only.
                if !folder.layout().assets().is_dir() {
                    self.assets.write(folder.layout().folder())?;
                }
                // What they say is of the time before.
                let _ = fs::remove_file(folder.layout().summary());
                stop_request::forget(folder.layout());
                Ok(folder)
            }
            RunPlace::New(runs) => {
                let model = self.model()?.name();
                let mut name = self.experiment.name.as_deref().unwrap_or(model).to_string();
                if self.experiment.checkpoint_storage.store.is_some() {
                    // In a store two machines may begin runs of one name in the same second.
                    name += &format!("-{:.6}", Token::random()?.to_hex());
                }
                let name = RunName::new(&name, self.id.as_deref())?;
                RunFolder::create(runs, name, |folder| {
                    let path = RunLayout::new(folder).experiment();
                    fs::write(&path, &self.in_force).map_err(Error::io(&path))?;
                    self.assets.write(folder)?;
                    check(self, folder)
                })
            }
        }
    }

    /// Whatever reads the run's experiment file sees what it is trained by: what was `--set` comes into it when the
    /// run's checkpoint fits, and there is something left to train.
    fn try_settings(&mut self, run: &RunLayout) -> Result<(), Error> {
        // The data of a cluster is not seen from here.
        let unset = self.unset.take().filter(|_| self.trains_on.is_this_machine());
        let Some(unset) = unset else { return Ok(()) };
        if !resumed::has_steps(self.model()?, &self.experiment, run, &self.file)? {
            let Draft { experiment, in_force, .. } = *unset;
            (self.experiment, self.in_force) = (experiment, in_force);
            self.note = Some("nothing is left to train: what was --set is not taken");
        }
        Ok(())
    }

    /// Tries the model on two records; indexes of data are kept in the run's folder.
    fn preflight(&self, folder: &Path) -> Result<Vec<String>, Error> {
        let tried = self.model()?.preflight(&self.experiment, &self.assets, Some(folder));
        tried.map_err(|error| in_file(&self.file, error))
    }

    fn is_resumed(&self) -> bool {
        matches!(self.place, RunPlace::There(_))
    }

    fn train_here(&self, setup: Setup, run: &RunLayout, events: Forward) -> Result<Outcome, Error> {
        let resumed = self.is_resumed().then(|| resumed::newest(&setup, run, &events));
        let resumed = resumed.transpose()?.flatten();
        let log = MetricsLog::open(&run.metrics())?;
        let plan = PlanFile(run.clone());
        let callbacks: Vec<Box<dyn Callback>> =
            vec![Box::new(events), Box::new(log), Box::new(plan)];
        let trained = self.model()?.train(setup, resumed, callbacks);
        trained.map_err(|error| in_file(&self.file, error))
    }

    #[cfg(feature = "kube")]
    fn train_as_job(
        &self,
        run: &RunLayout,
        shared: &RunShared,
        events: Forward,
    ) -> Result<(Outcome, Facts), Error> {
        let TrainsOn::Cluster(jobs) = &self.trains_on else { return Err(Error::Interrupted) };
        let (experiment, models, stop) = (&self.experiment, &*self.models, &*shared.stop);
        jobs.train(&MirroredRun { run, experiment, models, stop, events: &events })
    }

    #[cfg(not(feature = "kube"))]
    fn train_as_job(
        &self,
        _: &RunLayout,
        _: &RunShared,
        _: Forward,
    ) -> Result<(Outcome, Facts), Error> {
        // There is no other machine without a cluster.
        Err(Error::Interrupted)
    }

    fn train_elsewhere(
        &self,
        run: &RunLayout,
        shared: &RunShared,
        events: Forward,
    ) -> Result<(Outcome, Facts), Error> {
        let newest = || match CheckpointStore::list(&run.checkpoints()) {
            Ok(mut all) => Ok(all.pop().map(|last| last.id)),
            // The journal knows what to go on from, and its master makes the list again.
            Err(_) if run.journal().exists() => Ok(None),
            Err(error) => Err(error),
        };
        let resume = self.is_resumed().then(newest).transpose()?;
        let (experiment, slot, asked) = (&self.experiment, self.slot.number, self.asked);
        distributed::train(&Launch { run, experiment, slot, resume, asked, shared, events })
    }
}

/// Makes paths among hyperparameters independent of the working directory, as those of data are, and takes the data
/// that they name.
pub fn settle(
    model: &dyn Model,
    experiment: &mut Experiment,
    file: &Path,
) -> Result<(), salamander_train::Error> {
    let file = fs::canonicalize(file).map_err(salamander_train::Error::io(file))?;
    model.settle(experiment, file.parent().unwrap_or(Path::new("/")))
}

/// What the model's records are read with: beside the experiment file, in the current folder, or beside the data.
/// With `data: {fit: true}` those that are not there are made from the training data.
pub fn find_assets(
    model: &dyn Model,
    experiment: &Experiment,
    file: &Path,
) -> Result<AssetFiles, salamander_train::Error> {
    let specs = model.assets();
    let named = model.folder(experiment)?;
    let beside = [file.parent().unwrap_or(Path::new("")), Path::new("")];
    // A flow leaves statistics and vocabularies beside the folder of the rows that they are of.
    let has = |folder: &&Path| specs.iter().any(|spec| folder.join(spec.file).is_file());
    let data =
        experiment.data.training.0.iter().map(Path::new).filter_map(Path::parent).filter(has);
    let folders: Vec<&Path> = named.as_deref().into_iter().chain(beside).chain(data).collect();
    let found = AssetFiles::find_or_fit(specs, &folders, &experiment.data)?;
    Ok(found.with(model.files_said(experiment)?))
}

/// The seed of a run whose experiment names none; shown in the configuration in force.
pub(crate) fn chosen_seed() -> u32 {
    let time = jiff::Timestamp::now().as_nanosecond() as u64;
    let mixed = salamander_core::seed::derive(time, &[u64::from(std::process::id())]);
    (mixed >> 33) as u32
}
