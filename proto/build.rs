//! Generates code for the messages in `salamander/v1`, and for those of serving, in pure Rust: nobody needs protoc.
//! protoc.

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    for folder in ["salamander", "inference", "health"] {
        println!("cargo::rerun-if-changed={folder}");
    }
    let files = protox::compile(["salamander/v1/control.proto"], ["."])?;
    tonic_prost_build::configure().compile_fds(files)?;
    let files = protox::compile(["inference/service.proto", "health/health.proto"], ["."])?;
    // Tensors are not copied out of what was received, whose fields are counted before.
    let codec = "crate::bounded::BoundedCodec";
    tonic_prost_build::configure().bytes(".inference").codec_path(codec).compile_fds(files)?;
    Ok(())
}
