//! Searches whose trials are real: what a search costs beside its trials alone, whether idle slots are of use, and
//! whether a population finds a schedule that no single value is as good as.
//!
//! `cargo bench -p benches --bench trials [overhead|elastic|population]`; `SALAMANDER_PROGRAM` names another program to
//! measure than this one.
//!
//! # Layout
//! - `searched`: a search through the program, and the processor time that it and its trials took
//! - `overhead`: 200 short trials in a search, and each of them alone
//! - `elastic`: the last trial of a halving, with one slot and with all
//! - `population`: population based training beside random draws with as many steps

mod elastic;
mod overhead;
mod population;
mod searched;

use std::process::ExitCode;

use benches::{Record, as_program};

fn main() -> ExitCode {
    if let Some(code) = as_program() {
        return code;
    }
    // `cargo test --all-targets` starts benches as well, which only has to show that they build.
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if !arguments.iter().any(|argument| argument == "--bench") {
        return ExitCode::SUCCESS;
    }
    let asked = |name: &str| {
        let names = || arguments.iter().filter(|argument| !argument.starts_with("--"));
        names().count() == 0 || names().any(|argument| argument == name)
    };
    let record = Record::begin("trials");
    if asked("overhead") {
        overhead::measure(&record);
    }
    if asked("elastic") {
        elastic::measure(&record);
    }
    if asked("population") {
        population::measure(&record);
    }
    ExitCode::SUCCESS
}
