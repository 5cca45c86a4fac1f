//! Goes on with a text by the best checkpoint of a trained GPT.
//!
//! `cargo run --release -p salamander-zoo --example generate runs/ID "To be"`

use model_zoo::text::gpt::GptBytes;
use salamander::models::gpt::Sampling;
use salamander::run::{Program, Which};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let program = Program::enter(salamander::models![GptBytes]);
    let mut arguments = std::env::args().skip(1);
    let run = arguments.next().ok_or("name the folder of a run")?;
    let text = arguments.next().ok_or("give a text to go on with")?;

    let trained = program.load(run, &Which::Best, "cpu")?;
    let exported = tempfile::tempdir()?;
    let gpt = GptBytes::trained(&trained, exported.path())?;
    // Another seed gives another text; a temperature of zero gives the most likely one.
    let how = Sampling { temperature: 0.8, top_k: Some(40), count: 300 };
    println!("{}", gpt.go_on(&text, how, 1)?);
    Ok(())
}
