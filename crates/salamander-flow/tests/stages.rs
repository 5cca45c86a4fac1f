//! Flows whose rows meet, in tasks: the rows of one process that has all of them, whoever does the tasks and however
//! often; and nothing where processes do not plan alike.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, Ordering};

use proptest::collection::vec;
use proptest::prelude::*;
use salamander_flow::flow::aggregates::{avg, count, sum};
use salamander_flow::flow::{
    Error, FlowCall, FlowContext, FlowJob, FlowStage, FlowSummary, Flows, Join, TSet, TaskReport,
    TaskRunner, col, lit,
};
use salamander_flow::flows;
use serde::{Deserialize, Serialize};

const ROWS: i64 = 600;
const PARTITIONS: u64 = 3;

#[derive(Serialize, Deserialize)]
struct Visit {
    id: i64,
    city: String,
    seconds: f64,
}

/// A function before the groups and one behind them; some rows are refused by each.
fn long_stays(cx: &FlowContext) -> Result<TSet, Error> {
    let visits = cx.input()?.map("known", |visit: Visit| match visit.id % 50 {
        0 => Err(format!("{} is unknown", visit.id)),
        _ => Ok(visit),
    })?;
    let all = vec![sum(col("seconds")).alias("seconds"), count(lit(1)).alias("id")];
    visits.key_by(&["city"]).reduce(all)?.map("not oslo", |visit: Visit| {
        match visit.city.as_str() {
            "oslo" => Err("nobody stays there".to_string()),
            _ => Ok(visit),
        }
    })
}

/// Lists, whose order can be seen.
fn visitors(cx: &FlowContext) -> Result<TSet, Error> {
    cx.input()?.select(vec![col("id"), col("city")])?.key_by(&["city"]).gather()
}

/// What is kept is read again by everybody.
fn kept(cx: &FlowContext) -> Result<TSet, Error> {
    let folder = cx.text_parameter("folder").unwrap_or_default().to_string();
    let visits = cx.input()?.cache(Path::new(&folder))?;
    visits.key_by(&["city"]).reduce(vec![count(lit(1)).alias("many")])
}

#[derive(Serialize, Deserialize)]
struct Mean {
    id: f64,
}

/// Rows go their way one by one, and all are compared with what was made of all of them.
fn beside_the_mean(cx: &FlowContext) -> Result<TSet, Error> {
    let folder = cx.text_parameter("folder").unwrap_or_default().to_string();
    let mean = avg(col("id")).alias("id");
    let means = cx.input()?.key_by(&[]).reduce(vec![mean])?.cache(Path::new(&folder))?;
    let mean = means.gather::<Mean>()?.first().map_or(0.0, |mean| mean.id);
    cx.input()?.filter_rows("above", move |visit: &Visit| visit.id as f64 > mean)
}

/// DataFusion's own files, which its partitions would take from each other.
fn of_files(cx: &FlowContext) -> Result<TSet, Error> {
    let visits = cx.parquet(cx.text_parameter("folder").unwrap_or_default())?;
    visits.key_by(&["city"]).reduce(vec![count(lit(1)).alias("many"), sum(col("id")).alias("ids")])
}

/// Another flow each time that it is built.
fn changing(cx: &FlowContext) -> Result<TSet, Error> {
    static BUILT: AtomicI64 = AtomicI64::new(0);
    let built = BUILT.fetch_add(1, Ordering::Relaxed);
    let visits = cx.input()?.filter(col("id").gt(lit(built)))?;
    visits.key_by(&["city"]).reduce(vec![count(lit(1)).alias("many")])
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Left {
    id: i64,
    key: String,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Right {
    key: String,
    y: i64,
}

/// Rows that a parameter has as JSON, in three partitions.
fn table<T>(cx: &FlowContext, name: &str) -> Result<TSet, Error>
where
    T: Clone + Sync + Send + Serialize + for<'de> Deserialize<'de> + 'static,
{
    let rows = serde_json::from_str::<Vec<T>>(cx.text_parameter(name).unwrap_or_default());
    let rows = rows.map_err(|error| Error::Invalid(error.to_string()))?;
    cx.source(name, 3, move |part| {
        rows.iter().skip(part).step_by(3).cloned().collect::<Vec<T>>().into_iter()
    })
}

/// An operation on tables that the parameters hold.
fn of_tables(cx: &FlowContext) -> Result<TSet, Error> {
    let (left, right) = (table::<Left>(cx, "left")?, table::<Right>(cx, "right")?);
    let join = |kind| left.clone().join(right.clone(), kind, &["key"]);
    match cx.text_parameter("operation").unwrap_or_default() {
        "inner" => join(Join::Inner),
        "left" => join(Join::Left),
        "right" => join(Join::Right),
        "full" => join(Join::Full)?.key_by(&["key"]).reduce(vec![count(lit(1)).alias("many")]),
        "union" => left.clone().union(right.partition_by(&["y"], 2)?),
        other => Err(Error::Invalid(format!("no operation {other}"))),
    }
}

/// Does tasks as workers do, the last one first, and all of them twice: whoever has lost a task does it to its end,
/// too.
struct TwiceWorker<'a> {
    flows: &'a Flows,
    /// The tasks of each stage.
    stages: Vec<u64>,
}

impl TaskRunner for TwiceWorker<'_> {
    fn is_shared(&self) -> bool {
        true
    }

    fn run(&mut self, stage: &FlowStage, folder: &Path) -> Result<Vec<TaskReport>, Error> {
        let told = serde_json::to_vec(stage).expect("JSON");
        let told: FlowStage = serde_json::from_slice(&told).expect("a stage");
        self.stages.push(told.tasks());
        let mut reports = Vec::new();
        for task in (0..told.tasks()).rev() {
            told.run(self.flows, task, folder, &format!("{}-{task}-lost", told.word()))?;
            let name = format!("{}-{task}-kept", told.word());
            reports.push(told.run(self.flows, task, folder, &name)?);
        }
        reports.reverse();
        Ok(reports)
    }
}

struct Place {
    folder: tempfile::TempDir,
    flows: Flows,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let row = |id: i64| {
            let city = ["bern", "lima", "oslo", "pune"][(id % 11 % 4) as usize];
            // No two sums of such numbers are equal that are added in another order.
            format!("{id},{city},{}\n", (id as f64).sqrt() * 0.1)
        };
        let rows: String = (0..ROWS).map(row).collect();
        fs::write(folder.path().join("visits.csv"), format!("id,city,seconds\n{rows}"))
            .expect("written");
        Self {
            folder,
            flows: flows![
                long_stays,
                visitors,
                kept,
                beside_the_mean,
                of_files,
                changing,
                of_tables
            ],
        }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn job(&self, flow: &str) -> FlowJob {
        let mut job = FlowJob::named(flow, &[&self.at("visits.csv").display().to_string()]);
        job.sink.shards = Some(3);
        job.partitions = Some(PARTITIONS as usize);
        job
    }

    fn query(&self, query: &str) -> FlowJob {
        FlowJob { call: FlowCall::Sql(query.to_string()), ..self.job("") }
    }

    fn here(&self, job: &FlowJob, out: &str) -> FlowSummary {
        job.run_here(&self.flows, &self.at(out)).expect("it runs here")
    }

    /// By tasks that are told; with the tasks of each stage.
    fn told(&self, job: &FlowJob, out: &str) -> Result<(FlowSummary, Vec<u64>), Error> {
        let mut worker = TwiceWorker { flows: &self.flows, stages: Vec::new() };
        let summary = job.run(&self.flows, &self.at(out), &mut worker)?;
        Ok((summary, worker.stages))
    }

    fn read(&self, out: &str, file: &str) -> String {
        fs::read_to_string(self.at(out).join(file)).expect("there")
    }
}

/// Queries with the rows that they have; all of their results are exact.
const QUERIES: [(&str, u64); 15] = [
    ("select distinct city from input", 4),
    ("select city, count(*) as many, min(id) as first from input group by city", 4),
    ("select count(distinct city) as cities from input", 1),
    ("select a.id, b.city from input a join input b on a.id = b.id + 10", 590),
    // Rows without a partner, on either side.
    (
        "select a.id, b.id as other from input a full join (select id + 400 as id from input) b on a.id = b.id",
        1000,
    ),
    (
        "select a.id, b.id as other from (select id from input where id < 40) a \
         left join (select id from input where id < 30) b on a.id > b.id and b.id > 20",
        // None for 0 to 21, then 1, 2, .. 9 for 22 to 30, and 9 for each of the others.
        22 + 45 + 81,
    ),
    ("select id from input where id not in (select id + 100 from input)", 100),
    ("select id from input a where exists (select 1 from input b where b.id = a.id + 590)", 10),
    ("select id from input where id > (select max(id) - 7 from input)", 7),
    ("select id, city from input order by id desc limit 17", 17),
    ("select id from input union all select id + 1000 from input", 1200),
    ("select id from input union select id + 300 from input", 900),
    ("select city from input intersect select city from input where id > 500", 4),
    (
        "select a.id, b.city from (select id from input where id < 30) a \
         cross join (select distinct city from input) b",
        120,
    ),
    ("select id, city, row_number() over (partition by city order by id) as place from input", 600),
];

#[test]
fn queries_in_stages_have_the_rows_of_one_process() {
    let place = Place::new();
    for (number, (query, rows)) in QUERIES.iter().enumerate() {
        let mut job = place.query(query);
        let (told, stages) = place.told(&job, &format!("told-{number}")).expect(query);
        assert_eq!(told.rows, *rows, "{query}");
        let here = place.here(&job, &format!("here-{number}"));
        assert_eq!(here.digest, told.digest, "{query}: {stages:?}");
        // Of one partition there is nothing to put together.
        job.partitions = Some(1);
        let alone = place.here(&job, &format!("alone-{number}"));
        assert_eq!(alone.digest, told.digest, "{query}: {stages:?}");
    }
}

fn key() -> impl Strategy<Value = String> {
    "[a-d]"
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3, ..ProptestConfig::default() })]

    #[test]
    fn random_tables_meet_in_stages_as_in_one_partition(
        left in vec((any::<i16>(), key()), 0..30),
        right in vec((key(), -9i64..9), 0..8),
    ) {
        let place = Place::new();
        let left: Vec<Left> = left.into_iter().map(|(id, key)| Left { id: id.into(), key }).collect();
        let right: Vec<Right> = right.into_iter().map(|(key, y)| Right { key, y }).collect();
        for operation in ["inner", "left", "right", "full", "union"] {
            let mut job = FlowJob { inputs: Vec::new(), ..place.job("of_tables") };
            job.parameters = BTreeMap::from([
                ("left".to_string(), serde_json::json!(left).to_string()),
                ("right".to_string(), serde_json::json!(right).to_string()),
                ("operation".to_string(), operation.to_string()),
            ]);
            let (told, _) = place.told(&job, &format!("{operation}-told")).expect("it runs");
            job.partitions = Some(1);
            let alone = place.here(&job, &format!("{operation}-alone"));
            prop_assert_eq!((told.rows, told.digest), (alone.rows, alone.digest), "{}", operation);
        }
    }
}

#[test]
fn joins_and_groups_are_tasks_of_their_partitions() {
    let place = Place::new();
    let query =
        "select a.city, count(*) as many from input a join input b on a.id = b.id group by a.city";
    let (_, mut stages) = place.told(&place.query(query), "out").expect("it runs");
    assert_eq!(stages.pop(), Some(3), "shards are sorted in the end");
    assert!(stages.len() >= 4, "{stages:?}");
    assert!(stages.iter().all(|tasks| *tasks == PARTITIONS), "{stages:?}");
}

#[test]
fn sums_of_floats_and_lists_have_the_same_bits_whoever_makes_them() {
    let place = Place::new();
    for flow in ["long_stays", "visitors"] {
        let job = place.job(flow);
        let (told, _) = place.told(&job, &format!("{flow}-told")).expect("it runs");
        for time in 0..3 {
            let here = place.here(&job, &format!("{flow}-here-{time}"));
            assert_eq!(here.digest, told.digest, "{flow}");
        }
    }
}

#[test]
fn rows_that_are_refused_on_the_way_count_once() {
    let place = Place::new();
    let job = place.job("long_stays");
    let (told, _) = place.told(&job, "told").expect("it runs");
    let here = place.here(&job, "here");
    // Twelve are unknown, and the group of one city.
    assert_eq!((told.rows, told.bad_rows, here.bad_rows), (3, 13, 13));
    let bad = place.read("told", "bad_rows.jsonl");
    assert_eq!(bad, place.read("here", "bad_rows.jsonl"));
    assert_eq!(bad.matches("nobody stays there").count(), 1, "{bad}");
}

#[test]
fn files_of_the_engine_are_read_once_by_all_tasks_together() {
    let place = Place::new();
    let mut job = place.query("select id, city from input");
    job.sink.shards = Some(7);
    place.here(&job, "files");
    let mut job = place.job("of_files");
    let folder = format!("{}/", place.at("files/train").display());
    job.parameters = BTreeMap::from([("folder".to_string(), folder)]);
    let (told, _) = place.told(&job, "told").expect("it runs");
    assert_eq!((told.rows, told.digest), (4, place.here(&job, "here").digest));
}

#[test]
fn what_a_flow_keeps_is_made_once() {
    let place = Place::new();
    let mut job = place.job("kept");
    let mut keep = |name: &str| {
        let folder = place.at(name).display().to_string();
        job.parameters = BTreeMap::from([("folder".to_string(), folder)]);
        job.clone()
    };
    let (told, _) = place.told(&keep("one"), "told").expect("it runs");
    assert_eq!(told.digest, place.here(&keep("two"), "here").digest);
}

#[test]
fn what_a_flow_keeps_is_made_anew_by_the_next_run() {
    let place = Place::new();
    let mut job = place.job("kept");
    let folder = place.at("cache").display().to_string();
    job.parameters = BTreeMap::from([("folder".to_string(), folder)]);
    let first = place.here(&job, "first");
    // What a process that was killed has begun is in nobody's way.
    fs::create_dir(place.at(".cache.new")).expect("made");
    fs::write(place.at(".cache.new/part.parquet"), "half").expect("made");
    assert_eq!(place.here(&job, "again").digest, first.digest);
    let visits = place.at("visits.csv");
    let text = fs::read_to_string(&visits).expect("there");
    fs::write(&visits, text + "9999,rome,1\n").expect("written");
    assert_eq!((first.rows, place.here(&job, "more").rows), (4, 5));
    assert_eq!(place.told(&job, "told").expect("it runs").0.rows, 5);
    assert!(!place.at(".cache.new").exists());
    // A folder of somebody else stays as it is.
    let error = job_in(&job, &place.at("more")).run_here(&place.flows, &place.at("out"));
    let error = error.expect_err("it is refused").to_string();
    assert!(error.contains("holds something else"), "{error}");
    assert!(place.at("more/manifest.json").exists());
}

/// The same with another folder.
fn job_in(job: &FlowJob, folder: &Path) -> FlowJob {
    let parameters = BTreeMap::from([("folder".to_string(), folder.display().to_string())]);
    FlowJob { parameters, ..job.clone() }
}

#[test]
fn what_a_flow_of_single_rows_keeps_is_that_of_all_of_them() {
    let place = Place::new();
    let mut job = job_in(&place.job("beside_the_mean"), &place.at("cache"));
    job.sink.shards = Some(4);
    let here = place.here(&job, "here");
    assert_eq!(here.rows, ROWS as u64 / 2);
    let (told, stages) = place.told(&job, "told").expect("it runs");
    assert_eq!((told.digest, stages), (here.digest, vec![4]));
}

#[test]
fn a_process_that_plans_another_flow_is_refused() {
    let place = Place::new();
    let error = place.told(&place.job("changing"), "out").expect_err("it is refused");
    assert!(error.to_string().contains("planned the flow otherwise"), "{error}");
    assert_eq!(fs::read_dir(place.folder.path()).expect("a folder").count(), 1, "nothing is left");
}
