//! Runs under fire at length: `cargo xtask chaos --seed S --minutes M`, with `--ps N` on parameter servers, with
//! `--async 1` without waiting for each other.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use tests::chaos::{Fire, run};

fn main() -> ExitCode {
    let number = |name: &str, default: u64| {
        let mut args = std::env::args().skip_while(|arg| arg != name).skip(1);
        args.next().and_then(|text| text.parse().ok()).unwrap_or(default)
    };
    let (mut seed, minutes) = (number("--seed", 1), number("--minutes", 0));
    let faults = number("--faults", 50) as usize;
    let program =
        std::env::current_exe().expect("this program").with_file_name("salamander-under-test");
    let until = Instant::now() + Duration::from_secs(minutes * 60);
    loop {
        let fire = Fire {
            seed,
            workers: number("--workers", 4) as u32,
            servers: number("--ps", 0) as u32,
            asynchronous: number("--async", 0) > 0,
            records: 10 * faults as u64 * 40 + 13,
            batch: 40,
            epochs: 3,
            faults,
            in_exchange: if faults >= 50 { 10 } else { 0 },
            delay_ms: 3,
            transport: if seed.is_multiple_of(3) { "tcp" } else { "auto" },
            loud: true,
        };
        println!(
            "seed {seed}: {} workers, {} parameter servers, {} records, {faults} faults",
            fire.workers, fire.servers, fire.records
        );
        let folder = tempfile::tempdir().expect("a folder");
        match run(&program, folder.path(), &fire) {
            Ok(story) => {
                let (hits, all) = (story.in_exchange(), story.faults.len());
                let (generations, restarts) =
                    (&story.summary["generations"], &story.summary["restarts"]);
                println!(
                    "seed {seed}: every record exactly {} times; {all} faults, {hits} in an exchange, \
                     {generations} generations, restarts {restarts}",
                    fire.epochs
                );
                if hits < 10 && faults >= 50 {
                    println!("seed {seed}: fewer than 10 faults hit an exchange");
                    return ExitCode::FAILURE;
                }
            }
            Err(error) => {
                let kept = folder.keep();
                println!("seed {seed} FAILED: {error}\nits files are in {}", kept.display());
                return ExitCode::FAILURE;
            }
        }
        seed += 1;
        if Instant::now() >= until {
            return ExitCode::SUCCESS;
        }
    }
}
