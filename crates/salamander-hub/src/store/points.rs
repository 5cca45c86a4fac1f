//! The tables of curves, read by a stretch of steps; `append` writes them.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::append;
pub use super::curves::StoredPoint;
use super::curves::{ChunkSummary, Reducer, decode};
use super::db::{Db, DbError, DbRow, OptionalExtension, params};
use super::{Store, Tx};
use crate::Error;
use crate::ids::RunId;

/// What names of curves of times begin with.
const TIMES: &str = "@time/";

/// Names of metrics that are told of at once.
const NAMES: usize = 10_000;

/// New points of a run, by the names of their metrics.
pub type NewPoints = BTreeMap<String, Vec<StoredPoint>>;

/// Which part of a curve is wanted.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// The first step.
    pub from: i64,
    /// The last step.
    pub to: i64,
    /// Stretches of which the smallest and the largest value are kept; a curve of fewer points is given as it is.
    pub stretches: usize,
}

/// A curve, or what is left of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Curve {
    /// The metric's name.
    pub metric: String,
    /// Points in the window.
    pub points: u64,
    /// Whether only extremes are given.
    pub reduced: bool,
    /// Steps of what is given.
    pub steps: Vec<i64>,
    /// Values; null where there was no number.
    pub values: Vec<Option<f64>>,
}

/// What is known of a metric without its curve.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MetricSummary {
    /// The metric's name.
    pub name: String,
    /// How many points it has.
    pub points: u64,
    /// The last value.
    pub last: Option<f64>,
    /// Its step.
    pub last_step: i64,
    /// The smallest value.
    pub min: Option<f64>,
    /// The largest value.
    pub max: Option<f64>,
}

impl Store {
    /// Appends points.
    pub fn append_points(&self, run: RunId, points: NewPoints) -> Result<(), Error> {
        self.write(move |tx| append::append(tx, run, &points))
    }

    /// The metrics of a run, by name.
    pub fn metrics(&self, run: RunId) -> Result<Vec<MetricSummary>, Error> {
        self.read(|db| {
            let sql = "SELECT m.name, r.points, r.last, r.last_step, r.min, r.max FROM run_metrics r \
                       JOIN metrics m ON m.id = r.metric WHERE r.run = ?1 ORDER BY m.name";
            let mut query = db.prepare_cached(sql)?;
            let rows = query.query_map([run.number()], |row| {
                Ok(MetricSummary {
                    name: row.get(0)?,
                    points: row.get::<i64>(1)? as u64,
                    last: row.get(2)?,
                    last_step: row.get(3)?,
                    min: row.get(4)?,
                    max: row.get(5)?,
                })
            })?;
            Ok(rows.collect::<Result<_, _>>()?)
        })
    }

    /// The last steps of some metrics of a run; what it has no points of is left out.
    pub(crate) fn last_steps<'a>(
        &self,
        run: RunId,
        names: impl Iterator<Item = &'a str>,
    ) -> Result<BTreeMap<String, i64>, Error> {
        let names: BTreeSet<&str> = names.collect();
        self.read(|db| {
            let sql = "SELECT last_step FROM run_metrics WHERE run = ?1 AND metric = \
                       (SELECT id FROM metrics WHERE name = ?2)";
            let mut query = db.prepare_cached(sql)?;
            let mut last = BTreeMap::new();
            for name in names {
                let found = query.query_row(params![run.number(), name], |row| row.get(0));
                if let Some(step) = found.optional()? {
                    last.insert(name.to_string(), step);
                }
            }
            Ok(last)
        })
    }

    /// The names of the metrics that runs have or have had, in their order.
    pub fn metric_names(&self) -> Result<Vec<String>, Error> {
        self.read(|db| {
            let sql = format!(
                "SELECT name FROM metrics WHERE substr(name, 1, {}) <> '{TIMES}' ORDER BY name LIMIT {NAMES}",
                TIMES.len()
            );
            let mut query = db.prepare_cached(&sql)?;
            let rows = query.query_map((), |row| row.get(0))?;
            Ok(rows.collect::<Result<_, _>>()?)
        })
    }

    /// A curve of a run; `None`: the run has no such metric.
    pub fn curve(&self, run: RunId, metric: &str, window: &Window) -> Result<Option<Curve>, Error> {
        self.read(|db| {
            let Some(id) = metric_id(db, metric)? else { return Ok(None) };
            let chunks = chunks(db, run, id, window)?;
            if chunks.is_empty() {
                return Ok(None);
            }
            let held: u64 = chunks.iter().map(|(_, summary)| summary.points).sum();
            let inside = |point: &StoredPoint| (window.from..=window.to).contains(&point.step);
            let (points, total, reduced) = if held <= 2 * window.stretches as u64 {
                let mut points = Vec::with_capacity(held as usize);
                for (chunk, _) in &chunks {
                    points.extend(read_chunk(db, *chunk)?.into_iter().filter(inside));
                }
                let total = points.len() as u64;
                (points, total, false)
            } else {
                reduce(db, &chunks, window)?
            };
            let (steps, values) =
                points.iter().map(|p| (p.step, Some(p.value).filter(|v| v.is_finite()))).unzip();
            let metric = metric.to_string();
            Ok(Some(Curve { metric, points: total, reduced, steps, values }))
        })
    }
}

/// Chunks of a curve that have steps of the window, by the numbers of their rows.
fn chunks(
    db: &Db,
    run: RunId,
    metric: i64,
    window: &Window,
) -> Result<Vec<(i64, ChunkSummary)>, Error> {
    let sql = "SELECT id, first, last, points, min, min_step, max, max_step, nan_step FROM chunks \
               WHERE run = ?1 AND metric = ?2 AND last >= ?3 AND first <= ?4 ORDER BY number";
    let mut query = db.prepare_cached(sql)?;
    let row = |row: &DbRow<'_>| Ok((row.get(0)?, summary(row)?));
    let rows = query.query_map(params![run.number(), metric, window.from, window.to], row)?;
    Ok(rows.collect::<Result<_, _>>()?)
}

fn reduce(
    db: &Db,
    chunks: &[(i64, ChunkSummary)],
    window: &Window,
) -> Result<(Vec<StoredPoint>, u64, bool), Error> {
    let first = chunks.iter().map(|(_, chunk)| chunk.first).min().unwrap_or(0).max(window.from);
    let last = chunks.iter().map(|(_, chunk)| chunk.last).max().unwrap_or(0).min(window.to);
    let mut reducer = Reducer::new(first, last, window.stretches);
    let mut total = 0;
    for (chunk, summary) in chunks {
        let whole = summary.first >= first && summary.last <= last;
        if whole && reducer.take_summary(summary) {
            total += summary.points;
            continue;
        }
        for point in read_chunk(db, *chunk)? {
            if (first..=last).contains(&point.step) {
                total += 1;
                reducer.take(point);
            }
        }
    }
    Ok((reducer.finish(), total, true))
}

fn summary(row: &DbRow<'_>) -> Result<ChunkSummary, DbError> {
    let extreme = |value: usize| {
        let (at, step): (Option<f64>, Option<i64>) = (row.get(value)?, row.get(value + 1)?);
        Ok::<_, DbError>(at.zip(step).map(|(value, step)| StoredPoint { step, value }))
    };
    Ok(ChunkSummary {
        first: row.get(1)?,
        last: row.get(2)?,
        points: row.get::<i64>(3)? as u64,
        min: extreme(4)?,
        max: extreme(6)?,
        nan: row.get(8)?,
    })
}

pub(super) fn read_chunk(db: &Db, chunk: i64) -> Result<Vec<StoredPoint>, Error> {
    let mut query = db.prepare_cached("SELECT steps, vals FROM chunks WHERE id = ?1")?;
    let points = query.query_row([chunk], |row| Ok(decode(row.blob(0)?, row.blob(1)?)))?;
    points.ok_or_else(|| Error::Conflict(format!("chunk {chunk} of the store is damaged")))
}

pub(super) fn metric_id(db: &Db, name: &str) -> Result<Option<i64>, Error> {
    let mut query = db.prepare_cached("SELECT id FROM metrics WHERE name = ?1")?;
    Ok(query.query_row([name], |row| row.get(0)).optional()?)
}

/// The curve of the times of another one, in seconds since 1970, where metrics count steps of their own. No client of
/// MLflow's may call a metric so.
pub fn times_of(metric: &str) -> String {
    format!("{TIMES}{metric}")
}

/// Forgets the curves of a run, whose file is read again.
pub(crate) fn forget(tx: &Tx<'_>, run: RunId) -> Result<(), Error> {
    for table in ["chunks", "run_metrics", "validations"] {
        tx.prepare_cached(&format!("DELETE FROM {table} WHERE run = ?1"))?
            .execute([run.number()])?;
    }
    let sql = "UPDATE runs SET steps = 0, epoch = 0, best = NULL, best_steps = NULL WHERE id = ?1";
    tx.prepare_cached(sql)?.execute([run.number()])?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::append::append_or_replace;
    use super::super::curves::CHUNK;
    use super::super::testing::for_each_store;
    use super::*;

    const ALL: Window = Window { from: i64::MIN, to: i64::MAX, stretches: usize::MAX / 4 };

    #[test]
    fn points_in_any_portions_are_one_curve() {
        for_each_store(|store, _| {
            let run = RunId::new(1, 1).expect("small");
            let value = |step: i64| (step as f64 * 0.37).sin();
            let points: Vec<StoredPoint> =
                (0..5000).map(|step| StoredPoint { step, value: value(step) }).collect();
            let mut rest = points.as_slice();
            for portion in [1, 2, 1000, 1024, 30, 2000, 943] {
                let (now, later) = rest.split_at(portion);
                store.append_points(run, [("loss".into(), now.to_vec())].into()).expect("written");
                rest = later;
            }
            assert!(rest.is_empty());
            let curve = store.curve(run, "loss", &ALL).expect("read").expect("there");
            assert_eq!((curve.points, curve.reduced), (5000, false));
            assert_eq!(curve.steps, (0..5000).collect::<Vec<_>>());
            assert_eq!(curve.values[1234], Some(value(1234)));
            let metrics = store.metrics(run).expect("read");
            assert_eq!(metrics[0].points, 5000);
            assert_eq!(metrics[0].last, Some(value(4999)));
            let best = points.iter().map(|p| p.value).fold(f64::NEG_INFINITY, f64::max);
            assert_eq!(metrics[0].max, Some(best));
            let window = Window { from: 100, to: 4100, stretches: 3 };
            let curve = store.curve(run, "loss", &window).expect("read").expect("there");
            assert!(curve.reduced && curve.steps.len() <= 6, "{curve:?}");
            assert_eq!(curve.points, 4001);
            let of_window =
                points[100..=4100].iter().map(|p| p.value).fold(f64::INFINITY, f64::min);
            assert!(curve.values.contains(&Some(of_window)));
            assert_eq!(store.curve(run, "other", &ALL).expect("read"), None);
        });
    }

    #[test]
    fn a_point_of_the_last_step_takes_its_place() {
        for_each_store(|store, _| {
            let run = RunId::new(1, 1).expect("small");
            let replace = |points: &[(i64, f64)]| {
                let points =
                    points.iter().map(|(step, value)| StoredPoint { step: *step, value: *value });
                let points: NewPoints = [("loss".to_string(), points.collect())].into();
                store.write(move |tx| append_or_replace(tx, run, &points)).expect("written");
            };
            let summary = || store.metrics(run).expect("read").remove(0);
            for value in [3.0, 2.0, 1.0] {
                replace(&[(0, value)]);
                let now = summary();
                assert_eq!(
                    (now.points, now.last, now.min, now.max),
                    (1, Some(value), Some(value), Some(value))
                );
            }
            // Up to the end of a chunk, which is full then; what is told again adds nothing.
            let all: Vec<(i64, f64)> = (0..CHUNK as i64).map(|step| (step, step as f64)).collect();
            replace(&all);
            for value in [9000.0, 5.0] {
                replace(&[(CHUNK as i64 - 1, value)]);
            }
            replace(&[(CHUNK as i64 - 1, 5.0), (CHUNK as i64, 6.0), (CHUNK as i64 + 1, 7.0)]);
            replace(&[(CHUNK as i64 + 1, 8.0)]);
            let curve = store.curve(run, "loss", &ALL).expect("read").expect("there");
            assert_eq!(curve.steps, (0..CHUNK as i64 + 2).collect::<Vec<_>>());
            let expected = [CHUNK as f64 - 2.0, 5.0, 6.0, 8.0].map(Some);
            assert_eq!(curve.values[CHUNK - 2..], expected);
            let now = summary();
            assert_eq!(
                (now.points, now.last, now.last_step),
                (CHUNK as u64 + 2, Some(8.0), CHUNK as i64 + 1)
            );
            assert_eq!((now.min, now.max), (Some(0.0), Some(CHUNK as f64 - 2.0)));
        });
    }

    #[test]
    fn what_is_no_number_is_a_gap_and_no_extreme() {
        for_each_store(|store, _| {
            let run = RunId::new(1, 1).expect("small");
            let points = [f64::NAN, 2.0, 1.0]
                .iter()
                .zip(1..)
                .map(|(v, step)| StoredPoint { step, value: *v });
            store.append_points(run, [("loss".into(), points.collect())].into()).expect("written");
            let curve = store.curve(run, "loss", &ALL).expect("read").expect("there");
            assert_eq!(curve.values, [None, Some(2.0), Some(1.0)]);
            let metric = &store.metrics(run).expect("read")[0];
            assert_eq!((metric.min, metric.max, metric.last), (Some(1.0), Some(2.0), Some(1.0)));
        });
    }
}
