//! Points on their way into the store: chunks at the end of curves, and what is known of each metric. Many rows go to a
//! statement, and names are looked up once, since a run may have thousands of metrics with a point each.

use std::collections::HashSet;

use rusqlite::types::Value;

use super::Tx;
use super::curves::{CHUNK, ChunkSummary, StoredPoint, encode};
use super::db::{OptionalExtension, params};
use super::points::{NewPoints, metric_id, read_chunk, times_of};
use super::writer::Touched;
use crate::Error;
use crate::ids::RunId;

/// Rows of one statement.
const TOGETHER: usize = 32;
/// Whoever brings more curves at once is asked first which of them are new.
const FEW: usize = 16;

/// Points of a curve, by the number of its metric.
type CurvePoints<'a> = (i64, &'a [StoredPoint]);

/// Appends points to the curves of a run.
pub(crate) fn append(tx: &Tx<'_>, run: RunId, points: &NewPoints) -> Result<(), Error> {
    let mut curves = Vec::with_capacity(points.len());
    for (name, points) in points.iter().filter(|(_, points)| !points.is_empty()) {
        curves.push((metric_made(tx, name)?, points.as_slice()));
    }
    append_curves(tx, run, &curves)?;
    append_summaries(tx, run, &curves)?;
    tx.touch(Touched::Run(run.number()));
    Ok(())
}

/// The same; but a first point of the step that the curve's last one is of takes the place of that one.
pub(crate) fn append_or_replace(tx: &Tx<'_>, run: RunId, points: &NewPoints) -> Result<(), Error> {
    for (name, points) in points {
        if let (Some(first), Some(metric)) = (points.first(), metric_known(tx, name)?) {
            take_back(tx, run, metric, first.step)?;
        }
    }
    append(tx, run, points)
}

/// The same for the times of curves, by their metrics. They have no summary: they are curves, and in no list.
pub(crate) fn append_or_replace_times(
    tx: &Tx<'_>,
    run: RunId,
    times: &NewPoints,
) -> Result<(), Error> {
    for (name, points) in times {
        let Some(first) = points.first() else { continue };
        let metric = metric_made(tx, &times_of(name))?;
        take_back(tx, run, metric, first.step)?;
        append_curves(tx, run, &[(metric, points)])?;
    }
    Ok(())
}

/// The id of a metric, as the writer remembers it or as the store has it.
fn metric_known(tx: &Tx<'_>, name: &str) -> Result<Option<i64>, Error> {
    if let Some(metric) = tx.metric_ids.borrow().get(name) {
        return Ok(Some(*metric));
    }
    let found = metric_id(tx, name)?;
    if let Some(metric) = found {
        tx.remember_metric(name, metric);
    }
    Ok(found)
}

/// The id of a metric, which is made where there is none of this name.
fn metric_made(tx: &Tx<'_>, name: &str) -> Result<i64, Error> {
    if let Some(metric) = metric_known(tx, name)? {
        return Ok(metric);
    }
    let sql = "INSERT INTO metrics (name) VALUES (?1) RETURNING id";
    let metric = tx.prepare_cached(sql)?.query_row([name], |row| row.get(0))?;
    tx.remember_metric(name, metric);
    Ok(metric)
}

/// Takes back the last point of a curve that goes forward, if it is of this step.
fn take_back(tx: &Tx<'_>, run: RunId, metric: i64, step: i64) -> Result<(), Error> {
    let sql = "SELECT id, last FROM chunks WHERE run = ?1 AND metric = ?2 \
               ORDER BY number DESC LIMIT 1";
    let newest: Option<(i64, i64)> = tx
        .prepare_cached(sql)?
        .query_row(params![run.number(), metric], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let Some((chunk, _)) = newest.filter(|(_, last)| *last == step) else { return Ok(()) };
    let mut left = read_chunk(tx, chunk)?;
    left.pop();
    if left.is_empty() {
        tx.prepare_cached("DELETE FROM chunks WHERE id = ?1")?.execute([chunk])?;
    } else {
        rewrite_chunk(tx, chunk, &left)?;
    }
    tx.prepare_cached(
        "UPDATE run_metrics SET points = points - 1, \
         min = (SELECT min(c.min) FROM chunks c WHERE c.run = ?1 AND c.metric = ?2), \
         max = (SELECT max(c.max) FROM chunks c WHERE c.run = ?1 AND c.metric = ?2) \
         WHERE run = ?1 AND metric = ?2",
    )?
    .execute(params![run.number(), metric])?;
    Ok(())
}

fn rewrite_chunk(tx: &Tx<'_>, chunk: i64, points: &[StoredPoint]) -> Result<(), Error> {
    let s = ChunkSummary::of(points);
    let (steps, values) = encode(points);
    tx.prepare_cached(
        "UPDATE chunks SET first = ?2, last = ?3, points = ?4, min = ?5, min_step = ?6, max = ?7, \
         max_step = ?8, nan_step = ?9, steps = ?10, vals = ?11 WHERE id = ?1",
    )?
    .execute(params![
        chunk,
        s.first,
        s.last,
        s.points as i64,
        s.min.map(|p| p.value),
        s.min.map(|p| p.step),
        s.max.map(|p| p.value),
        s.max.map(|p| p.step),
        s.nan,
        steps,
        values
    ])?;
    Ok(())
}

fn append_curves(tx: &Tx<'_>, run: RunId, curves: &[CurvePoints<'_>]) -> Result<(), Error> {
    let known = if curves.len() > FEW { Some(metrics_of(tx, run)?) } else { None };
    let mut chunks = Rows::<13>::new(
        "INSERT INTO chunks (run, metric, number, first, last, points, min, min_step, max, max_step, nan_step, steps, \
         vals) VALUES ",
        "",
    );
    for (metric, points) in curves {
        // A metric that the run has no summary of has no curve.
        let is_new = known.as_ref().is_some_and(|known| !known.contains(metric));
        let (next, rest) =
            if is_new { (0, *points) } else { fill_last_chunk(tx, run, *metric, points)? };
        for (number, points) in (next..).zip(rest.chunks(CHUNK)) {
            chunks.push(tx, chunk_row(run, *metric, number, points))?;
        }
    }
    chunks.finish(tx)
}

/// The metrics that a run has.
fn metrics_of(tx: &Tx<'_>, run: RunId) -> Result<HashSet<i64>, Error> {
    let mut query = tx.prepare_cached("SELECT metric FROM run_metrics WHERE run = ?1")?;
    let rows = query.query_map([run.number()], |row| row.get(0))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Puts as many points into the last chunk of a curve as it has room for; gives the number of the next chunk, and the
/// points for it.
fn fill_last_chunk<'a>(
    tx: &Tx<'_>,
    run: RunId,
    metric: i64,
    points: &'a [StoredPoint],
) -> Result<(i64, &'a [StoredPoint]), Error> {
    let sql = "SELECT id, number, points FROM chunks WHERE run = ?1 AND metric = ?2 \
               ORDER BY number DESC LIMIT 1";
    let last: Option<(i64, i64, i64)> = tx
        .prepare_cached(sql)?
        .query_row(params![run.number(), metric], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
        .optional()?;
    let Some((chunk, number, held)) = last else { return Ok((0, points)) };
    let room = CHUNK.saturating_sub(held as usize);
    let (now, later) = points.split_at(points.len().min(room));
    if !now.is_empty() {
        let mut all = read_chunk(tx, chunk)?;
        all.extend_from_slice(now);
        rewrite_chunk(tx, chunk, &all)?;
    }
    Ok((number + 1, later))
}

fn chunk_row(run: RunId, metric: i64, number: i64, points: &[StoredPoint]) -> [Value; 13] {
    let s = ChunkSummary::of(points);
    let (steps, values) = encode(points);
    [
        run.number().into(),
        metric.into(),
        number.into(),
        s.first.into(),
        s.last.into(),
        (s.points as i64).into(),
        s.min.map(|p| p.value).into(),
        s.min.map(|p| p.step).into(),
        s.max.map(|p| p.value).into(),
        s.max.map(|p| p.step).into(),
        s.nan.into(),
        steps.into(),
        values.into(),
    ]
}

fn append_summaries(tx: &Tx<'_>, run: RunId, curves: &[CurvePoints<'_>]) -> Result<(), Error> {
    let mut summaries = Rows::<7>::new(
        "INSERT INTO run_metrics (run, metric, points, last, last_step, min, max) VALUES ",
        " ON CONFLICT (run, metric) DO UPDATE SET points = run_metrics.points + excluded.points, \
         last = excluded.last, last_step = excluded.last_step, \
         min = CASE WHEN excluded.min >= run_metrics.min THEN run_metrics.min \
         ELSE coalesce(excluded.min, run_metrics.min) END, \
         max = CASE WHEN excluded.max <= run_metrics.max THEN run_metrics.max \
         ELSE coalesce(excluded.max, run_metrics.max) END",
    );
    for (metric, points) in curves {
        let all = ChunkSummary::of(points);
        let Some(last) = points.last() else { continue };
        let row = [
            run.number().into(),
            (*metric).into(),
            (points.len() as i64).into(),
            Some(last.value).filter(|value| value.is_finite()).into(),
            last.step.into(),
            all.min.map(|point| point.value).into(),
            all.max.map(|point| point.value).into(),
        ];
        summaries.push(tx, row)?;
    }
    summaries.finish(tx)
}

/// Rows of `N` columns that wait until there are enough of them for a statement.
struct Rows<const N: usize> {
    head: &'static str,
    tail: &'static str,
    /// The statement for many of them, once it is needed.
    many: Option<String>,
    values: Vec<Value>,
}

impl<const N: usize> Rows<N> {
    fn new(head: &'static str, tail: &'static str) -> Self {
        Self { head, tail, many: None, values: Vec::new() }
    }

    fn push(&mut self, tx: &Tx<'_>, row: [Value; N]) -> Result<(), Error> {
        self.values.extend(row);
        if self.values.len() < TOGETHER * N {
            return Ok(());
        }
        let (head, tail) = (self.head, self.tail);
        let sql = self.many.get_or_insert_with(|| insert::<N>(head, TOGETHER, tail));
        tx.prepare_cached(sql)?.execute(&self.values)?;
        self.values.clear();
        Ok(())
    }

    /// Writes what is left, row by row: statements of each length would be too many to keep.
    fn finish(self, tx: &Tx<'_>) -> Result<(), Error> {
        if self.values.is_empty() {
            return Ok(());
        }
        let mut one = tx.prepare_cached(&insert::<N>(self.head, 1, self.tail))?;
        for row in self.values.chunks_exact(N) {
            one.execute(row)?;
        }
        Ok(())
    }
}

/// A statement for so many rows of `N` columns.
fn insert<const N: usize>(head: &str, rows: usize, tail: &str) -> String {
    let row = |row: usize| {
        let places: Vec<String> = (1..=N).map(|column| format!("?{}", row * N + column)).collect();
        format!("({})", places.join(", "))
    };
    let rows: Vec<String> = (0..rows).map(row).collect();
    format!("{head}{}{tail}", rows.join(", "))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::points::Window;
    use super::super::testing::for_each_store;
    use super::*;

    #[test]
    fn many_metrics_at_once_are_what_they_are_one_by_one() {
        for_each_store(|store, _| {
            // More than a statement has, and not a multiple of it; then more points of some, and metrics that are new.
            let point =
                |step: i64, metric: i64| StoredPoint { step, value: (step * metric) as f64 };
            let portion = |metrics: std::ops::Range<i64>, step: i64| -> NewPoints {
                let curve = |metric| (format!("m{metric}"), vec![point(step, metric)]);
                metrics.map(curve).collect()
            };
            let (at_once, one_by_one) =
                (RunId::new(1, 1).expect("small"), RunId::new(2, 1).expect("small"));
            for (metrics, step) in [(0..100, 1), (50..170, 2), (0..3, 2), (0..170, 3)] {
                for (name, points) in portion(metrics.clone(), step) {
                    store.append_points(one_by_one, [(name, points)].into()).expect("written");
                }
                store.append_points(at_once, portion(metrics, step)).expect("written");
            }
            let told = store.metrics(at_once).expect("read");
            assert_eq!(told, store.metrics(one_by_one).expect("read"));
            assert_eq!(told.len(), 170);
            let of: BTreeMap<&str, _> = told.iter().map(|m| (m.name.as_str(), m)).collect();
            assert_eq!(
                (of["m60"].points, of["m60"].last, of["m60"].min),
                (3, Some(180.0), Some(60.0))
            );
            let all = Window { from: i64::MIN, to: i64::MAX, stretches: 100 };
            for (metric, steps) in
                [("m2", vec![1, 2, 3]), ("m20", vec![1, 3]), ("m169", vec![2, 3])]
            {
                let curve = store.curve(at_once, metric, &all).expect("read").expect("there");
                assert_eq!(curve.steps, steps, "{metric}");
                assert_eq!(Some(curve), store.curve(one_by_one, metric, &all).expect("read"));
            }
        });
    }

    #[test]
    fn a_name_of_a_job_that_was_taken_back_is_not_remembered() {
        for_each_store(|store, _| {
            let run = RunId::new(1, 1).expect("small");
            let points = |value| -> NewPoints {
                [("late".to_string(), vec![StoredPoint { step: 1, value }])].into()
            };
            let failed = store.write(move |tx| {
                append(tx, run, &points(1.0))?;
                Err::<(), _>(Error::Closed)
            });
            assert!(matches!(failed, Err(Error::Closed)), "{failed:?}");
            // Another name takes the number that the lost one had.
            store
                .append_points(run, [("early".into(), points(3.0)["late"].clone())].into())
                .expect("written");
            store.append_points(run, points(2.0)).expect("written");
            let told = store.metrics(run).expect("read");
            let told: Vec<_> = told.iter().map(|m| (m.name.as_str(), m.last)).collect();
            assert_eq!(told, [("early", Some(3.0)), ("late", Some(2.0))]);
        });
    }
}
