//! What a browser shows at `/`: the models, a form that tries a record, curves of latency; and the description of the
//! REST API.
//!
//! The page is static, without a build step and without anything from elsewhere. All that it shows it asks the server
//! for, as any client does. Its policy allows no script, style or request but the server's own.
//!
//! # Layout
//! - `main.js`: asks and puts together; `form.js`: a field for each input; `draw.js`: a field to draw in
//! - `metrics.js`: percentiles out of the page of metrics; `chart.js`: curves of them

use hyper::header::{
    ACCEPT, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, HeaderValue,
    REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use hyper::{HeaderMap, Response};

/// Nothing but the server's own files and answers; no scripts or styles within the page.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
    base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
const SCRIPT: &str = "text/javascript; charset=utf-8";

/// Files of the page: name, kind, text.
const FILES: [(&str, &str, &str); 6] = [
    ("main.js", SCRIPT, include_str!("main.js")),
    ("form.js", SCRIPT, include_str!("form.js")),
    ("draw.js", SCRIPT, include_str!("draw.js")),
    ("metrics.js", SCRIPT, include_str!("metrics.js")),
    ("chart.js", SCRIPT, include_str!("chart.js")),
    ("style.css", "text/css; charset=utf-8", include_str!("style.css")),
];

/// The REST API as OpenAPI 3.1 describes it.
pub(crate) const OPEN_API: &str = include_str!("openapi.json");

/// Whether a client wants a page: browsers say so, and others want to know whether the server is alive.
pub(crate) fn is_wanted(headers: &HeaderMap) -> bool {
    let accepted = headers.get(ACCEPT).and_then(|accepted| accepted.to_str().ok());
    accepted.is_some_and(|accepted| accepted.contains("text/html"))
}

/// The page itself.
pub(crate) fn index() -> Response<Vec<u8>> {
    answer("text/html; charset=utf-8", include_str!("index.html"))
}

/// A file of the page.
pub(crate) fn file(name: &str) -> Option<Response<Vec<u8>>> {
    let found = FILES.iter().find(|(known, ..)| *known == name);
    found.map(|(_, kind, text)| answer(kind, text))
}

/// The description of the REST API.
pub(crate) fn open_api() -> Response<Vec<u8>> {
    answer("application/json", OPEN_API)
}

fn answer(kind: &'static str, text: &'static str) -> Response<Vec<u8>> {
    let mut answer = Response::new(text.as_bytes().to_vec());
    let headers: [(HeaderName, &'static str); 5] = [
        (CONTENT_TYPE, kind),
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "no-referrer"),
        // Another version of the program has another page.
        (CACHE_CONTROL, "no-cache"),
    ];
    for (name, value) in headers {
        answer.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    answer
}
