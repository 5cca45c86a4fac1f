//! The master: leads a distributed run; workers and commands talk to it.

use std::fs;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use salamander_core::elastic::{Ending, Timeouts, Version};
use salamander_core::experiment::{Experiment, Strategy};
use salamander_core::layout::RunLayout;
use salamander_core::report::Report;
use salamander_files::{Durability, replace};
use salamander_master::journal::Problem;
use salamander_master::local::DEPOSED;
use salamander_master::{AskedProcesses, Config, ModePlan, PlatformKind, Sink};
use salamander_net::{Backoff, Keys, retry};
use salamander_track::{Patience, Tracker};
use salamander_train::callback::{Callback, Control};
use salamander_train::checkpoint::{Counted, RemoteCheckpoints};
use salamander_train::device;
use salamander_train::example::AssetFiles;
use salamander_train::model::Models;
use salamander_train::profile::Profiler;
use salamander_train::trainer::Setup;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

#[cfg(feature = "kube")]
use super::journal_lock::wait_for_journal;
use super::{Exit, runtime, terminated};
use crate::Error;
use crate::connect::{Scale, forget_address, note_address};
use crate::distributed::finish;
#[cfg(feature = "kube")]
use crate::experiment::in_file;
use crate::experiment::load;
use crate::folder::{RunFolder, tidy};
use crate::folder_status::note_plan;
use crate::keys::KeyFiles;
use crate::metrics_log::{MetricsLog, cut_after};
use crate::run::Finished;
use crate::stored::{StoredJournal, take_over};
use crate::summary::Summary;

/// How long a journal that another master holds is waited for: a volume gives the lock of a lost node back later.
#[cfg(feature = "kube")]
const JOURNAL_TIMEOUT: Duration = Duration::from_secs(300);
/// The pauses while there is no room on the disk, and how long that is waited for.
const FULL_PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(1));
const FULL_PATIENCE: Duration = Duration::from_secs(600);

/// What a master is told.
#[derive(Clone, Debug)]
pub struct MasterOptions {
    /// The run's folder.
    pub run: RunLayout,
    /// Where to listen.
    pub listen: SocketAddr,
    /// Where its secrets are.
    pub keys: KeyFiles,
    /// Whether another process starts and ends workers as this master says.
    pub served: bool,
    /// Whether it goes on with a run that has ended, and with how many processes; what is not named stays.
    pub resume: Option<Scale>,
    /// Whether workers are pods that it starts itself, and how.
    #[cfg(feature = "kube")]
    pub pods: Option<crate::cluster::PodOptions>,
}

/// Leads to the end of the run. `listening` is told the address.
pub fn run(
    options: &MasterOptions,
    models: &Models,
    listening: impl FnOnce(SocketAddr),
) -> Result<Exit, Error> {
    let folder = fs::canonicalize(options.run.folder()).map_err(Error::io(options.run.folder()))?;
    let run = RunLayout::new(folder);
    let experiment = load(&run.experiment(), &[])?;
    let keys = options.keys.read(&run, options.listen.ip())?;
    let remote = RemoteCheckpoints::of_run(&experiment.checkpoint_storage, run.folder())?;
    let taken = remote.as_ref().map(|remote| take_over(remote, &run, &experiment)).transpose()?;
    let (brought, seen) = taken.map_or((false, None), |taken| (taken.brought, taken.seen));
    #[cfg(feature = "kube")]
    if options.pods.is_some() {
        // Workers would find the same, one after the other.
        let model = models.find(experiment.model());
        let model = model.map_err(|error| in_file(&run.experiment(), error))?;
        let checked = model.hparams_in_force(&experiment);
        checked.map_err(|error| in_file(&run.experiment(), error))?;
        if !wait_for_journal(&run.journal(), JOURNAL_TIMEOUT)? {
            return Ok(Exit::Locked);
        }
    }
    let by_hand = ByHand::begin(options, &run)?;
    // Where a parent process looks after the run, it does this.
    let tracker = (!options.served).then(|| Tracker::start(&run, &(&experiment.tracking).into()));
    let mut config = config(&run, &experiment, &keys);
    let _profiler = Profiler::start(run.folder(), "master", Arc::default());
    let storage = &experiment.checkpoint_storage;
    let stored =
        remote.map(|remote| StoredJournal::start(remote, &run, storage, seen)).transpose()?;
    let mut files = RunFiles::open(&run, stored)?;
    if experiment.strategy == Strategy::Ps {
        let setup = Setup {
            device: device::select(&experiment.device.0)?,
            experiment: experiment.clone(),
            folder: run.folder().to_path_buf(),
            stop: Default::default(),
            kept_data: Default::default(),
        };
        let plan = models.find(experiment.model())?.lease_plan(setup)?;
        config.mode = ModePlan::Leases(Box::new(plan));
    }
    // Processes of a master whose journal was lost may still be there; what they hold is not known to be of use.
    config.resume = options.resume.is_some() || brought;
    let Scale { workers, servers } = options.resume.unwrap_or_default();
    let number = |number: Option<u32>| number.map(|number| number as usize);
    config.asked = AskedProcesses { workers: number(workers), servers: number(servers) };
    if options.served {
        config.platform = PlatformKind::Served;
    }
    let led = runtime()?.block_on(async {
        #[cfg(feature = "kube")]
        if let Some(pods) = &options.pods {
            config.platform = PlatformKind::Served;
            let (listener, address) = bind(crate::cluster::in_family(options.listen)).await?;
            config.sink = Box::new(files);
            listening(address);
            let led = Box::pin(crate::cluster::lead(config, listener, pods, &keys)).await;
            // Its pods have ended; one on a node that was lost has nothing to write any more.
            if matches!(led, Ok(Exit::Code(0))) {
                tidy(&run);
            }
            return led;
        }
        let (listener, address) = bind(options.listen).await?;
        files.address = Some(address);
        config.sink = Box::new(files);
        listening(address);
        // Ctrl-C is meant for the parent, which hears it too and decides.
        let _interrupt =
            signal(SignalKind::interrupt()).map_err(Error::system("cannot lead a run"))?;
        let ended = salamander_master::run(config, listener, terminated()?).await;
        forget_address(&run, address);
        if let Err(salamander_master::Error::Journal(error)) = &ended
            && error.is_deposed()
        {
            tracing::error!(%error, "another master leads");
            return Ok(Exit::Code(DEPOSED as u8));
        }
        let ending = ended?;
        if let Some(by_hand) = by_hand {
            by_hand.end(&run, &experiment, ending.clone(), models);
        }
        match ending {
            Ending::Completed => Ok(Exit::Done),
            Ending::Interrupted => Ok(Exit::Left),
            Ending::Failed(reason) => Err(Error::Failed(reason)),
        }
    });
    let left = tracker.map(|tracker| tracker.finish(Patience::default()));
    left.into_iter().flatten().for_each(|note| tracing::warn!("{note}"));
    led
}

/// A run that no parent process looks after: its master holds the folder, and says how the run ended.
struct ByHand {
    started: Instant,
    /// Held, not read.
    _folder: RunFolder,
}

impl ByHand {
    fn begin(options: &MasterOptions, run: &RunLayout) -> Result<Option<Self>, Error> {
        #[cfg(feature = "kube")]
        let served = options.served || options.pods.is_some();
        #[cfg(not(feature = "kube"))]
        let served = options.served;
        if served {
            return Ok(None);
        }
        let folder = RunFolder::open(run.folder())?;
        // What it says is of the time before.
        let _ = fs::remove_file(run.summary());
        Ok(Some(Self { started: Instant::now(), _folder: folder }))
    }

    fn end(&self, run: &RunLayout, experiment: &Experiment, ending: Ending, models: &Models) {
        let finished = finish(run, experiment, ending, self.started)
            .map(|(outcome, facts)| Finished { run: run.clone(), outcome, facts });
        let model = models.find(experiment.model()).ok();
        let class_names = model.and_then(|model| {
            let assets = AssetFiles::of_run(model.assets(), run.folder()).ok()?;
            model.class_names(&assets).ok()
        });
        Summary::new(run, &finished, class_names.unwrap_or_default()).write();
        tidy(run);
    }
}

async fn bind(listen: SocketAddr) -> Result<(TcpListener, SocketAddr), Error> {
    let place = listen.to_string();
    let cannot = || Error::broken(place.as_ref());
    let listener = TcpListener::bind(listen).await.map_err(cannot())?;
    let address = listener.local_addr().map_err(cannot())?;
    Ok((listener, address))
}

fn config(run: &RunLayout, experiment: &Experiment, keys: &Keys) -> Config {
    let workers = experiment.workers;
    let mut config = Config::new(run.folder(), keys.token.to_hex(), workers.max as usize);
    config.tls = keys.tls.clone();
    let silence = (experiment.elastic.silence * 1000.0) as u64;
    config.min_workers = workers.min as usize;
    if experiment.strategy.has_servers() {
        config.servers = experiment.ps.servers.max(1) as usize;
    }
    config.max_restarts = experiment.max_restarts.0;
    let promise = (silence / 2).clamp(100, 2_000);
    config.hang = Duration::from_secs_f64(experiment.elastic.hang);
    let apply = config.hang.as_millis() as u64;
    config.timeouts = Timeouts { silence, promise, apply, ..Timeouts::default() };
    config
}

/// The run's files that the master keeps: metrics, the list of checkpoints that count, how it ended.
struct RunFiles {
    run: RunLayout,
    log: MetricsLog,
    /// Keeps them in the run's store, too.
    stored: Option<StoredJournal>,
    /// Where the master listens, if its folder is to tell. Written when the journal is its own: another one may lead.
    address: Option<SocketAddr>,
}

impl RunFiles {
    fn open(run: &RunLayout, stored: Option<StoredJournal>) -> Result<Self, Error> {
        let log = MetricsLog::open(&run.metrics())?;
        let checkpoints = run.checkpoints();
        fs::create_dir_all(&checkpoints).map_err(Error::io(&checkpoints))?;
        Ok(Self { run: run.clone(), log, stored, address: None })
    }

    fn take(&mut self, report: &Report) -> Result<(), Error> {
        match report {
            Report::Step(step) => self.log.step_end(step, &mut Control::default()),
            Report::Epoch(epoch) => self.log.epoch_end(epoch),
            Report::Start(start) => {
                note_plan(&self.run, start)?;
                // A run that was restored from a checkpoint goes through the steps after it again.
                cut_after(&self.run.metrics(), start.done)?;
                self.log = MetricsLog::open(&self.run.metrics())?;
            }
            Report::End(end) => {
                let path = self.run.end();
                let json = serde_json::to_vec(end).map_err(Error::broken(&path))?;
                replace(&path, &json, Durability::Synced).map_err(Error::io(&path))?;
            }
        }
        Ok(())
    }

    fn count(&self, id: &str) -> Result<(), Error> {
        let path = self.run.counted();
        let mut list = Counted::repaired(&self.run.checkpoints())?;
        list.add(id);
        let bytes = list.to_bytes();
        if fs::read(&path).ok().as_ref() != Some(&bytes) {
            replace(&path, &bytes, Durability::Synced).map_err(Error::io(&path))?;
        }
        Ok(())
    }
}

impl Sink for RunFiles {
    fn report(&mut self, version: Version, report: &Report) {
        if let Err(error) = self.take(report) {
            tracing::warn!(%version, %error, "a report could not be kept");
        }
    }

    /// The master logs its notes itself.
    fn note(&mut self, _text: &str) {}

    fn kept(&mut self, id: &str) {
        if let Err(error) = self.count(id) {
            tracing::error!(id, %error, "a checkpoint could not be counted");
        }
        self.stored.iter().for_each(StoredJournal::note);
    }

    fn deposed(&mut self) -> Option<Problem> {
        self.stored.as_ref().and_then(StoredJournal::deposed)
    }

    /// Before anybody hears of this master: one that finds nothing but the store must not take its number again.
    fn opened(&mut self) -> std::io::Result<()> {
        let claimed = self.stored.as_ref().map(StoredJournal::claim).transpose();
        claimed.map_err(std::io::Error::other)?;
        let Some(address) = self.address else { return Ok(()) };
        // A full disk ends no run; whoever starts masters would count their ends.
        let patience = Backoff::new(FULL_PAUSES.0, FULL_PAUSES.1).within(FULL_PATIENCE);
        let note = || note_address(&self.run, address);
        retry(patience, note, |error| error.kind() == ErrorKind::StorageFull)
    }
}

#[cfg(test)]
mod tests {
    use salamander_master::journal::Journal;
    use salamander_master::record::Record;

    use super::*;
    use crate::keys::ensure_keys;

    #[test]
    fn only_its_own_address_is_removed() {
        let folder = tempfile::tempdir().expect("a folder");
        let layout = RunLayout::new(folder.path());
        let own = SocketAddr::from(([127, 0, 0, 1], 7));
        forget_address(&layout, own);
        note_address(&layout, SocketAddr::from(([127, 0, 0, 1], 8))).expect("noted");
        forget_address(&layout, own);
        assert!(layout.master_address().is_file(), "another master leads");
        note_address(&layout, own).expect("noted");
        forget_address(&layout, own);
        assert!(!layout.master_address().exists());
    }

    #[test]
    fn a_master_that_finds_the_journal_locked_leaves_the_address_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        let layout = RunLayout::new(folder.path());
        let experiment = "strategy: allreduce\nhyperparameters: {global_batch_size: 4}\n";
        fs::write(layout.experiment(), experiment).expect("written");
        ensure_keys(&layout).expect("made");
        fs::write(layout.master_address(), "127.0.0.1:1").expect("written");
        let _leading = Journal::<Record>::open(&layout.journal()).expect("new");
        let options = MasterOptions {
            run: layout.clone(),
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            keys: KeyFiles::default(),
            served: false,
            resume: None,
            #[cfg(feature = "kube")]
            pods: None,
        };
        let error =
            run(&options, &Models::new(Vec::new()), |_| {}).expect_err("locked").to_string();
        assert!(error.contains("another master is using it"), "{error}");
        let address = fs::read_to_string(layout.master_address()).expect("there");
        assert_eq!(address, "127.0.0.1:1");
    }
}
