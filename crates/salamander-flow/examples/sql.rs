//! SQL over files into shards by the library alone, with the arguments of `salamander flow sql`: what benches/flow.rs
//! measures on machines that cannot spend a release build of everything (benches/flow_profile.toml).

use std::path::PathBuf;
use std::process::ExitCode;

use salamander_flow::flow::{FlowCall, FlowJob, Flows};

/// The allocator of the program `salamander`.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match run(&words) {
        Ok(line) => {
            println!("{line}");
            ExitCode::SUCCESS
        }
        Err(reason) => {
            eprintln!("error: {reason}");
            ExitCode::FAILURE
        }
    }
}

fn run(words: &[String]) -> Result<String, String> {
    let [flow, sql, query, options @ ..] = words else { return Err(usage("")) };
    if (flow.as_str(), sql.as_str()) != ("flow", "sql") {
        return Err(usage(""));
    }
    let mut job = FlowJob { call: FlowCall::Sql(query.clone()), ..FlowJob::named("", &[]) };
    let mut out = None;
    for option in options.chunks(2) {
        let [name, value] = option else { return Err(usage(&option[0])) };
        let number = || value.parse::<u64>().map_err(|error| format!("{name} {value}: {error}"));
        match name.as_str() {
            "--out" => out = Some(PathBuf::from(value)),
            "--shards" => job.sink.shards = Some(number()?),
            "--shuffle" => job.sink.shuffle = Some(number()?),
            "--memory" => job.memory = Some((number()? as usize) << 20),
            _ => return Err(usage(name)),
        }
    }
    let out = out.ok_or_else(|| usage("--out is missing"))?;
    let made = job.run_here(&Flows::default(), &out).map_err(|error| error.to_string())?;
    Ok(format!("{} rows in {} shards: {}", made.rows, made.shards, made.dir.display()))
}

fn usage(wrong: &str) -> String {
    format!("{wrong}: sql flow sql QUERY --out DIR [--shards N] [--shuffle SEED] [--memory MB]")
}
