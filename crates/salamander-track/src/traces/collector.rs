//! A collector of OpenTelemetry: where it is, as the environment says, and what is sent to it: OTLP over HTTP, in JSON.

use std::env;

use reqwest::{Client, StatusCode, Url};
use serde_json::{Value, json};

use super::Error;
use crate::http;

/// What our spans are by, where nothing else is asked for.
const SERVICE: &str = "salamander";
/// Where the spans of a collector go.
const PATH: &str = "v1/traces";
/// As much of an answer that is an error as is told.
const SHOWN: usize = 300;

/// Where traces are sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collector {
    /// The address that spans are posted to.
    pub endpoint: String,
    /// The name of the service that they are of.
    pub service: String,
    /// What goes with each request, such as a key.
    headers: Vec<(String, String)>,
}

impl Collector {
    /// At this address, with nothing else.
    pub fn at(endpoint: &str) -> Self {
        let (endpoint, service) = (endpoint.to_string(), SERVICE.to_string());
        Self { endpoint, service, headers: Vec::new() }
    }

    /// The one that OpenTelemetry's own variables name, if they name one.
    pub fn from_environment() -> Option<Self> {
        Self::from_variables(|name| env::var(name).ok())
    }

    fn from_variables(get: impl Fn(&str) -> Option<String>) -> Option<Self> {
        let get = |name: &str| get(name).filter(|value| !value.trim().is_empty());
        let of_traces = |name: &str| {
            let own = get(&format!("OTEL_EXPORTER_OTLP_TRACES_{name}"));
            own.or_else(|| get(&format!("OTEL_EXPORTER_OTLP_{name}")))
        };
        let base = || {
            let base = get("OTEL_EXPORTER_OTLP_ENDPOINT")?;
            Some(format!("{}/{PATH}", base.trim_end_matches('/')))
        };
        let endpoint = get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT").or_else(base)?;
        let is_off = get("OTEL_SDK_DISABLED").is_some_and(|off| off.eq_ignore_ascii_case("true"));
        if is_off || get("OTEL_TRACES_EXPORTER").is_some_and(|exporter| exporter != "otlp") {
            return None;
        }
        if of_traces("PROTOCOL").as_deref() == Some("grpc") {
            tracing::warn!(
                "no traces: a collector is told over HTTP, and OTEL_EXPORTER_OTLP_PROTOCOL asks for grpc"
            );
            return None;
        }
        let headers = of_traces("HEADERS").unwrap_or_default();
        let service = get("OTEL_SERVICE_NAME").unwrap_or_else(|| SERVICE.to_string());
        Some(Self { endpoint, service, headers: pairs(&headers) })
    }

    /// Sends spans.
    pub(super) async fn send(&self, client: &Client, spans: &[Value]) -> Result<(), Error> {
        let service = json!({"key": "service.name", "value": {"stringValue": self.service}});
        let scope = json!({"name": SERVICE, "version": env!("CARGO_PKG_VERSION")});
        let body = json!({"resourceSpans": [{
            "resource": {"attributes": [service]},
            "scopeSpans": [{"scope": scope, "spans": spans}],
        }]});
        let url = Url::parse(&self.endpoint);
        let url = url.map_err(|error| Error::Refused(format!("{}: {error}", self.endpoint)))?;
        let request = client.post(url).header("content-type", "application/json");
        let request =
            self.headers.iter().fold(request, |request, (name, value)| request.header(name, value));
        let answer = request.body(body.to_string()).send().await.map_err(|error| {
            let reason = http::reasons(&error);
            if error.is_builder() { Error::Refused(reason) } else { Error::Away(reason) }
        })?;
        let status = answer.status();
        if status.is_success() {
            return Ok(());
        }
        let said = answer.text().await.unwrap_or_default();
        let said: String = said.chars().take(SHOWN).collect();
        let reason = format!("{status}: {said}");
        let passes = status.is_server_error()
            || matches!(status, StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS);
        Err(if passes { Error::Away(reason) } else { Error::Refused(reason) })
    }
}

/// `name=value` with commas between, as in an address: `%20` is a space.
fn pairs(text: &str) -> Vec<(String, String)> {
    let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
    let pair = |part: &str| {
        // A plus is one here.
        let address = format!("http://x/?{}", part.replace('+', "%2B"));
        let address = Url::parse(&address).ok()?;
        let (name, value) = address.query_pairs().next()?;
        Some((name.trim().to_string(), value.trim().to_string()))
    };
    parts.filter_map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(variables: &[(&str, &str)]) -> Option<Collector> {
        Collector::from_variables(|name| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_string())
        })
    }

    #[test]
    fn the_environment_says_where_a_collector_is() {
        const BASE: (&str, &str) = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318/");
        const OWN: (&str, &str) = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://d/traces");
        let endpoint = |variables: &[(&str, &str)]| of(variables).map(|found| found.endpoint);
        assert_eq!(endpoint(&[]), None);
        assert_eq!(endpoint(&[("OTEL_EXPORTER_OTLP_ENDPOINT", " ")]), None);
        assert_eq!(endpoint(&[BASE]).as_deref(), Some("http://c:4318/v1/traces"));
        assert_eq!(endpoint(&[BASE, OWN]).as_deref(), Some("http://d/traces"));
        assert_eq!(endpoint(&[BASE, ("OTEL_SDK_DISABLED", "true")]), None);
        assert_eq!(endpoint(&[BASE, ("OTEL_TRACES_EXPORTER", "none")]), None);
        assert_eq!(endpoint(&[BASE, ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")]), None);
        let headers = "authorization=Basic%20a+b=, x-team = vision";
        let found =
            of(&[BASE, ("OTEL_EXPORTER_OTLP_HEADERS", headers), ("OTEL_SERVICE_NAME", "digits")]);
        let found = found.expect("a collector");
        assert_eq!(found.service, "digits");
        assert_eq!(found.headers[0], ("authorization".to_string(), "Basic a+b=".to_string()));
        assert_eq!(found.headers.len(), 2);
    }
}
