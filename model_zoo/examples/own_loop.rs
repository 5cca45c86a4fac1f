//! Runs the hand-written loop of the zoo on its digits.

use std::path::Path;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let digits = Path::new(env!("CARGO_MANIFEST_DIR")).join("mnist/data");
    let out = std::env::temp_dir();
    model_zoo::own_loop::train(&digits, &out, 3)?;
    println!("weights in {}", out.join("model.safetensors").display());
    Ok(())
}
