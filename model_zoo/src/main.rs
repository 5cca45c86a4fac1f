//! The program `salamander`: every subcommand for every model of the zoo.

use std::process::ExitCode;

fn main() -> ExitCode {
    salamander::main(model_zoo::models())
}
