//! `cargo xtask`: what developers run often, in Rust, so that it works wherever the project builds.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::process::ExitCode;

use anyhow::{Context, ensure};
use clap::{Parser, Subcommand};

mod bench_compare;
mod build_cost;
mod codegen;
mod mnist_sample;
mod package;
mod test;
mod tidy;

/// Checks, generates and prepares what the repository holds.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Args {
    #[command(subcommand)]
    task: XtaskCommand,
}

#[derive(Subcommand)]
enum XtaskCommand {
    /// Run everything that CI runs except the tests: fmt, clippy, doc, tidy, codegen --check.
    Check,
    /// Run README's tests; with --all also those that take minutes more.
    Test {
        /// Chaos at length, pods, every recommender, a new crate from nothing.
        #[arg(long)]
        all: bool,
    },
    /// Pack every crate that is published, as crates.io would get it.
    Package {
        /// Also build a crate that uses nothing but the packages.
        #[arg(long)]
        check: bool,
    },
    /// Build README's first command from nothing, and say what it costs.
    BuildCost {
        /// Fail when it costs more than 1,000 CPU-seconds or the program has more than 100 MB.
        #[arg(long)]
        check: bool,
    },
    /// Enforce the house rules that rustfmt and clippy do not know.
    Tidy,
    /// Write the files that are generated from code.
    Codegen {
        /// Only compare, and fail if a file is out of date.
        #[arg(long)]
        check: bool,
    },
    /// Kill and stop workers and masters of real runs, and count every record.
    Chaos {
        /// The first seed; later runs take the next ones.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Start another run as long as this has not passed.
        #[arg(long, default_value_t = 0)]
        minutes: u64,
        /// How many times something is done to a run.
        #[arg(long, default_value_t = 50)]
        faults: u64,
        /// Workers of a run.
        #[arg(long, default_value_t = 4)]
        workers: u64,
    },
    /// Show which figures of two runs of the benches moved.
    BenchCompare {
        /// The older figures: a file that a bench wrote, or a folder of them.
        old: PathBuf,
        /// The newer ones.
        new: PathBuf,
        /// Leave out what moved by less than so many per cent.
        #[arg(long, default_value_t = 5.0)]
        threshold: f64,
    },
    /// Make the small sample of MNIST that tests and examples use.
    MnistSample {
        /// The folder with the four original files of MNIST.
        folder: PathBuf,
        /// Where the sample goes.
        #[arg(long, value_name = "DIR", default_value = "data/mnist-sample")]
        out: PathBuf,
    },
    /// Write what tests of models are compared with anew, by PyTorch, torchvision and transformers.
    ModelFixtures {
        /// A Python that has them.
        #[arg(long, default_value = "python3")]
        python: PathBuf,
    },
}

fn main() -> ExitCode {
    let task = Args::parse().task;
    match root().and_then(|root| run(&root, task)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(root: &Path, task: XtaskCommand) -> anyhow::Result<()> {
    match task {
        XtaskCommand::Check => check(root),
        XtaskCommand::Test { all } => test::run(root, all),
        XtaskCommand::Package { check } => package::run(root, check),
        XtaskCommand::BuildCost { check } => build_cost::run(root, check),
        XtaskCommand::Tidy => tidy::run(root),
        XtaskCommand::Codegen { check } => codegen::run(root, check),
        XtaskCommand::Chaos { seed, minutes, faults, workers } => {
            cargo(root, &["build", "-p", "tests"], &[])?;
            let values = [seed, minutes, faults, workers].map(|value| value.to_string());
            let mut args = vec!["run", "-q", "-p", "tests", "--bin", "chaos", "--"];
            let names = ["--seed", "--minutes", "--faults", "--workers"];
            args.extend(names.iter().zip(&values).flat_map(|(name, value)| [*name, value]));
            cargo(root, &args, &[])
        }
        XtaskCommand::BenchCompare { old, new, threshold } => {
            bench_compare::run(&old, &new, threshold)
        }
        XtaskCommand::MnistSample { folder, out } => mnist_sample::run(&folder, &out),
        XtaskCommand::ModelFixtures { python } => model_fixtures(root, &python),
    }
}

fn model_fixtures(root: &Path, python: &Path) -> anyhow::Result<()> {
    let script = root.join("crates/salamander-models/tests/fixtures/make.py");
    let status = Command::new(python).arg(&script).status();
    let status = status.with_context(|| format!("{} does not start", python.display()))?;
    ensure!(status.success(), "{} failed: torch, torchvision and transformers?", script.display());
    Ok(())
}

fn check(root: &Path) -> anyhow::Result<()> {
    cargo(root, &["fmt", "--all", "--check"], &[])?;
    let clippy = ["clippy", "--workspace", "--all-targets", "--features", "tests/long"];
    cargo(root, &[&clippy[..], &["--", "-D", "warnings"]].concat(), &[])?;
    cargo(root, &["doc", "--workspace", "--no-deps"], &[("RUSTDOCFLAGS", "-D warnings")])?;
    tidy::run(root)?;
    codegen::run(root, true)
}

fn cargo(root: &Path, args: &[&str], env: &[(&str, &str)]) -> anyhow::Result<()> {
    let line = format!("cargo {}", args.join(" "));
    eprintln!("$ {line}");
    let mut command = Command::new(cargo_program());
    command.args(args).envs(env.iter().copied()).current_dir(root);
    let status = command.status().with_context(|| format!("cannot start `{line}`"))?;
    ensure!(status.success(), "`{line}` failed: fix what it reports above");
    Ok(())
}

/// The cargo that runs us, so that `cargo +nightly xtask check` stays on nightly throughout.
fn cargo_program() -> String {
    std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned())
}

/// The root of the workspace, so that tasks work from every folder in it. As cargo says it now: clones that share a
/// target folder run the xtask that one of them has built.
fn root() -> anyhow::Result<PathBuf> {
    let xtask = std::env::var_os("CARGO_MANIFEST_DIR").context("start it as `cargo xtask`")?;
    let root = Path::new(&xtask).parent().context("xtask is not inside a workspace")?;
    Ok(root.to_owned())
}
