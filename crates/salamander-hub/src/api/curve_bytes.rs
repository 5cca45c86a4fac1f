//! Curves in bytes, for who draws thousands of them: numbers that need not be read out of text.
//!
//! Four bytes of a length and four zeros; so many bytes of JSON, filled with spaces to a multiple of eight: for each
//! run its curves with `metric`, `points`, `reduced` and `count`; then of each curve `count` steps and `count` values,
//! all of them doubles, the least byte first. NaN is where there was no number.

use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;

use super::Api;
use super::read::{self, CurveQuery, RunCurves};
use super::reply::{Params, answer_as};

pub(super) async fn curves(
    State(api): State<Api>,
    headers: HeaderMap,
    Params(query): Params<CurveQuery>,
) -> Response {
    let hub = api.hub.clone();
    let look = move || {
        let found = read::curves(&hub, (), query)?;
        let kind = [(header::CONTENT_TYPE, "application/octet-stream")];
        Ok((kind, encode(&found)).into_response())
    };
    answer_as(&api, &headers, look).await
}

fn encode(runs: &[RunCurves]) -> Vec<u8> {
    let mut head = serde_json::Value::Array(runs.iter().map(head_of).collect()).to_string();
    let length = head.len() as u32;
    while !head.len().is_multiple_of(8) {
        head.push(' ');
    }
    let curves = || runs.iter().flat_map(|run| &run.curves);
    let numbers: usize = curves().map(|curve| curve.steps.len() * 2).sum();
    let mut bytes = Vec::with_capacity(8 + head.len() + numbers * 8);
    bytes.extend_from_slice(&length.to_le_bytes());
    bytes.extend_from_slice(&[0; 4]);
    bytes.extend_from_slice(head.as_bytes());
    for curve in curves() {
        curve.steps.iter().for_each(|step| bytes.extend_from_slice(&(*step as f64).to_le_bytes()));
        let value = |value: &Option<f64>| value.unwrap_or(f64::NAN).to_le_bytes();
        curve.values.iter().for_each(|one| bytes.extend_from_slice(&value(one)));
    }
    bytes
}

fn head_of(run: &RunCurves) -> serde_json::Value {
    let curves = run.curves.iter().map(|curve| {
        json!({
            "metric": curve.metric, "points": curve.points, "reduced": curve.reduced,
            "count": curve.steps.len(),
        })
    });
    json!({"run": run.run, "curves": curves.collect::<Vec<_>>()})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::points::Curve;

    #[test]
    fn numbers_lie_where_the_head_says() {
        let curve = |metric: &str, values: Vec<Option<f64>>| Curve {
            metric: metric.to_string(),
            points: 9,
            reduced: true,
            steps: (1..=values.len() as i64).collect(),
            values,
        };
        let runs = [RunCurves {
            run: "3.1".parse().expect("a run"),
            curves: vec![curve("loss", vec![Some(0.5), None]), curve("a", vec![Some(-1.0)])],
        }];
        let bytes = encode(&runs);
        let length = u32::from_le_bytes(bytes[..4].try_into().expect("four")) as usize;
        let head: serde_json::Value = serde_json::from_slice(&bytes[8..8 + length]).expect("JSON");
        assert_eq!(head[0]["run"], "3.1");
        assert_eq!(head[0]["curves"][0]["count"], 2);
        let (numbers, rest) = bytes[8 + length.next_multiple_of(8)..].as_chunks::<8>();
        let numbers: Vec<f64> = numbers.iter().map(|bytes| f64::from_le_bytes(*bytes)).collect();
        assert!(rest.is_empty());
        assert_eq!(numbers[..3], [1.0, 2.0, 0.5]);
        assert!(numbers[3].is_nan());
        assert_eq!(numbers[4..], [1.0, -1.0]);
    }
}
