//! The program `salamander`: every subcommand for every model of the zoo.

use std::process::ExitCode;

/// A step frees as much as it takes: the system's allocator would give that back and fault it in again each time.
#[cfg(feature = "mimalloc")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    #[cfg(feature = "mimalloc")]
    model_zoo::memory::keep_for(std::env::args_os().nth(1).as_deref());
    #[cfg(feature = "flow")]
    return salamander::main_with_flows(model_zoo::models(), model_zoo::flow::flows());
    #[cfg(not(feature = "flow"))]
    salamander::main(model_zoo::models())
}
