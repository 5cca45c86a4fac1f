//! gRPC's health check: of the server, or of a model by its name.

use std::pin::Pin;
use std::time::Duration;

use futures::{Stream, stream};
use salamander_proto::health::health_check_response::ServingStatus;
use salamander_proto::health::health_server::Health;
use salamander_proto::health::{HealthCheckRequest, HealthCheckResponse};
use tonic::{Request, Response, Status};

use crate::engine::Registry;

/// How often a watched state is looked at.
const LOOK: Duration = Duration::from_millis(500);

/// The name of the protocol's service.
const SERVICE: &str = "inference.GRPCInferenceService";

/// The health of a registry.
#[derive(Clone)]
pub(crate) struct HealthOf {
    pub(crate) registry: Registry,
}

impl HealthOf {
    fn state(&self, service: &str) -> ServingStatus {
        let serves = match service {
            "" | SERVICE => self.registry.is_ready(),
            model if self.registry.names().iter().any(|name| name == model) => {
                self.registry.version(model, None).is_ok()
            }
            _ => return ServingStatus::ServiceUnknown,
        };
        if serves { ServingStatus::Serving } else { ServingStatus::NotServing }
    }
}

#[tonic::async_trait]
impl Health for HealthOf {
    type WatchStream = Pin<Box<dyn Stream<Item = Result<HealthCheckResponse, Status>> + Send>>;

    async fn check(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        let service = request.into_inner().service;
        match self.state(&service) {
            ServingStatus::ServiceUnknown => {
                Err(Status::not_found(format!("there is no service \"{service}\"")))
            }
            state => Ok(Response::new(HealthCheckResponse { status: state.into() })),
        }
    }

    async fn watch(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let (own, service) = (self.clone(), request.into_inner().service);
        let states = stream::unfold(None, move |told: Option<ServingStatus>| {
            let (own, service) = (own.clone(), service.clone());
            async move {
                while told == Some(own.state(&service)) {
                    tokio::time::sleep(LOOK).await;
                }
                let state = own.state(&service);
                Some((Ok(HealthCheckResponse { status: state.into() }), Some(state)))
            }
        });
        Ok(Response::new(Box::pin(states)))
    }
}
