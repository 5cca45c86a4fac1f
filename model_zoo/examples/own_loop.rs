//! Runs the hand-written loop of the zoo on its digits.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let digits = concat!(env!("CARGO_MANIFEST_DIR"), "/mnist/data");
    let out = std::env::temp_dir();
    model_zoo::own_loop::train(digits, &out.to_string_lossy(), 3)?;
    println!("weights in {}", out.join("model.safetensors").display());
    Ok(())
}
