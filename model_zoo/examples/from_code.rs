//! Trains with three workers from code, kills one of them, and uses what was trained; there is no command line in it.
//!
//! `cargo run --release --example from_code model_zoo/mnist/mlp.yaml model_zoo/mnist/data/mnist-valid.recordio`

use model_zoo::mnist::mlp::Mlp;
use salamander::run::{Event, Overrides, Program, Report, Which, Workers};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // First of all: the master and the workers are this program again, and do their part in here.
    let program = Program::enter(salamander::models![Mlp]);
    let mut arguments = std::env::args().skip(1);
    let experiment = arguments.next().ok_or("name an experiment file")?;
    let data = arguments.next().ok_or("name a file to predict")?;
    let runs = arguments.next().unwrap_or("runs".to_string());

    let overrides = Overrides { workers: Some(Workers { min: 1, max: 3 }), ..Default::default() };
    let run = program.experiment(experiment, &overrides, runs)?.start()?;
    let mut killed = false;
    for event in run.events() {
        match event {
            Event::Report(Report::Step(step)) if step.steps.0 >= 3 && !killed => {
                killed = true;
                run.workers().first().ok_or("there are no workers")?.kill()?;
            }
            Event::Report(Report::Epoch(epoch)) => println!("trained {} steps", epoch.steps),
            _ => {}
        }
    }
    let finished = run.wait()?;
    println!("workers started again: {}", finished.facts.worker_restarts);

    let model = program.load(finished.run.folder(), &Which::Latest, "cpu")?;
    let predicted = model.predict(&[data], &mut |_batch| Ok(()))?;
    println!("predicted {} records", predicted.records);
    Ok(())
}
