//! The guide's page of commands, written from their definitions and compared with them.
//! `SALAMANDER_BLESS=1 cargo test -p salamander-cli --features kube --lib reference` writes it anew.

use std::fmt::Write;
use std::path::Path;

use clap::{Arg, Args, Command, CommandFactory, Subcommand};

use crate::kube::{Command as KubeCommand, JobArgs, PodArgs};

const PAGE: &str = "../../docs/guide/src/reference/commands.md";
const ADVICE: &str =
    "SALAMANDER_BLESS=1 cargo test -p salamander-cli --features kube --lib reference";

const OPENING: &str = "\
# Commands

Every command has `--help`, which says the same. What needs a program built with the feature `kube` is
marked *kube*. A command that fails prints one line that begins with `error:` and ends with exit code 1;
wrong arguments have exit code 2, a run that was interrupted has 130, and a `train` whose disk is
full has 74.
";

#[test]
fn page_of_commands_is_up_to_date() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(PAGE);
    let expected = page();
    if std::env::var_os("SALAMANDER_BLESS").is_some() {
        std::fs::write(&path, expected).expect("written");
        return;
    }
    // A checkout on Windows may have turned the line ends.
    let found = std::fs::read_to_string(&path).unwrap_or_default().replace("\r\n", "\n");
    let differs = found.lines().zip(expected.lines()).position(|(left, right)| left != right);
    assert!(found == expected, "commands.md differs at line {differs:?}: run {ADVICE}");
}

fn page() -> String {
    let mut page = format!("<!-- Written by `{ADVICE}`. -->\n\n{OPENING}");
    let mut program = crate::Cli::command();
    program.build();
    for command in program.get_subcommands_mut() {
        let is_kube = KubeCommand::has_subcommand(command.get_name());
        section(&mut page, command, is_kube);
    }
    page
}

/// A command and those below it.
fn section(page: &mut String, command: &mut Command, is_kube: bool) {
    if command.get_name() == "help" || command.is_hide_set() {
        return;
    }
    let name = command.get_bin_name().unwrap_or(command.get_name()).to_owned();
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    let mark = if is_kube { " (*kube*)" } else { "" };
    let _ = writeln!(page, "\n## {name}\n\n{about}{mark}.");
    arguments(page, command, is_kube);
    command.get_subcommands_mut().for_each(|command| section(page, command, is_kube));
}

/// What can be said to a command itself; some that have others below them take arguments, too.
fn arguments(page: &mut String, command: &mut Command, is_kube: bool) {
    let usage = command.render_usage().to_string();
    let usage: Vec<&str> = usage.trim_start_matches("Usage: ").lines().map(str::trim).collect();
    let shown =
        |arg: &&Arg| !arg.is_hide_set() && !matches!(arg.get_id().as_str(), "help" | "version");
    let args: Vec<&Arg> = command.get_arguments().filter(shown).collect();
    if !args.is_empty() || !command.has_subcommands() {
        let _ = writeln!(page, "\n```text\n{}\n```", usage.join("\n"));
    }
    if args.is_empty() {
        return;
    }
    let _ = writeln!(page, "\n| argument | meaning |\n| --- | --- |");
    for arg in args {
        let mark = if !is_kube && is_of_kube(arg) { " (*kube*)" } else { "" };
        let _ =
            writeln!(page, "| `{}` | {}{mark} |", spelling(arg), meaning(arg).replace('|', "\\|"));
    }
}

/// Whether a command has the argument in programs with the feature `kube` only. Others may share its name: those of a
/// pipeline are about files that it prints.
fn is_of_kube(arg: &Arg) -> bool {
    const OTHERS: [&str; 2] = ["health", "mirror"];
    let text = |arg: &Arg| arg.get_help().map(ToString::to_string);
    let same = |of_kube: &Arg| {
        of_kube.get_long() == arg.get_long()
            && of_kube.get_help_heading() == arg.get_help_heading()
            && text(of_kube) == text(arg)
    };
    let all = [JobArgs::augment_args(Command::new("")), PodArgs::augment_args(Command::new(""))];
    arg.get_long().is_some_and(|long| {
        OTHERS.contains(&long) || all.iter().any(|command| command.get_arguments().any(same))
    })
}

fn spelling(arg: &Arg) -> String {
    let takes_value = arg.get_action().takes_values();
    let values: Vec<&str> =
        arg.get_value_names().unwrap_or_default().iter().map(clap::builder::Str::as_str).collect();
    let values = if takes_value { values.join(" ") } else { String::new() };
    let values = values.replace('|', "\\|");
    match (arg.get_short(), arg.get_long()) {
        (Some(short), Some(long)) => format!("-{short}, --{long} {values}"),
        (Some(short), None) => format!("-{short} {values}"),
        (None, Some(long)) => format!("--{long} {values}"),
        (None, None) => values,
    }
    .trim_end()
    .to_owned()
}

/// What the help says, with the values there are and the one in force.
fn meaning(arg: &Arg) -> String {
    let mut text = arg.get_help().map(ToString::to_string).unwrap_or_default();
    if !arg.get_action().takes_values() {
        return text;
    }
    let names: Vec<String> = arg
        .get_possible_values()
        .iter()
        .filter(|value| !value.is_hide_set())
        .map(|value| format!("`{}`", value.get_name()))
        .collect();
    if !names.is_empty() {
        let _ = write!(text, ": {}", names.join(", "));
    }
    let defaults: Vec<_> =
        arg.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
    if !defaults.is_empty() {
        let _ = write!(text, " [default: {}]", defaults.join(" "));
    }
    text
}
