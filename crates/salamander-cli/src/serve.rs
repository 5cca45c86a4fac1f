//! `salamander serve`: trained models as an endpoint.

use std::net::SocketAddr;
use std::path::{Component, Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use salamander_run::serving::{
    Batching, FindModel, ModelRegistry, ModelToServe, MoreAddresses, RegisteredVersion, ServedFrom,
    ServerOptions, Service, ServiceEvent, ServingToken, TlsConfig, tls,
};
use salamander_run::{Program, Which, find};

use crate::args::RunsFolder;
use crate::signals::Signals;

#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// What to serve: a run by its folder or id, `latest`, a folder made by `export`, a classifier's folder of Hugging
    /// Face, or `model:NAME@ALIAS` of a hub; NAME= before it is what clients call it [default: the model's name], and
    /// NAME/VERSION= also what its version is called. Several of one name are versions of it
    #[arg(required = true, value_name = "[NAME[/VERSION]=]MODEL")]
    models: Vec<String>,
    /// Where to listen; port 0 is any free one
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8000")]
    http: SocketAddr,
    /// One more address, where the same is answered: gRPC has a port of its own elsewhere
    #[arg(long, value_name = "ADDR")]
    grpc: Option<SocketAddr>,
    /// The only address where models can be registered, loaded and taken away, as TorchServe has it; everywhere when
    /// absent
    #[arg(long, value_name = "ADDR")]
    management: Option<SocketAddr>,
    /// One more address for metrics, as Triton and TorchServe have it
    #[arg(long, value_name = "ADDR")]
    metrics: Option<SocketAddr>,
    /// The folder with what clients may register: POST /models?url=NAME is a run or an exported folder in it [default:
    /// the folder of runs]
    #[arg(long, value_name = "DIR")]
    model_store: Option<PathBuf>,
    /// Which checkpoint of a run: best, latest, or its id
    #[arg(long, default_value = "best", value_name = "best|latest|ID")]
    checkpoint: Which,
    /// The most records that are computed at once
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = at_least_one)]
    max_batch: usize,
    /// The most tokens that are computed at once, for models of texts
    #[arg(long, value_name = "N", default_value_t = 4096, value_parser = at_least_one)]
    max_tokens: usize,
    /// How long a batch waits for more records; 0 starts as soon as the model is idle
    #[arg(long, value_name = "MS", default_value_t = 0)]
    max_delay: u64,
    /// The most requests that wait for a model; more are refused at once
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = at_least_one)]
    queue: usize,
    /// The status of a refused request: 503, or what clients retry, such as 429 or 507
    #[arg(long, value_name = "STATUS", default_value_t = 503, value_parser = clap::value_parser!(u16).range(400..600))]
    busy_status: u16,
    /// The most megabytes of a request
    #[arg(long, value_name = "MB", default_value_t = 64, value_parser = at_least_one)]
    max_body: usize,
    /// How many seconds a request may wait; a client's own timeout comes first
    #[arg(long, value_name = "SECONDS")]
    timeout: Option<u64>,
    /// Look every second for a better checkpoint of runs that are still training, and put it into service
    #[arg(long)]
    watch: bool,
    /// A file with a token that clients must send as `Authorization: Bearer TOKEN`; probes need none
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// The folder with tls.crt and tls.key, to encrypt connections; `salamander tls` makes one
    #[arg(long, value_name = "DIR")]
    tls: Option<PathBuf>,
    /// Log each request to standard error
    #[arg(long)]
    access_log: bool,
    /// Threads that compute for each model [default: an equal share of the cores]
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    threads: Option<usize>,
    /// Compute linear layers in eight bits: smaller numbers, a little less exact; measure both, the loss of accuracy by
    /// `evaluate --int8`
    #[arg(long)]
    int8: bool,
    /// Keep so many megabytes of a table's rows, and read the others from the run's checkpoint when they are asked for
    /// [default: all rows are in memory]
    #[arg(long, value_name = "MB", value_parser = at_least_one)]
    table_memory: Option<usize>,
    /// Where to compute: auto, cpu, wgpu[:i] or cuda[:i]
    #[arg(long, default_value = "auto")]
    device: String,
    #[command(flatten)]
    folder: RunsFolder,
}

/// How often a better checkpoint is looked for.
const WATCH: Duration = Duration::from_secs(1);

const AFTER_HELP: &str = "\
Ask it with a record that has the columns of the data:
  curl localhost:8000/v2/models/NAME/infer -d '{\"x\": 0.5, \"y\": 0.1}'
or with any client of the Open Inference Protocol (tritonclient, kserve), of KServe v1 or of TorchServe, or in a
browser: http://localhost:8000. Ports as TorchServe has them:
  salamander serve NAME=RUN --http 127.0.0.1:8080 --management 127.0.0.1:8081 --metrics 127.0.0.1:8082
What a model takes and gives: curl localhost:8000/v2/models/NAME";

pub(crate) fn at_least_one(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("at least 1 is needed".to_string()),
        Ok(number) => Ok(number),
        Err(error) => Err(format!("{error}")),
    }
}

impl Args {
    fn model(&self, text: &str) -> Result<ModelToServe> {
        // A folder may have an equals sign in its name: what is there is meant.
        let (named, model) = match text.split_once('=') {
            Some((name, model)) if find(text, &self.folder.runs).is_err() => (Some(name), model),
            _ => (None, text),
        };
        let (name, version) = match named.map(|named| named.split_once('/').unwrap_or((named, "")))
        {
            Some((name, version)) => {
                (Some(name.to_string()), Some(version.to_string()).filter(|text| !text.is_empty()))
            }
            None => (None, None),
        };
        if let Some(reference) = model.strip_prefix("model:") {
            let alias = reference.split('@').next().map(str::to_string);
            let from = registered(reference, &self.folder.runs)?;
            return Ok(ModelToServe { name: name.or(alias), version, from });
        }
        let folder = find(model, &self.folder.runs)?;
        let from = ServedFrom::Folder { folder, checkpoint: self.checkpoint.clone() };
        Ok(ModelToServe { name, version, from })
    }

    /// What clients may register: what is in a folder, or in the registry of the hub.
    fn registrable(&self) -> FindModel {
        let runs = self.folder.runs.clone();
        let store = self.model_store.clone().unwrap_or_else(|| runs.clone());
        let checkpoint = self.checkpoint.clone();
        Arc::new(move |url: &str| {
            if let Some(reference) = url.strip_prefix("model:") {
                let name = reference.split('@').next().map(str::to_string);
                let from = registered(reference, &runs).map_err(|error| format!("{error:#}"))?;
                return Ok(ModelToServe { name, version: None, from });
            }
            let is_name = |part: Component<'_>| matches!(part, Component::Normal(_));
            let folder = store.join(url);
            if url.is_empty() || !Path::new(url).components().all(is_name) || !folder.is_dir() {
                let store = store.display();
                return Err(format!("\"{url}\" is no folder in {store}, and no model:NAME@ALIAS"));
            }
            let from = ServedFrom::Folder { folder, checkpoint: checkpoint.clone() };
            Ok(ModelToServe { name: None, version: None, from })
        })
    }
}

/// How long what a hub said is taken to be true: it may have to be started to be asked.
const ASK_HUB: Duration = Duration::from_secs(3);

/// A model of a hub, by `NAME@ALIAS`.
#[derive(Debug)]
struct HubModel {
    reference: String,
    runs: PathBuf,
    said: Mutex<Option<(Instant, RegisteredVersion)>>,
}

impl ModelRegistry for HubModel {
    fn now(&self) -> Result<RegisteredVersion, salamander_run::Error> {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        match &*said {
            Some((when, version)) if when.elapsed() < ASK_HUB => Ok(version.clone()),
            _ => {
                let version = self.ask()?;
                *said = Some((Instant::now(), version.clone()));
                Ok(version)
            }
        }
    }
}

impl HubModel {
    fn ask(&self) -> Result<RegisteredVersion, salamander_run::Error> {
        let wrong = |error: anyhow::Error| salamander_run::Error::Invalid(format!("{error:#}"));
        let found = crate::hub::model::find_version(&self.reference, &self.runs).map_err(wrong)?;
        Ok(RegisteredVersion {
            version: found.version.to_string(),
            folder: found.folder,
            checkpoint: found.checkpoint,
        })
    }
}

fn registered(reference: &str, runs: &Path) -> Result<ServedFrom> {
    let (reference, runs) = (reference.to_string(), runs.to_path_buf());
    let model = HubModel { reference, runs, said: Mutex::new(None) };
    // A mistake is told before anything is loaded.
    model.now()?;
    Ok(ServedFrom::Registered(Arc::new(model)))
}

fn read(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).with_context(|| path.display().to_string())
}

fn read_token(path: &Path) -> Result<ServingToken> {
    let text = String::from_utf8(read(path)?).with_context(|| path.display().to_string())?;
    ServingToken::new(&text).map_err(|reason| anyhow!("{}: {reason}", path.display()))
}

fn read_tls(folder: &Path) -> Result<Arc<TlsConfig>> {
    let (certificate, key) = (read(&folder.join("tls.crt"))?, read(&folder.join("tls.key"))?);
    tls(&certificate, &key).map_err(|reason| anyhow!("{}: {reason}", folder.display()))
}

pub(crate) fn run(args: &Args, program: &Program) -> Result<ExitCode> {
    let models = args.models.iter().map(|text| args.model(text)).collect::<Result<_>>()?;
    let batching = Batching {
        rows: args.max_batch,
        tokens: args.max_tokens,
        delay: Duration::from_millis(args.max_delay),
        queue: args.queue,
        timeout: args.timeout.map(Duration::from_secs),
        ..Batching::default()
    };
    let options = ServerOptions {
        body: args.max_body << 20,
        busy_status: args.busy_status,
        token: args.token_file.as_deref().map(read_token).transpose()?,
        tls: args.tls.as_deref().map(read_tls).transpose()?,
        access_log: args.access_log,
        ..ServerOptions::default()
    };
    let service = Service {
        models,
        find: Some(args.registrable()),
        address: args.http,
        more_addresses: MoreAddresses {
            others: args.grpc.into_iter().chain(args.metrics).collect(),
            management: args.management,
        },
        device: args.device.clone(),
        threads: args.threads,
        int8: args.int8,
        table_memory: args.table_memory.map(|megabytes| megabytes << 20),
        batching,
        options,
        watch: args.watch.then_some(WATCH),
    };
    // Whether requests are logged can be changed while the server runs.
    crate::roles::log_some_to_stderr("warn,salamander_serve=info", "serve", 0);
    let scheme = if args.tls.is_some() { "https" } else { "http" };
    let signals = Signals::install()?;
    service.run(program, &signals.stop, &mut |event| {
        let _ = match event {
            ServiceEvent::Loaded { model, version } => outln!("{model}: {version} is in service"),
            ServiceEvent::ListeningToo(address) => outln!("also on {scheme}://{address}"),
            ServiceEvent::Listening(address) => outln!("listening on {scheme}://{address}"),
            ServiceEvent::NotLoaded { reason } => {
                errln!("not loaded: {reason}; the version before stays in service");
                Ok(())
            }
        };
    })?;
    Ok(ExitCode::SUCCESS)
}
