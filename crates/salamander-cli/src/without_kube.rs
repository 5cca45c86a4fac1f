//! What a program that was built without Kubernetes says of it: it knows the words, to say how to build one that has
//! more than the words.

use std::process::ExitCode;

use anyhow::{Result, bail};

/// What to do.
const ADVICE: &str =
    "this program was built without kube: build it with `cargo build --release --features kube`";

/// Where a run is: on this machine.
#[derive(clap::Args)]
pub(crate) struct PlaceArgs {
    /// Where the run is
    #[arg(long = "platform", hide = true, value_name = "PLATFORM", value_parser = this_machine)]
    _platform: Option<String>,
    /// The job's namespace
    #[arg(long = "namespace", hide = true, value_name = "NAME", value_parser = nothing)]
    _namespace: Option<String>,
}

/// A job as the command line describes it.
#[derive(clap::Args)]
pub(crate) struct JobArgs {
    #[command(flatten)]
    _place: PlaceArgs,
    /// The job's name
    #[arg(long = "job", hide = true, value_name = "NAME", value_parser = nothing)]
    _job: Option<String>,
    /// The image with this program
    #[arg(long = "image", hide = true, value_name = "IMAGE", value_parser = nothing)]
    _image: Option<String>,
    /// A file with more of a training job's spec
    #[arg(long = "spec", hide = true, value_name = "FILE", value_parser = nothing)]
    _spec: Option<String>,
}

fn this_machine(text: &str) -> Result<String, &'static str> {
    match text {
        "local" => Ok(text.to_string()),
        _ => Err(ADVICE),
    }
}

fn nothing(_text: &str) -> Result<String, &'static str> {
    Err(ADVICE)
}

/// Commands that are only about clusters.
#[derive(clap::Subcommand)]
pub(crate) enum Command {
    /// Print the definition of the custom resource
    #[command(hide = true)]
    Crd(AnyArgs),
    /// Look after the training jobs of a cluster
    #[command(hide = true)]
    Operator(AnyArgs),
    /// Print everything that a job needs on a cluster
    #[command(hide = true)]
    Manifest(AnyArgs),
    /// Delete a job of a cluster
    #[command(hide = true)]
    Delete(AnyArgs),
}

/// Whatever is typed behind them.
#[derive(clap::Args)]
pub(crate) struct AnyArgs {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    _words: Vec<String>,
}

pub(crate) fn run(command: &Command) -> Result<ExitCode> {
    let name = match command {
        Command::Crd(_) => "crd",
        Command::Operator(_) => "operator",
        Command::Manifest(_) => "manifest",
        Command::Delete(_) => "delete",
    };
    bail!("{name}: {ADVICE}")
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use crate::{Cli, Command};

    #[test]
    fn what_needs_a_cluster_says_how_to_build_a_program_that_has_it() {
        Cli::command().debug_assert();
        let lines = [
            "train x.yaml --platform kube --image y",
            "train x.yaml --image y --platform kube",
            "status latest --platform kube",
            "stop latest --namespace team",
        ];
        for line in lines {
            let words = ["salamander"].into_iter().chain(line.split(' '));
            let refused = Cli::try_parse_from(words).err().expect(line).to_string();
            assert!(refused.contains(super::ADVICE), "{line}: {refused}");
        }
        for line in ["crd --next", "manifest x.yaml --image y", "delete mnist", "operator"] {
            let words = ["salamander"].into_iter().chain(line.split(' '));
            let Command::Kube(command) = Cli::try_parse_from(words).expect(line).command else {
                panic!("{line} is about a cluster");
            };
            let refused = super::run(&command).expect_err(line).to_string();
            assert!(refused.ends_with(super::ADVICE), "{line}: {refused}");
        }
    }

    #[test]
    fn runs_of_this_machine_may_be_named_so() {
        let words = ["salamander", "train", "x.yaml", "--platform", "local"];
        assert!(Cli::try_parse_from(words).is_ok());
    }
}
