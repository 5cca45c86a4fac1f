//! The command line of any program with models: arguments and terminal, on `salamander-run`.
//!
//! # Layout
//! - [`main`]: what can be typed, and which file does it; one file per subcommand, `args` for what several share
//! - `out`: everything that is printed; a closed pipe ends a command, and no training
//! - `ui`: progress bar, epoch table, summary, hyperparameters in a line
//! - `hub`: the hub, and all that is asked of one
//! - `reference`: the guide's page of commands
//! - `fetch`, `reviews`, `passages`, `tables`, `cifar`: public data sets
//! - `scaffold`: what `salamander new` writes; `demo`: what `salamander demo` trains

// First: its macros are seen by what comes after it.
#[macro_use]
mod out;

mod args;
mod cifar;
mod dashboard;
mod data;
mod demo;
mod devices;
mod doctor;
mod evaluate;
mod export;
mod fetch;
mod flow;
#[cfg(feature = "kube")]
mod flow_manifest;
mod hub;
mod infer;
#[cfg(feature = "kube")]
mod kube;
#[cfg(feature = "kube")]
mod kubectl;
mod ledger;
mod manage;
mod models;
mod passages;
mod pipeline;
mod predict;
mod preview;
#[cfg(all(test, feature = "kube"))]
mod reference;
mod reviews;
mod roles;
mod runs;
mod scaffold;
mod search;
mod serve;
mod serve_check;
#[cfg(feature = "kube")]
mod serving_manifest;
mod sharing;
mod signals;
mod status;
mod tables;
mod track;
mod train;
mod ui;
#[cfg(not(feature = "kube"))]
mod without_kube;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use salamander_run::{Program, make_certificates};
use salamander_train::model::Models;

/// Elastic distributed deep learning in pure Rust, on Burn.
#[derive(Parser)]
#[command(name = "salamander", version, arg_required_else_help = true, after_help = AFTER_HELP)]
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
    /// Show the trials of a search without running it, or what it would do with known results
    PreviewSearch(preview::Args),
    /// See what a search has found
    Search {
        #[command(subcommand)]
        command: search::Command,
    },
    /// Measure a trained model on data that it did not learn from
    Evaluate(evaluate::Args),
    /// Write a trained model's outputs for every record
    Predict(predict::Args),
    /// Write a trained model's weights as safetensors, with what is needed to use them
    Export(export::Args),
    /// Answer requests with trained models, over HTTP
    Serve(serve::Args),
    /// Serve a trained model on a free port for a moment, and see whether it says what it predicts
    ServeCheck(serve_check::Args),
    /// Ask a server of models about every record of files, or of standard input
    Infer(infer::Args),
    /// Show which records were applied in which epoch of a run
    Ledger(ledger::Args),
    /// Show where a run stands: its state, how far it is, and why it failed
    Status(status::Args),
    /// Tell TensorBoard or an MLflow server of a run afterwards, or of what they have not heard yet
    Track(track::Args),
    /// Look at runs in a browser: tables, live curves, comparisons, searches, logs
    Ui(dashboard::Args),
    /// See which runs and searches there are
    Runs {
        #[command(subcommand)]
        command: runs::Command,
    },
    /// Print the logs of a distributed run's processes
    Logs(manage::LogsArgs),
    /// Change the number of workers or parameter servers of a run that is going on
    Scale(manage::ScaleArgs),
    /// End a run or a search early, after the step that it is at; it can be resumed
    Stop(manage::StopArgs),
    /// Lead a distributed run (`train` starts this by itself)
    Master(roles::MasterArgs),
    /// Train as one worker of a distributed run (`train` starts this by itself)
    Worker(roles::WorkerArgs),
    /// Hold tables for the workers of a distributed run (`train` starts this by itself)
    Ps(roles::ServerArgs),
    /// Make certificates for a run on several hosts (`train --prepare` does this by itself)
    Tls {
        /// The folder to make, with ca.crt, tls.crt and tls.key
        folder: PathBuf,
    },
    #[cfg(feature = "kube")]
    #[command(flatten)]
    Kube(kube::Command),
    #[cfg(not(feature = "kube"))]
    #[command(flatten)]
    Kube(without_kube::Command),
    /// Go from raw data to a trained model as a file of steps says, doing nothing twice
    Pipeline {
        #[command(subcommand)]
        command: pipeline::Command,
    },
    /// Pre-process data by functions or SQL, into shards that are complete or absent
    Flow {
        #[command(subcommand)]
        command: flow::Command,
    },
    /// Get data sets and look at them
    Data {
        #[command(subcommand)]
        command: data::Command,
    },
    /// Keep the experiments, trials, checkpoints and models of a team in view, and start what is in the queue
    Hub(hub::serve::Args),
    /// Create experiments, follow them and decide about them
    #[command(visible_alias = "e")]
    Experiment(hub::experiment::Args),
    /// Look at trials
    Trial(hub::trial::Args),
    /// Look at checkpoints, fetch and delete them
    Checkpoint(hub::checkpoint::Args),
    /// Give trained models names and versions
    Model(hub::model::Args),
    /// See the queue of a hub, and change the order
    Job(hub::job::Args),
    /// Print what a shell needs to complete commands: `salamander completions bash > FILE`
    Completions {
        /// The shell
        shell: clap_complete::Shell,
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
    New(scaffold::Args),
}

/// The whole program: parses the arguments, runs the subcommand, tells what went wrong.
pub fn main(models: Models) -> ExitCode {
    command(&Program::enter_with(models, log))
}

/// [`main`], for a program that has flows too.
#[cfg(feature = "flow")]
pub fn main_with_flows(models: Models, flows: salamander_flow::flow::Flows) -> ExitCode {
    command(&Program::enter_with_flows(models, flows, log))
}

fn log(assignment: &salamander_run::roles::Assignment) {
    roles::log_to_stderr(assignment.role(), assignment.number());
}

fn command(program: &Program) -> ExitCode {
    pipeline::end_with_parent();
    #[cfg(feature = "kube")]
    if kubectl::is_called(std::env::args_os().next().as_deref()) {
        return kubectl::run().unwrap_or_else(|error| failed(&error));
    }
    let result = match Cli::parse().command {
        Command::Train(args) => train::run(&args, program),
        Command::PreviewSearch(args) => preview::run(&args, program.models()),
        Command::Search { command } => search::run_command(&command),
        Command::Evaluate(args) => evaluate::run(&args, program),
        Command::Predict(args) => predict::run(&args, program),
        Command::Export(args) => export::run(&args, program).map(|()| ExitCode::SUCCESS),
        Command::Serve(args) => serve::run(&args, program),
        Command::ServeCheck(args) => serve_check::run(&args, program),
        Command::Infer(args) => infer::run(&args),
        Command::Ledger(args) => ledger::run(&args),
        Command::Status(args) => status::run(&args),
        Command::Ui(args) => dashboard::run(&args),
        Command::Track(args) => track::run(&args),
        Command::Runs { command } => runs::run(command),
        Command::Logs(args) => manage::logs(&args),
        Command::Scale(args) => manage::scale(&args),
        Command::Stop(args) => manage::stop(&args),
        Command::Master(args) => roles::master(&args, program),
        Command::Worker(args) => roles::worker(args, program),
        Command::Ps(args) => roles::ps(args),
        Command::Tls { folder } => {
            make_certificates(&folder).map(|()| ExitCode::SUCCESS).map_err(Into::into)
        }
        #[cfg(feature = "kube")]
        Command::Kube(command) => kube::run(command, program),
        #[cfg(not(feature = "kube"))]
        Command::Kube(command) => without_kube::run(&command),
        Command::Pipeline { command } => pipeline::run(command),
        Command::Flow { command } => flow::run(&command, program),
        Command::Data { command } => data::run(command, program),
        Command::Hub(args) => hub::serve::run(&args),
        Command::Experiment(args) => hub::experiment::run(&args),
        Command::Trial(args) => hub::trial::run(&args),
        Command::Checkpoint(args) => hub::checkpoint::run(&args),
        Command::Model(args) => hub::model::run(&args),
        Command::Job(args) => hub::job::run(&args),
        Command::Completions { shell } => hub::completions(shell, &mut Cli::command()),
        Command::Models(args) => models::run(&args, program.models()).map(|()| ExitCode::SUCCESS),
        Command::Devices => devices::run().map(|()| ExitCode::SUCCESS),
        Command::Doctor(args) => doctor::run(&args, program.models()),
        Command::Demo { command } => demo::run(command, program),
        Command::Schema => {
            let printed = outln!("{:#}", salamander_core::experiment::schema());
            printed.map(|()| ExitCode::SUCCESS).map_err(Into::into)
        }
        Command::New(args) => scaffold::run(&args),
    };
    result.unwrap_or_else(|error| failed(&error))
}

/// Tells what went wrong.
fn failed(error: &anyhow::Error) -> ExitCode {
    if out::is_closed(error) {
        return ExitCode::SUCCESS;
    }
    // Only the chain of reasons: a backtrace tells a user nothing about a mistake.
    errln!("error: {error:#}");
    ExitCode::FAILURE
}
