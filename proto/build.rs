//! Generates code for the messages in `salamander/v1` in pure Rust, so that nobody needs protoc.

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=salamander");
    let files = protox::compile(["salamander/v1/control.proto"], ["."])?;
    tonic_prost_build::configure().compile_fds(files)?;
    Ok(())
}
