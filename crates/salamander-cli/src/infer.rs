//! `salamander infer`: asks a server about every record of files, or of standard input.

use std::io::{BufReader, stdin, stdout};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use indicatif::{ProgressBar, ProgressStyle};
use salamander_core::words::count;
use salamander_run::infer::{Inference, stream};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The server: http://HOST:PORT, ours or any other of the Open Inference Protocol (Triton, MLServer, KServe)
    url: String,
    /// The model's name there
    #[arg(long)]
    model: String,
    /// Files or folders of records, whose columns are the model's inputs; `-` answers lines of JSON from standard input
    #[arg(long, required = true, value_name = "DATA")]
    data: Vec<String>,
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
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let token = args
        .token_file
        .as_ref()
        .map(|path| std::fs::read_to_string(path).with_context(|| path.display().to_string()));
    let token = token.transpose()?.map(|text| text.trim().to_string());
    let inference = Inference {
        url: args.url.clone(),
        model: args.model.clone(),
        token,
        batch: args.batch,
        connections: args.connections,
        patience: Duration::from_secs(args.patience),
    };
    if args.data == ["-"] {
        if args.out.is_some() {
            bail!("answers to standard input go to standard output: leave --out away");
        }
        stream(&inference, BufReader::new(stdin()), &mut stdout())?;
        return Ok(ExitCode::SUCCESS);
    }
    let Some(out) = &args.out else { bail!("say where answers go: --out FILE") };
    let bar = ProgressBar::new(0);
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} records {per_sec} {eta}")
    {
        bar.set_style(style);
    }
    let records = inference.files(&args.data, out, &mut |done, all| {
        bar.set_length(all);
        bar.set_position(done);
    });
    bar.finish_and_clear();
    outln!("{} in {}", count(records?, "answer"), out.display())?;
    Ok(ExitCode::SUCCESS)
}
