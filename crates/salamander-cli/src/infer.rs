//! `salamander infer`: asks a server about every record of files, or of standard input.

use std::io::{BufReader, stdin};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use indicatif::{ProgressBar, ProgressStyle};
use salamander_core::words::count;
use salamander_data::Format;
use salamander_run::infer::{ClientOptions, DataToAsk, Inference, follow, stream};

use crate::data::{CsvArgs, format_parser};
use crate::out::PipedStdout;
use crate::signals::Signals;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The server: http[s]://HOST:PORT, ours or any other of the Open Inference Protocol (Triton, MLServer, KServe)
    url: String,
    /// The model's name there
    #[arg(long)]
    model: String,
    /// Files or folders of records, whose columns are the model's inputs; `-` answers lines of JSON from standard input
    #[arg(long, required = true, value_name = "DATA")]
    data: Vec<String>,
    /// The format, where the name does not tell it
    #[arg(long, value_name = "FORMAT", value_parser = format_parser(|_| true))]
    format: Option<Format>,
    #[command(flatten)]
    csv: CsvArgs,
    /// Go on with a file of lines of JSON as it grows, until Ctrl-C; answers are lines of --out, or of standard output
    #[arg(long)]
    follow: bool,
    /// The file to write: .parquet, .csv or .jsonl; a command that was killed goes on where it was
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Records of a request
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = crate::serve::at_least_one)]
    batch: usize,
    /// Requests at a time
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = crate::serve::at_least_one)]
    connections: usize,
    /// How many seconds a server that does not answer is tried again
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    patience: u64,
    /// A file with the token that the server asks for
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// A file with the certificate of the authority that signed the server's [default: those that the system trusts]
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// The name in the server's certificate; `salamander.job` where `salamander tls` made it [default: the host of URL]
    #[arg(long, value_name = "NAME")]
    server_name: Option<String>,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let token = args
        .token_file
        .as_ref()
        .map(|path| std::fs::read_to_string(path).with_context(|| path.display().to_string()));
    let token = token.transpose()?.map(|text| text.trim().to_string());
    let authorities = args
        .ca
        .as_ref()
        .map(|path| std::fs::read(path).with_context(|| path.display().to_string()));
    let server_name = args.server_name.clone();
    let options = ClientOptions { token, authorities: authorities.transpose()?, server_name };
    let inference = Inference {
        url: args.url.clone(),
        model: args.model.clone(),
        options,
        batch: args.batch,
        connections: args.connections,
        patience: Duration::from_secs(args.patience),
    };
    if args.follow {
        return follow_file(args, &inference);
    }
    if args.data == ["-"] {
        if args.out.is_some() {
            bail!("answers to standard input go to standard output: leave --out away");
        }
        stream(&inference, BufReader::new(stdin()), &mut PipedStdout)?;
        return Ok(ExitCode::SUCCESS);
    }
    let Some(out) = &args.out else { bail!("say where answers go: --out FILE") };
    let bar = ProgressBar::new(0);
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} records {per_sec} {eta}")
    {
        bar.set_style(style);
    }
    let (begin, mut before) = (Instant::now(), None);
    let asked = DataToAsk { data: &args.data, format: args.format, csv: args.csv.settings() };
    let records = inference.files(&asked, out, &mut |done, all| {
        before.get_or_insert(done);
        bar.set_length(all);
        bar.set_position(done);
    });
    bar.finish_and_clear();
    let records = records?;
    let asked = records - before.unwrap_or_default().min(records);
    let rate = asked as f64 / begin.elapsed().as_secs_f64().max(1e-9);
    outln!("{} in {} ({rate:.0} records/s)", count(records, "answer"), out.display())?;
    Ok(ExitCode::SUCCESS)
}

fn follow_file(args: &Args, inference: &Inference) -> Result<ExitCode> {
    let [file] = args.data.as_slice() else {
        bail!("--follow goes on with one file: name one --data")
    };
    if file == "-" {
        bail!("standard input is followed until it ends: leave --follow away");
    }
    let out = args.out.as_deref();
    if let Some(other) = out.filter(|out| out.extension().is_none_or(|kind| kind != "jsonl")) {
        bail!(
            "{}: answers to a file that grows are lines of JSON: name a file .jsonl",
            other.display()
        );
    }
    let signals = Signals::install()?;
    follow(inference, Path::new(file), out, &mut PipedStdout, signals.stop.clone())?;
    Ok(ExitCode::SUCCESS)
}
