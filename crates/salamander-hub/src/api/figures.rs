//! What Prometheus asks a hub for.

use std::fmt::Write;

use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};

use super::Api;
use super::reply::ask;

/// Figures in the text format of Prometheus.
pub(super) async fn figures(State(api): State<Api>) -> Response {
    let change = api.hub.store().change();
    let counted = ask(&api, |store| Ok((store.count("experiments")?, store.count("runs")?))).await;
    let (experiments, runs) = match counted {
        Ok(counted) => counted,
        Err(error) => return error.into_response(),
    };
    let mut text = String::new();
    for (name, counts) in [("experiments", experiments), ("runs", runs)] {
        let _ = writeln!(text, "# TYPE salamander_hub_{name} gauge");
        for (state, count) in counts {
            let _ = writeln!(text, "salamander_hub_{name}{{state=\"{state}\"}} {count}");
        }
    }
    let _ = writeln!(text, "# TYPE salamander_hub_changes counter");
    let _ = writeln!(text, "salamander_hub_changes_total {change}");
    let _ = writeln!(text, "# TYPE salamander_hub_event_streams gauge");
    let open = super::STREAMS - api.streams.available_permits();
    let _ = writeln!(text, "salamander_hub_event_streams {open}");
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response()
}
