//! Very many requests of all sizes to several models over sockets, as JSON, bytes and gRPC, some given up, some read
//! slowly: every answer is its request's own.
//!
//! `SALAMANDER_REQUESTS` says how many (6,000 unless it does).

use std::io::{BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::support::{Answer, Running, Times, read_answer, registry};
use salamander_proto::inference::ModelInferRequest;
use salamander_proto::inference::grpc_inference_service_client::GrpcInferenceServiceClient;
use salamander_proto::inference::model_infer_request::InferInputTensor;
use salamander_serve::{Batching, ServerOptions};
use serde_json::{Value as Json, json};
use tonic::transport::Endpoint;

const MODELS: [&str; 3] = ["a", "b", "c"];
const CLIENTS: u64 = 24;

fn requests() -> u64 {
    let said = std::env::var("SALAMANDER_REQUESTS").ok();
    said.map_or(6_000, |said| said.parse().expect("a number"))
}

/// A request: its records follow from its number, so that an answer tells whose it is. Model, size and encoding are
/// drawn by the number too, so that no client keeps any of them.
#[derive(Clone, Copy)]
struct Asked(u64);

impl Asked {
    /// One of so many, drawn for each aspect apart (SplitMix64: <https://doi.org/10.1145/2660193.2660195>).
    fn draw(self, aspect: u64, choices: u64) -> u64 {
        let mixed = (self.0 * 8 + aspect).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % choices
    }

    fn which(self) -> usize {
        self.draw(0, MODELS.len() as u64) as usize
    }

    fn model(self) -> &'static str {
        MODELS[self.which()]
    }

    fn is_json(self) -> bool {
        self.draw(1, 2) == 0
    }

    fn is_given_up(self) -> bool {
        self.draw(2, 11) == 0
    }

    /// Of those that are given up: only after the first bytes of an answer.
    fn has_begun(self) -> bool {
        self.draw(3, 2) == 0
    }

    fn is_read_slowly(self) -> bool {
        self.draw(4, 17) == 0
    }

    fn values(self) -> Vec<f32> {
        let rows = 1 + self.draw(5, 64);
        // Whole numbers below 2^24 are exact; 13 is none of them.
        (0..rows).map(|row| (100 + (self.0 * 64 + row) % 5_000_000) as f32).collect()
    }

    fn expected(self) -> Vec<f32> {
        let factor = (self.which() + 1) as f32;
        self.values().iter().map(|x| x * factor).collect()
    }

    /// As JSON, or as bytes behind it.
    fn http(self) -> Vec<u8> {
        let (values, model) = (self.values(), self.model());
        let shape = [values.len(), 1];
        let outputs = json!([{"name": "y"}]);
        let (head, body) = if self.is_json() {
            let input = json!({"name": "x", "shape": shape, "datatype": "FP32", "data": values});
            let body = json!({"id": self.0.to_string(), "inputs": [input], "outputs": outputs});
            (String::new(), body.to_string().into_bytes())
        } else {
            let raw: Vec<u8> = values.iter().flat_map(|x| x.to_le_bytes()).collect();
            let size = json!({"binary_data_size": raw.len()});
            let input =
                json!({"name": "x", "shape": shape, "datatype": "FP32", "parameters": size});
            let body = json!({
                "id": self.0.to_string(), "inputs": [input], "outputs": outputs,
                "parameters": {"binary_data_output": true},
            });
            let json = body.to_string();
            let head = format!("inference-header-content-length: {}\r\n", json.len());
            (head, [json.as_bytes(), &raw].concat())
        };
        let line = format!(
            "POST /v2/models/{model}/infer HTTP/1.1\r\nhost: x\r\n{head}content-length: {}\r\n\r\n",
            body.len()
        );
        [line.as_bytes(), &body].concat()
    }

    fn check(self, answer: &Answer) {
        let length = answer.header("inference-header-content-length");
        let length = length.map_or(answer.body.len(), |length| length.parse().unwrap());
        let (json, raw) = answer.body.split_at(length);
        let json: Json = serde_json::from_slice(json).unwrap();
        assert_eq!(json["id"], self.0.to_string());
        let found: Vec<f32> = match raw.is_empty() {
            true => serde_json::from_value(json["outputs"][0]["data"].clone()).unwrap(),
            false => raw.chunks(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect(),
        };
        assert_eq!(found, self.expected(), "request {}", self.0);
    }
}

/// What became of requests.
#[derive(Default)]
struct Became {
    answered: AtomicU64,
    refused: AtomicU64,
    given_up: AtomicU64,
}

/// A reader that takes a few bytes at a time.
struct SlowReader(TcpStream);

impl Read for SlowReader {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        std::thread::yield_now();
        let few = buffer.len().min(7);
        self.0.read(&mut buffer[..few])
    }
}

fn http_client(address: SocketAddr, numbers: impl Iterator<Item = u64>, became: &Became) {
    let connect = || TcpStream::connect(address).expect("connects");
    let mut stream = connect();
    for number in numbers {
        let asked = Asked(number);
        stream.write_all(&asked.http()).expect("sent");
        if asked.is_given_up() {
            // The connection with it.
            if asked.has_begun() {
                let _ = stream.read(&mut [0; 9]);
            }
            stream = connect();
            became.given_up.fetch_add(1, Ordering::Relaxed);
            continue;
        }
        let from = stream.try_clone().unwrap();
        let answer = match asked.is_read_slowly() {
            true => read_answer(&mut BufReader::with_capacity(16, SlowReader(from))),
            false => read_answer(&mut BufReader::new(from)),
        };
        match answer.status {
            200 => {
                asked.check(&answer);
                became.answered.fetch_add(1, Ordering::Relaxed);
            }
            503 => {
                became.refused.fetch_add(1, Ordering::Relaxed);
            }
            _ => panic!("request {number}: {answer:?}"),
        }
    }
}

fn grpc_client(address: SocketAddr, numbers: impl Iterator<Item = u64>, became: &Became) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
        let channel = endpoint.connect().await.expect("connects");
        let mut client = GrpcInferenceServiceClient::new(channel);
        for number in numbers {
            let (asked, values) = (Asked(number), Asked(number).values());
            let raw: Vec<u8> = values.iter().flat_map(|x| x.to_le_bytes()).collect();
            let request = ModelInferRequest {
                model_name: asked.model().to_string(),
                id: number.to_string(),
                inputs: vec![InferInputTensor {
                    name: "x".to_string(),
                    datatype: "FP32".to_string(),
                    shape: vec![values.len() as i64, 1],
                    ..InferInputTensor::default()
                }],
                raw_input_contents: vec![raw.into()],
                ..ModelInferRequest::default()
            };
            let asking = client.model_infer(request);
            let answer = match asked.is_given_up() {
                true => tokio::select! {
                    biased;
                    answer = asking => Some(answer),
                    () = tokio::task::yield_now() => None,
                },
                false => Some(asking.await),
            };
            match answer {
                None => {
                    became.given_up.fetch_add(1, Ordering::Relaxed);
                }
                Some(Ok(answer)) => {
                    let answer = answer.into_inner();
                    assert_eq!(answer.id, number.to_string());
                    let raw = &answer.raw_output_contents[0];
                    let found: Vec<f32> =
                        raw.chunks(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect();
                    assert_eq!(found, asked.expected(), "request {number}");
                    became.answered.fetch_add(1, Ordering::Relaxed);
                }
                Some(Err(status)) if status.code() == tonic::Code::Unavailable => {
                    became.refused.fetch_add(1, Ordering::Relaxed);
                }
                Some(Err(status)) => panic!("request {number}: {status}"),
            }
        }
    });
}

#[test]
fn every_answer_over_sockets_is_its_requests_own() {
    let models: Vec<Arc<Times>> = (1..4).map(|factor| Times::new(factor as f32)).collect();
    let pairs: Vec<(&str, &Arc<Times>)> = MODELS.into_iter().zip(&models).collect();
    let registry = registry(&pairs, Batching { queue: 16, ..Batching::default() });
    let server = Running::start(registry, ServerOptions::default());
    let (all, became, address) = (requests(), Became::default(), server.address);
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            let became = &became;
            let numbers = (client..all).step_by(CLIENTS as usize);
            scope.spawn(move || match client % 4 {
                0 => grpc_client(address, numbers, became),
                _ => http_client(address, numbers, became),
            });
        }
    });
    let [answered, refused, given_up] = [&became.answered, &became.refused, &became.given_up]
        .map(|one| one.load(Ordering::Relaxed));
    println!("{answered} answered, {refused} refused, {given_up} given up");
    assert_eq!(answered + refused + given_up, all);
    assert!(answered > all / 2 && given_up > 0, "{answered} answered, {given_up} given up");
}
