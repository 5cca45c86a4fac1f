//! gRPC: the Open Inference Protocol and gRPC's own health check, over a registry.

mod convert;
mod counted;
mod health;
mod settings;

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, StreamExt};
use salamander_proto::health::health_server::HealthServer;
use salamander_proto::inference::grpc_inference_service_server::{
    GrpcInferenceService, GrpcInferenceServiceServer,
};
use salamander_proto::inference::{
    LogSettingsRequest, LogSettingsResponse, ModelConfigRequest, ModelConfigResponse,
    ModelInferRequest, ModelInferResponse, ModelMetadataRequest, ModelMetadataResponse,
    ModelReadyRequest, ModelReadyResponse, ModelStatisticsRequest, ModelStatisticsResponse,
    ModelStreamInferResponse, RepositoryIndexRequest, RepositoryIndexResponse,
    RepositoryModelLoadRequest, RepositoryModelLoadResponse, RepositoryModelUnloadRequest,
    RepositoryModelUnloadResponse, ServerLiveRequest, ServerLiveResponse, ServerMetadataRequest,
    ServerMetadataResponse, ServerReadyRequest, ServerReadyResponse, TraceSettingRequest,
    TraceSettingResponse, repository_index_response,
};
use tonic::codec::CompressionEncoding;
use tonic::metadata::MetadataMap;
use tonic::{Code, Request, Response, Status, Streaming};

use crate::engine::{ModelStatus, Registry, ServedVersion};
use crate::refusal::{Refusal, check_loading};
use crate::settings::LiveSettings;

pub(crate) use counted::{CountedBody, MessageRoom};

/// Requests of a stream that are computed at a time; their answers come in order.
const STREAMED: usize = 32;
/// Bytes before each message.
const FRAME: usize = 5;

/// The services of a server.
#[derive(Clone)]
pub(crate) struct Grpc {
    pub(crate) inference: GrpcInferenceServiceServer<Inference>,
    pub(crate) health: HealthServer<health::HealthOf>,
}

impl Grpc {
    /// Over a registry; messages have so many bytes at most.
    pub(crate) fn new(
        registry: Registry,
        settings: LiveSettings,
        most: usize,
        changes: bool,
    ) -> Self {
        let own = Inference { registry: registry.clone(), settings, changes };
        let inference = GrpcInferenceServiceServer::new(own);
        Self {
            inference: inference
                .max_decoding_message_size(most)
                .max_encoding_message_size(usize::MAX)
                .accept_compressed(CompressionEncoding::Gzip)
                .accept_compressed(CompressionEncoding::Deflate),
            health: HealthServer::new(health::HealthOf { registry }),
        }
    }
}

/// The protocol's service.
#[derive(Clone)]
pub(crate) struct Inference {
    registry: Registry,
    settings: LiveSettings,
    /// Whether calls are answered that change what is served.
    changes: bool,
}

impl Inference {
    fn may_change(&self) -> Result<(), Status> {
        match self.changes {
            true => Ok(()),
            false => Err(Status::permission_denied(
                "what is served is changed at the management address",
            )),
        }
    }

    async fn infer(
        &self,
        request: ModelInferRequest,
        deadline: Option<Duration>,
    ) -> Result<ModelInferResponse, Refusal> {
        let (id, model) = (request.id.clone(), request.model_name.clone());
        let version = Some(request.model_version.as_str()).filter(|version| !version.is_empty());
        self.registry.check_room(&model, version)?;
        let mut request = convert::request(request)?;
        request.timeout = match (request.timeout, deadline) {
            (Some(own), Some(deadline)) => Some(own.min(deadline)),
            (own, deadline) => own.or(deadline),
        };
        let response = self.registry.infer(request).await?;
        Ok(convert::response(model, id, response))
    }

    fn version(&self, model: &str, version: &str) -> Result<Arc<ServedVersion>, Status> {
        let version = Some(version).filter(|version| !version.is_empty());
        self.registry.version(model, version).map_err(status)
    }
}

type InferStream = Pin<Box<dyn Stream<Item = Result<ModelStreamInferResponse, Status>> + Send>>;

#[tonic::async_trait]
impl GrpcInferenceService for Inference {
    type ModelStreamInferStream = InferStream;

    async fn server_live(
        &self,
        _: Request<ServerLiveRequest>,
    ) -> Result<Response<ServerLiveResponse>, Status> {
        Ok(Response::new(ServerLiveResponse { live: true }))
    }

    async fn server_ready(
        &self,
        _: Request<ServerReadyRequest>,
    ) -> Result<Response<ServerReadyResponse>, Status> {
        Ok(Response::new(ServerReadyResponse { ready: self.registry.is_ready() }))
    }

    async fn model_ready(
        &self,
        request: Request<ModelReadyRequest>,
    ) -> Result<Response<ModelReadyResponse>, Status> {
        let ModelReadyRequest { name, version } = request.into_inner();
        Ok(Response::new(ModelReadyResponse { ready: self.version(&name, &version).is_ok() }))
    }

    async fn server_metadata(
        &self,
        _: Request<ServerMetadataRequest>,
    ) -> Result<Response<ServerMetadataResponse>, Status> {
        Ok(Response::new(ServerMetadataResponse {
            name: crate::http::SERVER.to_string(),
            version: env!("CARGO_PKG_VERSION").to_string(),
            extensions: crate::http::EXTENSIONS.map(str::to_string).into(),
        }))
    }

    async fn model_metadata(
        &self,
        request: Request<ModelMetadataRequest>,
    ) -> Result<Response<ModelMetadataResponse>, Status> {
        let ModelMetadataRequest { name, version } = request.into_inner();
        let version = self.version(&name, &version)?;
        let versions = self.registry.version_names(&name).map_err(status)?;
        Ok(Response::new(convert::metadata(name, versions, &version)))
    }

    async fn model_infer(
        &self,
        request: Request<ModelInferRequest>,
    ) -> Result<Response<ModelInferResponse>, Status> {
        let deadline = timeout(request.metadata());
        // Until it is answered.
        let room = request.extensions().get::<Arc<MessageRoom>>().cloned();
        let request = request.into_inner();
        if let Some(room) = &room {
            room.read(convert::memory(&request)).map_err(status)?;
        }
        let answer = self.infer(request, deadline).await;
        answer.map(Response::new).map_err(status)
    }

    async fn model_stream_infer(
        &self,
        request: Request<Streaming<ModelInferRequest>>,
    ) -> Result<Response<InferStream>, Status> {
        let own = self.clone();
        let room = request.extensions().get::<Arc<MessageRoom>>().cloned();
        let answers = request.into_inner().map(move |request| {
            let (own, room) = (own.clone(), room.clone());
            // At once, since messages are counted in their order.
            let held = match (&request, &room) {
                (Ok(request), Some(room)) => room.read(convert::memory(request)),
                _ => Ok(0),
            };
            async move {
                let request = request?;
                let id = request.id.clone();
                let answered = match &held {
                    Ok(_) => own.infer(request, None).await,
                    Err(refusal) => Err(refusal.clone()),
                };
                if let (Some(room), Ok(held)) = (room, held) {
                    room.give_back(held);
                }
                Ok(match answered {
                    Ok(answer) => ModelStreamInferResponse {
                        error_message: String::new(),
                        infer_response: Some(answer),
                    },
                    // The stream goes on: the id says whose error it is.
                    Err(refusal) => ModelStreamInferResponse {
                        error_message: refusal.to_string(),
                        infer_response: Some(ModelInferResponse {
                            id,
                            ..ModelInferResponse::default()
                        }),
                    },
                })
            }
        });
        Ok(Response::new(Box::pin(answers.buffered(STREAMED))))
    }

    async fn model_config(
        &self,
        request: Request<ModelConfigRequest>,
    ) -> Result<Response<ModelConfigResponse>, Status> {
        let ModelConfigRequest { name, version } = request.into_inner();
        let version = self.version(&name, &version)?;
        let config = convert::config(name, &version, self.registry.batching());
        Ok(Response::new(ModelConfigResponse { config: Some(config) }))
    }

    async fn model_statistics(
        &self,
        request: Request<ModelStatisticsRequest>,
    ) -> Result<Response<ModelStatisticsResponse>, Status> {
        let ModelStatisticsRequest { name, version } = request.into_inner();
        let model_stats = match name.is_empty() {
            false => {
                let version = self.version(&name, &version)?;
                vec![convert::statistics(name, &version)]
            }
            true => {
                let one =
                    |status: ModelStatus| Some(convert::statistics(status.name, &*status.version?));
                self.registry.list().into_iter().filter_map(one).collect()
            }
        };
        Ok(Response::new(ModelStatisticsResponse { model_stats }))
    }

    async fn repository_index(
        &self,
        request: Request<RepositoryIndexRequest>,
    ) -> Result<Response<RepositoryIndexResponse>, Status> {
        let only_ready = request.into_inner().ready;
        let entry = |ModelStatus { name, version, reason, .. }: ModelStatus| {
            let state = if version.is_some() { "READY" } else { "UNAVAILABLE" };
            repository_index_response::ModelIndex {
                name,
                version: version.map(|version| version.name.clone()).unwrap_or_default(),
                state: state.to_string(),
                reason: reason.unwrap_or_default(),
            }
        };
        let models = self.registry.list().into_iter();
        let wanted = models.filter(|status| !only_ready || status.version.is_some());
        Ok(Response::new(RepositoryIndexResponse { models: wanted.map(entry).collect() }))
    }

    async fn repository_model_load(
        &self,
        request: Request<RepositoryModelLoadRequest>,
    ) -> Result<Response<RepositoryModelLoadResponse>, Status> {
        self.may_change()?;
        let RepositoryModelLoadRequest { model_name: model, parameters, .. } = request.into_inner();
        check_loading(parameters.keys()).map_err(status)?;
        let registry = self.registry.clone();
        let loaded = tokio::task::spawn_blocking(move || registry.load(&model)).await;
        loaded.map_err(|error| Status::internal(error.to_string()))?.map_err(status)?;
        Ok(Response::new(RepositoryModelLoadResponse {}))
    }

    async fn repository_model_unload(
        &self,
        request: Request<RepositoryModelUnloadRequest>,
    ) -> Result<Response<RepositoryModelUnloadResponse>, Status> {
        self.may_change()?;
        self.registry.unload(&request.into_inner().model_name).map_err(status)?;
        Ok(Response::new(RepositoryModelUnloadResponse {}))
    }

    async fn trace_setting(
        &self,
        request: Request<TraceSettingRequest>,
    ) -> Result<Response<TraceSettingResponse>, Status> {
        let TraceSettingRequest { settings, model_name } = request.into_inner();
        if !model_name.is_empty() {
            self.version(&model_name, "")?;
        }
        LiveSettings::set_trace(&settings::trace_changes(settings)).map_err(status)?;
        Ok(Response::new(settings::trace(LiveSettings::trace())))
    }

    async fn log_settings(
        &self,
        request: Request<LogSettingsRequest>,
    ) -> Result<Response<LogSettingsResponse>, Status> {
        let changes = settings::log_changes(request.into_inner().settings);
        if !changes.is_empty() {
            self.may_change()?;
            self.settings.set_log(changes).map_err(status)?;
        }
        Ok(Response::new(settings::log(self.settings.log())))
    }
}

/// What a message holds.
pub(crate) fn decode(request: ModelInferRequest) -> Result<crate::input::Input, Refusal> {
    convert::request(request).map(|request| request.input)
}

/// The status of a refusal.
pub(crate) fn status(refusal: Refusal) -> Status {
    let code = match &refusal {
        Refusal::Invalid(_) | Refusal::Method(_) => Code::InvalidArgument,
        Refusal::Unauthorized => Code::Unauthenticated,
        Refusal::NotFound(_) => Code::NotFound,
        Refusal::Forbidden(_) => Code::PermissionDenied,
        Refusal::Conflict(_) => Code::AlreadyExists,
        Refusal::TooLarge(_) => Code::ResourceExhausted,
        Refusal::Busy(_) | Refusal::Unavailable(_) => Code::Unavailable,
        Refusal::Late | Refusal::Slow(_) => Code::DeadlineExceeded,
        Refusal::Unsupported(_) => Code::Unimplemented,
        Refusal::Failed(_) => Code::Internal,
    };
    Status::new(code, refusal.to_string())
}

/// The client's deadline: a number and a letter, as gRPC has it.
fn timeout(metadata: &MetadataMap) -> Option<Duration> {
    let text = metadata.get("grpc-timeout")?.to_str().ok()?;
    let (number, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let number: u64 = number.parse().ok()?;
    Some(match unit {
        "H" => Duration::from_secs(number.checked_mul(3600)?),
        "M" => Duration::from_secs(number.checked_mul(60)?),
        "S" => Duration::from_secs(number),
        "m" => Duration::from_millis(number),
        "u" => Duration::from_micros(number),
        "n" => Duration::from_nanos(number),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deadlines_are_read_as_grpc_writes_them() {
        let check = |text: &'static str, expected| {
            let mut metadata = MetadataMap::new();
            metadata.insert("grpc-timeout", text.parse().unwrap());
            assert_eq!(timeout(&metadata), expected, "{text}");
        };
        check("2S", Some(Duration::from_secs(2)));
        check("99999999u", Some(Duration::from_micros(99_999_999)));
        check("7", None);
        check("xS", None);
        assert_eq!(timeout(&MetadataMap::new()), None);
    }
}
