//! A small BERT of Hugging Face, which several tests fine-tune.

use std::fs;
use std::path::Path;

use salamander::models::foreign;

/// The fixture of salamander-models, with places for texts of the zoo's length.
pub(crate) fn tiny_bert(to: &Path) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../crates/salamander-models/tests/fixtures/bert");
    fs::create_dir(to).expect("made");
    fs::copy(source.join("tokenizer.json"), to.join("tokenizer.json")).expect("copied");
    let config = fs::read_to_string(source.join("config.json")).expect("a fixture");
    let (short, long) = ("\"max_position_embeddings\": 24", "\"max_position_embeddings\": 128");
    fs::write(to.join("config.json"), config.replace(short, long)).expect("written");
    let mut tensors = foreign::read(&source.join("model.safetensors")).expect("read");
    let name = "bert.embeddings.position_embeddings.weight";
    let rows: Vec<f32> = tensors[name].iter::<f32>().collect();
    let rows: Vec<f32> = (0..128 * 32).map(|at| rows[at % rows.len()]).collect();
    let data = salamander::burn::tensor::TensorData::new(rows, [128, 32]);
    tensors.insert(name.to_string(), data);
    foreign::write(&to.join("model.safetensors"), &tensors).expect("written");
}
