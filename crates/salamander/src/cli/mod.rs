//! The command line: what can be typed, and which file does it.

mod books;
mod data;
mod demo;
mod devices;
mod distributed;
mod doctor;
mod evaluate;
mod experiment;
mod export;
mod keys;
#[cfg(feature = "kube")]
mod kube;
mod ledger;
mod manage;
mod master;
mod models;
mod predict;
mod ps;
mod roles;
mod signals;
mod stored;
mod tasks;
mod train;
mod trained;
mod worker;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use salamander_train::model::Models;

/// Elastic distributed deep learning in pure Rust, on Burn.
#[derive(Parser)]
#[command(version, arg_required_else_help = true, after_help = AFTER_HELP)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const AFTER_HELP: &str = "\
A first run, from a clone of the repository:
  salamander train model_zoo/mnist/mnist.yaml
A model of your own:
  salamander new my_model && cd my_model && cargo run --release -- train experiment.yaml";

#[derive(Subcommand)]
enum Command {
    /// Train a model as an experiment file says
    Train(train::Args),
    /// Measure a trained model on data that it did not learn from
    Evaluate(evaluate::Args),
    /// Write a trained model's outputs for every record
    Predict(predict::Args),
    /// Write a trained model's weights as safetensors, with what is needed to use them
    Export(export::Args),
    /// Show which records were applied in which epoch of a run
    Ledger(ledger::Args),
    /// Show where a distributed run stands
    Status(manage::RunArgs),
    /// Print the logs of a distributed run's processes
    Logs(manage::LogsArgs),
    /// Change the number of workers or parameter servers of a run that is going on
    Scale(manage::ScaleArgs),
    /// End a distributed run early; it can be resumed
    Stop(manage::RunArgs),
    /// Lead a distributed run (`train` starts this by itself)
    Master(master::Args),
    /// Train as one worker of a distributed run (`train` starts this by itself)
    Worker(worker::Args),
    /// Hold tables for the workers of a distributed run (`train` starts this by itself)
    Ps(ps::Args),
    /// Make certificates for a run on several hosts (`train --prepare` does this by itself)
    Tls(keys::TlsArgs),
    /// Print the definition of the custom resource `TrainingJob`, for `kubectl apply`
    #[cfg(feature = "kube")]
    Crd,
    /// Look after the training jobs of a cluster
    #[cfg(feature = "kube")]
    Operator(kube::OperatorArgs),
    /// Print everything that a job needs on a cluster without the operator, for `kubectl apply`
    #[cfg(feature = "kube")]
    Manifest(kube::ManifestArgs),
    /// Get data sets and look at them
    Data {
        #[command(subcommand)]
        command: data::Command,
    },
    /// List the models of this program and their hyperparameters
    Models(models::Args),
    /// List the devices that this program can use, and why it cannot use others
    Devices,
    /// Say what on this machine would stop a run
    Doctor(doctor::Args),
    /// See what this program can take
    Demo {
        #[command(subcommand)]
        command: demo::Command,
    },
    /// Print the JSON Schema of experiment files, for editors
    Schema,
    /// Write a ready crate with a model, an experiment and data
    New {
        /// The crate's name, which is also the folder's
        name: String,
    },
}

/// The folder that runs live in.
#[derive(clap::Args, Clone)]
struct RunsFolder {
    /// The folder that runs live in
    #[arg(long, value_name = "DIR", default_value = "runs")]
    runs: PathBuf,
}

/// Runs the program.
pub(crate) fn main(models: &Models) -> ExitCode {
    let result = match Cli::parse().command {
        Command::Train(args) => train::run(args, models),
        Command::Evaluate(args) => evaluate::run(args, models),
        Command::Predict(args) => predict::run(args, models),
        Command::Export(args) => export::run(args, models).map(|()| ExitCode::SUCCESS),
        Command::Ledger(args) => ledger::run(args),
        Command::Status(args) => manage::status(&args),
        Command::Logs(args) => manage::logs(&args),
        Command::Scale(args) => manage::scale(&args),
        Command::Stop(args) => manage::stop(&args),
        Command::Master(args) => master::run(args, models),
        Command::Worker(args) => worker::run(args, models),
        Command::Ps(args) => ps::run(args),
        Command::Tls(args) => keys::make(&args),
        #[cfg(feature = "kube")]
        Command::Crd => kube::crd(),
        #[cfg(feature = "kube")]
        Command::Operator(args) => kube::operator(args),
        #[cfg(feature = "kube")]
        Command::Manifest(args) => kube::manifest(&args, models),
        Command::Data { command } => data::run(command),
        Command::Models(args) => models::run(&args, models).map(|()| ExitCode::SUCCESS),
        Command::Devices => devices::run().map(|()| ExitCode::SUCCESS),
        Command::Doctor(args) => doctor::run(&args, models),
        Command::Demo { command } => demo::run(command),
        Command::Schema => {
            println!("{:#}", salamander_core::experiment::schema());
            Ok(ExitCode::SUCCESS)
        }
        Command::New { name } => crate::scaffold::write(&name).map(|()| ExitCode::SUCCESS),
    };
    result.unwrap_or_else(|error| {
        // Only the chain of reasons: a backtrace tells a user nothing about a mistake.
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}
