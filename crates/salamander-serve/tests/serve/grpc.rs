//! gRPC as clients see it, on the port of REST.

use std::time::Duration;

use crate::support::{Running, Times, get, registry};
use salamander_proto::health::HealthCheckRequest;
use salamander_proto::health::health_client::HealthClient;
use salamander_proto::inference::grpc_inference_service_client::GrpcInferenceServiceClient;
use salamander_proto::inference::model_infer_request::{
    InferInputTensor, InferRequestedOutputTensor,
};
use salamander_proto::inference::{
    InferTensorContents, ModelConfigRequest, ModelInferRequest, ModelMetadataRequest,
    ModelReadyRequest, ModelRepositoryParameter, ModelStatisticsRequest, RepositoryIndexRequest,
    RepositoryModelLoadRequest, RepositoryModelUnloadRequest, ServerMetadataRequest,
    ServerReadyRequest,
};
use salamander_serve::{Batching, ServerOptions};
use tonic::codec::CompressionEncoding;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request};

type Inference = GrpcInferenceServiceClient<Channel>;

struct Client {
    runtime: tokio::runtime::Runtime,
    channel: Channel,
    inference: Inference,
}

fn client(server: &Running) -> Client {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let endpoint = Endpoint::from_shared(format!("http://{}", server.address)).unwrap();
    let channel = runtime.block_on(endpoint.connect()).expect("connects");
    Client { runtime, inference: GrpcInferenceServiceClient::new(channel.clone()), channel }
}

fn request(id: &str, values: &[f32]) -> ModelInferRequest {
    let raw: Vec<u8> = values.iter().flat_map(|x| x.to_le_bytes()).collect();
    ModelInferRequest {
        model_name: "double".to_string(),
        id: id.to_string(),
        inputs: vec![InferInputTensor {
            name: "x".to_string(),
            datatype: "FP32".to_string(),
            shape: vec![values.len() as i64, 1],
            ..InferInputTensor::default()
        }],
        outputs: vec![InferRequestedOutputTensor {
            name: "y".to_string(),
            ..InferRequestedOutputTensor::default()
        }],
        raw_input_contents: vec![raw.into()],
        ..ModelInferRequest::default()
    }
}

fn floats(raw: &[u8]) -> Vec<f32> {
    raw.chunks(4).map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap())).collect()
}

#[test]
fn every_call_is_answered_on_the_port_of_rest() {
    let model = Times::new(2.0);
    let registry = registry(&[("double", &model)], Batching::default());
    let server = Running::start(registry, ServerOptions::default());
    let Client { runtime, channel, mut inference } = client(&server);
    runtime.block_on(async {
        let ready = inference.server_ready(ServerReadyRequest {}).await.unwrap().into_inner();
        assert!(ready.ready);
        let about = inference.server_metadata(ServerMetadataRequest {}).await.unwrap().into_inner();
        assert_eq!(about.name, "salamander");
        let name = || "double".to_string();
        let version = String::new;
        let ready = ModelReadyRequest { name: name(), version: version() };
        assert!(inference.model_ready(ready).await.unwrap().into_inner().ready);
        let metadata = ModelMetadataRequest { name: name(), version: version() };
        let metadata = inference.model_metadata(metadata).await.unwrap().into_inner();
        assert_eq!(
            (metadata.inputs[0].shape.as_slice(), metadata.versions.len()),
            (&[-1, 1][..], 1)
        );
        let config = ModelConfigRequest { name: name(), version: version() };
        let config = inference.model_config(config).await.unwrap().into_inner().config.unwrap();
        assert_eq!((config.max_batch_size, config.input[0].data_type), (64, 11));
        let answer = inference.model_infer(request("7", &[1.5, 2.0])).await.unwrap().into_inner();
        assert_eq!((answer.id.as_str(), answer.model_version.as_str()), ("7", "1"));
        assert_eq!(floats(&answer.raw_output_contents[0]), [3.0, 4.0]);
        let mut typed = request("", &[]);
        typed.raw_input_contents.clear();
        typed.inputs[0].shape = vec![1, 1];
        typed.inputs[0].contents =
            Some(InferTensorContents { fp32_contents: vec![4.0], ..Default::default() });
        let answer = inference.model_infer(typed).await.unwrap().into_inner();
        assert_eq!(floats(&answer.raw_output_contents[0]), [8.0]);
        let stats = ModelStatisticsRequest { name: name(), version: version() };
        let stats = inference.model_statistics(stats).await.unwrap().into_inner();
        assert_eq!(stats.model_stats[0].inference_count, 3);
        let health = HealthCheckRequest { service: String::new() };
        let mut healthy = HealthClient::new(channel.clone());
        assert_eq!(healthy.check(health.clone()).await.unwrap().into_inner().status, 1);
        let mut watched = healthy.watch(health).await.unwrap().into_inner();
        assert_eq!(watched.message().await.unwrap().unwrap().status, 1);
        let unload = RepositoryModelUnloadRequest { model_name: name(), ..Default::default() };
        inference.repository_model_unload(unload).await.unwrap();
        assert_eq!(watched.message().await.unwrap().unwrap().status, 2);
        let refused = inference.model_infer(request("", &[1.0])).await.unwrap_err();
        assert_eq!(refused.code(), Code::Unavailable);
        let index = inference.repository_index(RepositoryIndexRequest::default()).await.unwrap();
        assert_eq!(index.into_inner().models[0].state, "UNAVAILABLE");
        let load = RepositoryModelLoadRequest { model_name: name(), ..Default::default() };
        let mut with = load.clone();
        with.parameters.insert("config".to_string(), ModelRepositoryParameter::default());
        let refused = inference.repository_model_load(with).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");
        inference.repository_model_load(load).await.unwrap();
        assert!(inference.model_infer(request("", &[1.0])).await.is_ok());
    });
    assert_eq!(get(server.address, "/v2/health/ready").status, 200);
}

#[test]
fn a_stream_is_answered_in_order_and_survives_mistakes() {
    let model = Times::new(2.0);
    let registry = registry(&[("double", &model)], Batching::default());
    let server = Running::start(registry, ServerOptions::default());
    let Client { runtime, mut inference, .. } = client(&server);
    runtime.block_on(async {
        let all: Vec<ModelInferRequest> = (0..100)
            .map(|number| request(&number.to_string(), &vec![number as f32; 1 + number % 5]))
            .collect();
        let mut answers =
            inference.model_stream_infer(futures::stream::iter(all)).await.unwrap().into_inner();
        for number in 0..100usize {
            let answer = answers.message().await.unwrap().expect("an answer each");
            let response = answer.infer_response.unwrap();
            assert_eq!(response.id, number.to_string());
            match number {
                13 => assert_eq!(answer.error_message, "13 brings bad luck"),
                _ => {
                    let expected = vec![number as f32 * 2.0; 1 + number % 5];
                    assert_eq!(floats(&response.raw_output_contents[0]), expected);
                }
            }
        }
        assert!(answers.message().await.unwrap().is_none());
    });
}

#[test]
fn mistakes_have_their_codes() {
    let model = Times::new(2.0);
    let registry = registry(&[("double", &model)], Batching::default());
    let options = ServerOptions { body: 1000, ..ServerOptions::default() };
    let server = Running::start(registry, options);
    let Client { runtime, mut inference, .. } = client(&server);
    runtime.block_on(async {
        let mut check = async |request: ModelInferRequest, code: Code, expected: &str| {
            let status = inference.model_infer(request).await.unwrap_err();
            assert_eq!(status.code(), code, "{status}");
            assert!(status.message().contains(expected), "{status}");
        };
        let nobody = ModelInferRequest { model_name: "nobody".to_string(), ..request("", &[1.0]) };
        check(nobody, Code::NotFound, "there is no model \"nobody\"").await;
        let mut short = request("", &[1.0]);
        short.inputs[0].shape = vec![i64::MAX, 4];
        check(short, Code::InvalidArgument, "does not fit 1 values").await;
        let mut several = request("", &[1.0]);
        several.raw_input_contents.push(Default::default());
        check(several, Code::InvalidArgument, "2 raw contents for 1 inputs").await;
        let mut misspelt = request("", &[1.0]);
        misspelt.inputs[0].name = "X".to_string();
        check(misspelt, Code::InvalidArgument, "there is no input \"X\" (there are: x)").await;
        let mut twice = request("", &[1.0]);
        twice.inputs.push(twice.inputs[0].clone());
        twice.raw_input_contents.push(twice.raw_input_contents[0].clone());
        check(twice, Code::InvalidArgument, "input \"x\" is there twice").await;
        check(request("", &[0.0; 1000]), Code::OutOfRange, "").await;
        model.gate.close();
        let mut late = Request::new(request("", &[1.0]));
        late.set_timeout(Duration::from_millis(20));
        let status = inference.model_infer(late).await.unwrap_err();
        assert!(matches!(status.code(), Code::DeadlineExceeded | Code::Cancelled), "{status}");
        model.gate.open();
    });
}

#[test]
fn messages_share_the_room_of_bodies_and_give_it_back() {
    share_the_room(|inference| inference);
}

#[test]
fn packed_messages_take_the_room_that_they_have_unpacked() {
    share_the_room(|inference| inference.send_compressed(CompressionEncoding::Gzip));
}

/// Messages of gRPC and bodies of REST take of one room: what all send at a time has one bound.
fn share_the_room(sending: impl Fn(Inference) -> Inference) {
    let model = Times::new(2.0);
    let registry = registry(&[("double", &model)], Batching::default());
    let options = ServerOptions { body: 20_000, bodies: 20_000, ..ServerOptions::default() };
    let server = Running::start(registry.clone(), options);
    let Client { runtime, channel, inference } = client(&server);
    let mut inference = sending(inference);
    let large = || request("", &vec![1.0; 3_000]);
    model.gate.close();
    let mut other = sending(GrpcInferenceServiceClient::new(channel));
    let held = runtime.spawn(async move { other.model_infer(large()).await });
    // One that is computed has its room until it is answered.
    let refused = runtime.block_on(async {
        let mut held = held;
        loop {
            tokio::task::yield_now().await;
            if model.gate.held.load(std::sync::atomic::Ordering::SeqCst) {
                break;
            }
            assert!(!held.is_finished());
            let _ = tokio::time::timeout(Duration::from_millis(1), &mut held).await;
        }
        let refused = inference.model_infer(large()).await.unwrap_err();
        model.gate.open();
        held.await.unwrap().unwrap();
        refused
    });
    assert_eq!(refused.code(), Code::Unavailable, "{refused}");
    runtime.block_on(async {
        // Far more than the room, one after the other and over a stream.
        for _ in 0..10 {
            inference.model_infer(large()).await.unwrap();
        }
        let all: Vec<ModelInferRequest> = (0..40).map(|_| request("", &[1.0; 100])).collect();
        let answers = inference.model_stream_infer(futures::stream::iter(all)).await.unwrap();
        let mut answers = answers.into_inner();
        let mut count = 0;
        while let Some(answer) = answers.message().await.unwrap() {
            assert_eq!(answer.error_message, "");
            count += 1;
        }
        assert_eq!(count, 40);
    });
}

/// Each text is four bytes at least in a message, and more in memory.
#[test]
fn texts_take_the_room_that_they_have_in_memory() {
    let registry = registry(&[("double", &Times::new(2.0))], Batching::default());
    let options = ServerOptions { body: 20_000, bodies: 20_000, ..ServerOptions::default() };
    let server = Running::start(registry, options);
    let Client { runtime, mut inference, .. } = client(&server);
    let texts = |count: usize, raw: bool| {
        let mut request = request("", &[]);
        request.inputs[0].datatype = "BYTES".to_string();
        request.inputs[0].shape = vec![count as i64, 1];
        let (packed, contents) = (vec![0; 4 * count], vec![Default::default(); count]);
        request.raw_input_contents = if raw { vec![packed.into()] } else { Vec::new() };
        let contents = InferTensorContents { bytes_contents: contents, ..Default::default() };
        request.inputs[0].contents = (!raw).then_some(contents);
        request
    };
    runtime.block_on(async {
        for raw in [true, false] {
            let refused = inference.model_infer(texts(1000, raw)).await.unwrap_err();
            assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
            assert!(refused.message().contains("take too much memory"), "{refused}");
            // These fit; the model takes numbers only.
            let refused = inference.model_infer(texts(100, raw)).await.unwrap_err();
            assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");
        }
    });
}
