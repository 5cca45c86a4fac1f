//! The fuzz target's entries over random mutations of requests that are right, for those without a fuzzer. Set
//! `SALAMANDER_FUZZ_SECONDS` to go on for longer; the number of executions is printed.

use std::io::Write as _;
use std::time::{Duration, Instant};

use prost::Message as _;
use salamander_proto::inference::model_infer_request::InferInputTensor;
use salamander_proto::inference::{InferTensorContents, ModelInferRequest};
use salamander_serve::fuzzing;

/// The same numbers on every machine.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % bound.max(1)
    }
}

const WORDS: [&str; 16] = [
    "-1",
    "0",
    "18446744073709551615",
    "9223372036854775807",
    "1e400",
    "null",
    "\"BYTES\"",
    "\"BF16\"",
    "[[",
    "{}",
    "\"b64\"",
    "\"instances\"",
    "\"binary_data_size\"",
    "\\u0000",
    "true",
    "4294967296",
];

fn mutate(seed: &[u8], numbers: &mut Numbers) -> Vec<u8> {
    let mut bytes = seed.to_vec();
    for _ in 0..=numbers.below(6) {
        let at = numbers.below(bytes.len() + 1);
        match numbers.below(6) {
            0 if at < bytes.len() => bytes[at] ^= 1 << numbers.below(8),
            1 if at < bytes.len() => bytes[at] = numbers.below(256) as u8,
            2 => bytes.truncate(at),
            3 => {
                let word = WORDS[numbers.below(WORDS.len())].bytes();
                bytes.splice(at..at, word);
            }
            4 => {
                let end = (at + numbers.below(20)).min(bytes.len());
                bytes.drain(at..end);
            }
            _ => {
                let end = (at + numbers.below(40)).min(bytes.len());
                let copy = bytes[at..end].to_vec();
                bytes.splice(at..at, copy);
            }
        }
    }
    bytes
}

fn rest_seeds() -> Vec<(u16, Vec<u8>)> {
    let tensors = r#"{"id": "7", "parameters": {"timeout": 5}, "inputs": [
        {"name": "x", "shape": [2, 1], "datatype": "FP32", "data": [[1.5], [3]]},
        {"name": "t", "shape": [2], "datatype": "BYTES", "data": ["a", "b"]}],
        "outputs": [{"name": "y", "parameters": {"binary_data": true}}]}"#;
    let binary = r#"{"inputs": [
        {"name": "x", "shape": [1, 2], "datatype": "FP16", "parameters": {"binary_data_size": 4}},
        {"name": "t", "shape": [1], "datatype": "BYTES", "parameters": {"binary_data_size": 6}}]}"#;
    let raw = [0, 0x3c, 0, 0x40, 2, 0, 0, 0, b'h', b'i'];
    let records = r#"{"instances": [{"x": 1, "image": {"b64": "AP8="}}, {"x": [[1, 2], [3]]}]}"#;
    let form = "--XX\r\nContent-Disposition: form-data; name=\"data\"; filename=\"a\"\r\n\r\nhi\r\n\
        --XX\r\nContent-Disposition: form-data; name=\"age\"\r\n\r\n7\r\n--XX--\r\n";
    let packed = |text: &str| {
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packed.write_all(text.as_bytes()).unwrap();
        packed.finish().unwrap()
    };
    let length = (binary.len() as u16 + 1) << 2;
    vec![
        (0, tensors.into()),
        (length, [binary.as_bytes(), &raw].concat()),
        (0, records.into()),
        (0, r#"[{"text": "good"}, {"text": null}]"#.into()),
        (1, packed(tensors)),
        (3, form.into()),
    ]
}

fn grpc_seeds() -> Vec<Vec<u8>> {
    let input = |datatype: &str, contents| InferInputTensor {
        name: "x".to_string(),
        datatype: datatype.to_string(),
        shape: vec![2],
        contents,
        ..InferInputTensor::default()
    };
    let raw = ModelInferRequest {
        model_name: "m".to_string(),
        inputs: vec![input("FP32", None), input("BYTES", None)],
        raw_input_contents: vec![vec![0; 8].into(), vec![1, 0, 0, 0, b'a', 0, 0, 0, 0].into()],
        ..ModelInferRequest::default()
    };
    let contents =
        InferTensorContents { int_contents: vec![1, 2], ..InferTensorContents::default() };
    let typed = ModelInferRequest {
        inputs: vec![input("INT8", Some(contents))],
        ..ModelInferRequest::default()
    };
    vec![raw.encode_to_vec(), typed.encode_to_vec()]
}

#[test]
fn no_request_breaks_a_decoder() {
    let seconds = std::env::var("SALAMANDER_FUZZ_SECONDS").ok();
    let seconds = seconds.map(|seconds| Duration::from_secs(seconds.parse().unwrap()));
    let (rest, grpc) = (rest_seeds(), grpc_seeds());
    for (choice, seed) in &rest {
        assert!(fuzzing::rest(*choice, seed) > 0, "a right request is understood");
    }
    grpc.iter().for_each(|seed| assert_eq!(fuzzing::grpc(seed), 2));
    let (mut numbers, begin, mut executions, mut understood) =
        (Numbers(1), Instant::now(), 0u64, 0u64);
    while match seconds {
        Some(seconds) => begin.elapsed() < seconds,
        None => executions < 20_000,
    } {
        let (choice, seed) = &rest[numbers.below(rest.len())];
        let choice = if numbers.below(4) == 0 { numbers.below(1 << 16) as u16 } else { *choice };
        understood += u64::from(fuzzing::rest(choice, &mutate(seed, &mut numbers)) > 0);
        let seed = &grpc[numbers.below(grpc.len())];
        understood += u64::from(fuzzing::grpc(&mutate(seed, &mut numbers)) > 0);
        executions += 2;
    }
    println!("{executions} executions, {understood} understood");
    assert!(understood > 0);
}
