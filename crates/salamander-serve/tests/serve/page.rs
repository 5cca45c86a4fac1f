//! The page in a real browser: a digit is drawn, a sentence is typed, and what is shown is what the server says.
//!
//! Needs node, Debian's chromium, and `playwright-core` from npm in the folder that SALAMANDER_PLAYWRIGHT names
//! (`npm install --prefix DIR playwright-core`, then DIR/node_modules). Pictures go to SALAMANDER_SCREENSHOTS, if it is
//! set.

#[path = "../../../salamander-hub/tests/page/playwright.rs"]
mod playwright;

use std::process::Command;
use std::sync::Arc;

use playwright::playwright;

use crate::support::{self, Running, get, post};
use salamander_serve::{
    Batching, DataType, Decoded, Decoder, Failed, Input, Loaded, Metadata, Model, Registry,
    ServerOptions, ServingToken, Source, Tensor, TensorInfo, Values,
};

/// Counts the pixels of a picture that are not black, or the letters of a text.
#[derive(Clone, Copy)]
enum Counting {
    Pixels,
    Letters,
}

struct CountingDecoder(Counting, Metadata);

impl Decoder for CountingDecoder {
    fn metadata(&self) -> &Metadata {
        &self.1
    }

    fn decode(&self, input: &Input) -> Result<Decoded, String> {
        let mut counts: Vec<usize> = Vec::new();
        input.each(&mut |row| {
            counts.push(match self.0 {
                Counting::Letters => {
                    row.text("text").map_err(|error| error.to_string())?.chars().count()
                }
                Counting::Pixels => {
                    let pixels = row.ints("image").map_err(|error| error.to_string())?;
                    match pixels.len() {
                        784 => pixels.iter().filter(|pixel| **pixel > 0).count(),
                        other => return Err(format!("{other} pixels")),
                    }
                }
            });
            Ok(())
        })?;
        Ok(Decoded { rows: counts.len(), tokens: 0, value: Box::new(counts) })
    }
}

struct CountingModel;

impl Model for CountingModel {
    fn infer(&mut self, batch: Vec<Decoded>) -> Result<Vec<Tensor>, Failed> {
        let counts = batch.iter().flat_map(|own| own.value.downcast_ref::<Vec<usize>>().unwrap());
        let counts: Vec<i64> = counts.map(|count| *count as i64).collect();
        let rows = counts.len() as i64;
        let shares = counts.iter().flat_map(|count| [1.0 / (1.0 + *count as f32), 0.25]).collect();
        Ok(vec![
            Tensor::new("count", DataType::Int64, &[rows], Values::Ints(counts)).unwrap(),
            Tensor::new("shares", DataType::Fp32, &[rows, 2], Values::Floats(shares)).unwrap(),
        ])
    }
}

impl Source for Counting {
    fn newest(&self) -> Result<String, String> {
        Ok("step-7".to_string())
    }

    fn load(&self, _version: &str) -> Result<Loaded, String> {
        let info = |name: &str, datatype, shape| TensorInfo {
            name: name.to_string(),
            datatype,
            shape,
            optional: false,
        };
        let inputs = match self {
            Counting::Pixels => vec![info("image", DataType::Uint8, vec![1, 28, 28])],
            Counting::Letters => vec![info("text", DataType::Bytes, vec![])],
        };
        let outputs =
            vec![info("count", DataType::Int64, vec![]), info("shares", DataType::Fp32, vec![2])];
        let metadata = Metadata { platform: "counting".to_string(), inputs, outputs };
        let decoder = Arc::new(CountingDecoder(*self, metadata));
        Ok(Loaded { decoder, model: Box::new(CountingModel) })
    }
}

fn serve(options: ServerOptions) -> Running {
    let sources: [(String, Arc<dyn Source>); 2] = [
        ("digits".to_string(), Arc::new(Counting::Pixels)),
        ("reviews".to_string(), Arc::new(Counting::Letters)),
    ];
    let registry = Registry::new(sources, Batching::default());
    registry.names().iter().for_each(|name| drop(registry.load(name).unwrap()));
    Running::start(registry, options)
}

#[test]
fn a_digit_is_drawn_and_a_sentence_typed() {
    let Some(playwright) = playwright() else { return };
    let server = serve(ServerOptions::default());
    let mut command = Command::new("node");
    command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/serve/page.mjs"));
    command.env("URL", format!("http://{}", server.address)).env("PLAYWRIGHT", playwright);
    let output = command.output().expect("node");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn the_page_is_for_browsers_and_its_policy_allows_nothing_else() {
    let server = serve(ServerOptions::default());
    assert_eq!(get(server.address, "/").json()["status"], "alive");
    let head = "GET / HTTP/1.1\r\nhost: x\r\naccept: text/html\r\nconnection: close\r\n\r\n";
    let page = support::ask(server.address, head, b"");
    let text = String::from_utf8(page.body.clone()).unwrap();
    assert!(text.starts_with("<!doctype html>"), "{text}");
    assert!(!text.contains("onclick") && !text.contains("<style") && !text.contains("<script>"));
    assert!(page.header("content-security-policy").unwrap().starts_with("default-src 'none'"));
    assert_eq!(get(server.address, "/page/main.js").status, 200);
    assert_eq!(get(server.address, "/page/secret").status, 404);
}

#[test]
fn the_page_needs_no_token_but_its_questions_do() {
    let token = Some(ServingToken::new("open-sesame").unwrap());
    let server = serve(ServerOptions { token, ..ServerOptions::default() });
    let head = "GET / HTTP/1.1\r\nhost: x\r\naccept: text/html\r\nconnection: close\r\n\r\n";
    assert_eq!(support::ask(server.address, head, b"").status, 200);
    assert_eq!(get(server.address, "/page/style.css").status, 200);
    assert_eq!(post(server.address, "/v2/repository/index", "", b"").status, 401);
}
