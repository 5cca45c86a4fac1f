//! Errors as MLflow's clients expect them.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::json;

use crate::Error;

/// Why a request of a client is not answered: a code that clients look at, and a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MlflowRefusal {
    status: u16,
    code: &'static str,
    message: String,
}

impl MlflowRefusal {
    pub(super) fn invalid(message: impl Into<String>) -> Self {
        Self { status: 400, code: "INVALID_PARAMETER_VALUE", message: message.into() }
    }

    /// Clients rely on it, for example to make an experiment that is not there.
    pub(super) fn missing(message: impl Into<String>) -> Self {
        Self { status: 404, code: "RESOURCE_DOES_NOT_EXIST", message: message.into() }
    }

    pub(super) fn exists(message: impl Into<String>) -> Self {
        Self { status: 400, code: "RESOURCE_ALREADY_EXISTS", message: message.into() }
    }

    pub(super) fn state(message: impl Into<String>) -> Self {
        Self { status: 400, code: "INVALID_STATE", message: message.into() }
    }

    pub(super) fn no_endpoint(path: &str) -> Self {
        let message = format!("this hub has no {path}: it keeps runs and models, no traces");
        Self { status: 404, code: "ENDPOINT_NOT_FOUND", message }
    }
}

impl From<Error> for MlflowRefusal {
    fn from(error: Error) -> Self {
        let status = error.status();
        let code = match status {
            400 | 409 => "INVALID_PARAMETER_VALUE",
            404 => "RESOURCE_DOES_NOT_EXIST",
            401 => "UNAUTHENTICATED",
            403 => "PERMISSION_DENIED",
            429 => "REQUEST_LIMIT_EXCEEDED",
            503 => "TEMPORARILY_UNAVAILABLE",
            _ => "INTERNAL_ERROR",
        };
        Self { status, code, message: error.to_string() }
    }
}

impl IntoResponse for MlflowRefusal {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let body = json!({"error_code": self.code, "message": self.message});
        (status, Json(body)).into_response()
    }
}
