//! `salamander serve`: trained models as an endpoint.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use salamander_run::serving::{
    Batching, ModelToServe, ServerOptions, Service, ServiceEvent, TlsConfig, Token, tls,
};
use salamander_run::{Program, Which, find};

use crate::args::RunsFolder;
use crate::signals::Signals;

#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// What to serve: a run by its folder or id, `latest`, or a folder made by `export`; NAME= before it is what
    /// clients call it [default: the model's name]
    #[arg(required = true, value_name = "[NAME=]RUN|EXPORT")]
    models: Vec<String>,
    /// Where to listen; port 0 is any free one
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8000")]
    http: SocketAddr,
    /// Which checkpoint of a run: best, latest, or its id
    #[arg(long, default_value = "best", value_name = "best|latest|ID")]
    checkpoint: Which,
    /// The most records that are computed at once
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = at_least_one)]
    max_batch: usize,
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
or with any client of the Open Inference Protocol (tritonclient, kserve), of KServe v1 or of TorchServe.
What a model takes and gives: curl localhost:8000/v2/models/NAME";

pub(crate) fn at_least_one(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("at least 1 is needed".to_string()),
        Ok(number) => Ok(number),
        Err(error) => Err(format!("{error}")),
    }
}

impl Args {
    fn model(&self, text: &str) -> Result<ModelToServe, salamander_run::Error> {
        // A folder may have an equals sign in its name: what is there is meant.
        let (name, run) = match text.split_once('=') {
            Some((name, run)) if find(text, &self.folder.runs).is_err() => (Some(name), run),
            _ => (None, text),
        };
        let folder = find(run, &self.folder.runs)?;
        let (name, checkpoint) = (name.map(str::to_string), self.checkpoint.clone());
        Ok(ModelToServe { name, folder, checkpoint })
    }
}

fn read(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).with_context(|| path.display().to_string())
}

fn read_token(path: &Path) -> Result<Token> {
    let text = String::from_utf8(read(path)?).with_context(|| path.display().to_string())?;
    Token::new(&text).map_err(|reason| anyhow!("{}: {reason}", path.display()))
}

fn read_tls(folder: &Path) -> Result<Arc<TlsConfig>> {
    let (certificate, key) = (read(&folder.join("tls.crt"))?, read(&folder.join("tls.key"))?);
    tls(&certificate, &key).map_err(|reason| anyhow!("{}: {reason}", folder.display()))
}

pub(crate) fn run(args: &Args, program: &Program) -> Result<ExitCode> {
    let models = args.models.iter().map(|text| args.model(text)).collect::<Result<_, _>>()?;
    let batching = Batching {
        rows: args.max_batch,
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
        address: args.http,
        device: args.device.clone(),
        threads: args.threads,
        batching,
        options,
        watch: args.watch.then_some(WATCH),
    };
    if args.access_log {
        crate::roles::log_to_stderr("serve", 0);
    }
    let scheme = if args.tls.is_some() { "https" } else { "http" };
    let signals = Signals::install()?;
    service.run(program, &signals.stop, &mut |event| {
        let _ = match event {
            ServiceEvent::Loaded { model, version } => outln!("{model}: {version} is in service"),
            ServiceEvent::Listening(address) => outln!("listening on {scheme}://{address}"),
            ServiceEvent::NotLoaded { reason } => {
                errln!("not loaded: {reason}; the version before stays in service");
                Ok(())
            }
        };
    })?;
    Ok(ExitCode::SUCCESS)
}
