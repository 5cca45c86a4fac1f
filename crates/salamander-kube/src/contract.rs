//! What the operator (or a manifest) and the program in a job's image must agree on: the files and arguments of pods,
//! and what is written on the master's pod. Each change that one side must know of has a number; an image that is too
//! old is refused with a sentence instead of doing half of what the job says.
//!
//! | version | what came |
//! | --- | --- |
//! | 1 | the first |
//! | 2 | the job's secret has a name of its own; init containers, accounts, claims of devices, queues and gangs |

/// The version of this program.
pub const CONTRACT: u32 = 2;

/// The version of jobs and programs that name none.
pub(crate) fn first() -> u32 {
    1
}

/// Why a program cannot do what a job needs; nothing if it can.
pub fn refusal(needed: u32, program: u32) -> Option<String> {
    (program < needed).then(|| {
        format!(
            "the program in the image knows version {program} of the contract with the operator, and this job needs \
             {needed}: build the image with the operator's version of Salamander, or use an operator of the image's"
        )
    })
}
