//! The dashboard: one page out of the program, without a build step and without anything from elsewhere.
//!
//! The page is static: scripts, a style and a frame. All that it shows it asks the API for. Its policy allows no
//! script, style or request but the hub's own, so that a name of a run that is a piece of HTML stays a name.
//!
//! # Layout
//! - `main.js`: which view the address names; `api.js`: asks and follows the hub; `dom.js`: elements, text only
//! - `view_*.js`: one file for each view; `run_*.js`: the parts of a run; `actions.js`, `dialog.js`: what is asked
//!   first
//! - `table.js`, `chart.js`, `curves.js`, `plot_*.js`, `canvas.js`: what views are made of
//! - `curve.js`, `raster.js`, `filter.js`, `format.js`, `diff.js`, `trials.js`, `run_events.js`: pure, tried
//!   without a browser

use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use salamander_core::layout::RunLayout;

use crate::api::{Api, guarded, router};
use crate::ids::RunId;
use crate::{Error, Hub};

/// Nothing but the hub's own files and answers; no scripts or styles within the page.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; \
    connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
/// A report of more bytes is not sent.
const LARGEST_REPORT: u64 = 16 << 20;

const SCRIPT: &str = "text/javascript; charset=utf-8";

/// A file of the page: its name, its kind, its text.
macro_rules! scripts {
    ($($name:literal),* $(,)?) => {
        [$(($name, SCRIPT, include_str!($name)),)* ("style.css", "text/css; charset=utf-8", include_str!("style.css"))]
    };
}

const FILES: [(&str, &str, &str); 32] = scripts![
    "actions.js",
    "api.js",
    "canvas.js",
    "chart.js",
    "curve.js",
    "curves.js",
    "dialog.js",
    "diff.js",
    "dom.js",
    "filter.js",
    "format.js",
    "main.js",
    "plot_parallel.js",
    "plot_scatter.js",
    "plot_trials.js",
    "raster.js",
    "run_confusion.js",
    "run_events.js",
    "run_logs.js",
    "run_members.js",
    "run_profiler.js",
    "table.js",
    "trials.js",
    "view_cluster.js",
    "view_compare.js",
    "view_experiments.js",
    "view_models.js",
    "view_pipelines.js",
    "view_run.js",
    "view_runs.js",
    "view_search.js",
];

/// The API with the page in front of it.
pub fn with_page(api: &Api) -> Router {
    let report =
        Router::new().route("/api/v1/runs/{id}/report", get(report)).with_state(api.clone());
    router(api)
        .merge(guarded(api, report))
        .route("/", get(|| async { page("text/html; charset=utf-8", include_str!("index.html")) }))
        .route("/page/{file}", get(file))
}

async fn file(Path(name): Path<String>) -> Response {
    match FILES.iter().find(|(known, ..)| *known == name) {
        Some((_, kind, text)) => page(kind, text),
        None => Error::NotFound(format!("the page has no {name}")).into_response(),
    }
}

fn page(kind: &'static str, text: &'static str) -> Response {
    let mut headers = HeaderMap::new();
    for (name, value) in [
        (header::CONTENT_TYPE, kind),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        // Another version of the program has another page.
        (header::CACHE_CONTROL, "no-cache"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    (StatusCode::OK, headers, text).into_response()
}

/// How good a classifier is, by class; null where a run has no report.
async fn report(State(api): State<Api>, Path(id): Path<String>) -> Response {
    let id = match id.parse::<RunId>() {
        Ok(id) => id,
        Err(error) => return error.into_response(),
    };
    let hub = api.hub.clone();
    let read = tokio::task::spawn_blocking(move || read_report(&hub, id)).await;
    match read.unwrap_or(Err(Error::Closed)) {
        Ok(report) => Json(report).into_response(),
        Err(error) => error.into_response(),
    }
}

fn read_report(hub: &Hub, id: RunId) -> Result<serde_json::Value, Error> {
    let path = RunLayout::new(hub.runs().join(hub.store().run_folder(id)?)).report();
    let size = std::fs::metadata(&path).map_or(0, |file| file.len());
    if size == 0 || size > LARGEST_REPORT {
        return Ok(serde_json::Value::Null);
    }
    let bytes = std::fs::read(&path).map_err(Error::io(&path))?;
    // It may be being written.
    Ok(serde_json::from_slice(&bytes).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_that_the_page_names_is_there() {
        let known = |name: &str| FILES.iter().any(|(file, ..)| *file == name);
        let named = |text: &str, before: &str| -> Vec<String> {
            let parts = text.split(before).skip(1);
            parts.filter_map(|rest| rest.split('"').next().map(str::to_string)).collect()
        };
        let mut all = named(include_str!("index.html"), "\"/page/");
        for (_, kind, text) in FILES {
            if kind == SCRIPT {
                all.extend(named(text, "from \"./"));
            }
        }
        assert!(all.len() > 30, "{all:?}");
        for name in all {
            assert!(known(&name), "{name}");
        }
    }

    #[test]
    fn no_value_becomes_markup_and_nothing_is_fetched_from_elsewhere() {
        for (name, _, text) in FILES {
            for forbidden in [
                "innerHTML",
                "outerHTML",
                "insertAdjacentHTML",
                "document.write",
                "eval(",
                "new Function",
            ] {
                assert!(!text.contains(forbidden), "{name} has {forbidden}");
            }
            let addresses = text.replace("http://www.w3.org/2000/svg", "");
            assert!(!addresses.contains("http://") && !addresses.contains("https://"), "{name}");
        }
        let frame = include_str!("index.html");
        assert!(!frame.contains("<style") && !frame.contains("onclick") && !frame.contains("http"));
        assert_eq!(
            frame.matches("<script").count(),
            frame.matches("<script type=\"module\" src=").count()
        );
    }

    #[test]
    fn the_page_is_small() {
        let size: usize = FILES.iter().map(|(_, _, text)| text.len()).sum();
        assert!(size < 300_000, "{size} bytes");
    }
}
