//! What flows write: the same bytes whoever does the work, each row once, parts as asked for, and all of it or nothing.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::UNIX_EPOCH;

use salamander_data::{Dataset, open};
use salamander_flow::flow::{
    EngineSettings, Error, FlowCall, FlowContext, FlowJob, FlowStage, FlowSummary, Flows, Join,
    TSet, TaskReport, TaskRunner, TaskThreads,
};
use salamander_flow::flows;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Sale {
    id: i64,
    city: String,
    price: f64,
}

/// Each row alone; a price below zero is refused.
fn taxed(cx: &FlowContext) -> Result<TSet, Error> {
    let rate: f64 = cx.parameter("rate", 1.5)?;
    cx.input()?.map("tax", move |sale: Sale| match sale.price {
        price if price < 0.0 => Err(format!("a price of {price}")),
        price => Ok(Sale { price: price * rate, ..sale }),
    })
}

/// Rows meet: each sale with the others of its city.
fn of_cities(cx: &FlowContext) -> Result<TSet, Error> {
    let total = salamander_flow::flow::aggregates::sum(salamander_flow::flow::col("price"));
    let totals = cx.input()?.key_by(&["city"]).reduce(vec![total.alias("total")])?;
    cx.input()?.join(totals, Join::Inner, &["city"])
}

/// Fails after some rows.
fn failing(cx: &FlowContext) -> Result<TSet, Error> {
    cx.input()?.compute("fail", || {
        |sales: Vec<Sale>| match sales.iter().find(|sale| sale.id == 900) {
            Some(sale) => Err(format!("cannot go on at {}", sale.id)),
            None => Ok(sales),
        }
    })
}

/// The input is gone once the flow is built.
fn losing(cx: &FlowContext) -> Result<TSet, Error> {
    let rows = cx.input()?;
    let _ = fs::remove_file(cx.text_parameter("input").unwrap_or_default());
    Ok(rows)
}

/// Never ends by itself.
fn endless(cx: &FlowContext) -> Result<TSet, Error> {
    cx.source("endless", 2, |_| (0..).map(|id| Sale { id, city: String::new(), price: 0.0 }))
}

struct Shop {
    folder: tempfile::TempDir,
    flows: Flows,
}

const ROWS: i64 = 1000;
/// Those with a price below zero.
const BAD: u64 = 10;

impl Shop {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let mut text = "id,city,price\n".to_string();
        for id in 0..ROWS {
            let city = ["bern", "lima", "oslo"][(id % 7 % 3) as usize];
            let price = if id % 100 == 50 { -1.0 } else { id as f64 / 8.0 };
            text += &format!("{id},{city},{price}\n");
        }
        fs::write(folder.path().join("sales.csv"), text).expect("written");
        Self { folder, flows: flows![taxed, of_cities, failing] }
    }

    fn job(&self, flow: &str) -> FlowJob {
        FlowJob::named(flow, &[&self.folder.path().join("sales.csv").display().to_string()])
    }

    /// Takes a cell away.
    fn break_a_record(&self) {
        let path = self.at("sales.csv");
        let text = fs::read_to_string(&path).expect("there");
        let broken = text.replace("\n7,bern,0.875\n", "\n7,bern\n");
        assert_ne!(broken, text);
        fs::write(&path, broken).expect("written");
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn run(&self, job: &FlowJob, out: &str, threads: usize) -> Result<FlowSummary, Error> {
        let (stop, progress) = (AtomicBool::new(false), |_, _| {});
        let flows = &self.flows;
        let mut runner = TaskThreads { flows, threads, stop: &stop, progress: &progress };
        job.run(flows, &self.at(out), &mut runner)
    }

    /// The ids of a part, in the order of its rows.
    fn ids(&self, part: &str) -> Vec<i64> {
        let dataset = opened(&self.at(part));
        let mut ids = Vec::new();
        let all: Vec<u64> = (0..dataset.len()).collect();
        let read = dataset.read(&all, &mut |_, row| {
            ids.push(row.ints("id")?[0]);
            Ok(())
        });
        read.expect("rows");
        ids
    }
}

fn opened(folder: &Path) -> Dataset {
    Dataset::new(Arc::from(open(&[folder.to_path_buf()], None).expect("opens"))).expect("counted")
}

fn good_ids() -> Vec<i64> {
    (0..ROWS).filter(|id| id % 100 != 50).collect()
}

#[test]
fn rows_keep_their_order_and_bytes_do_not_depend_on_threads() {
    let shop = Shop::new();
    for format in ["parquet", "recordio"] {
        let mut job = shop.job("taxed");
        job.sink.format = format.to_string();
        job.sink.shards = Some(4);
        let mut digests = Vec::new();
        for threads in [1, 2, 4] {
            let out = format!("{format}-{threads}");
            let summary = shop.run(&job, &out, threads).expect("it runs");
            assert_eq!((summary.rows, summary.bad_rows, summary.shards), (990, BAD, 4));
            assert_eq!(shop.ids(&format!("{out}/train")), good_ids());
            digests.push(summary.digest);
            let bad = fs::read_to_string(shop.at(&out).join("bad_rows.jsonl")).expect("kept");
            assert_eq!(bad.lines().count() as u64, BAD);
            assert!(bad.starts_with(r#"{"step":"tax","reason":"a price of -1","row":{"#), "{bad}");
        }
        assert!(digests.iter().all(|digest| *digest == digests[0]), "{digests:?}");
    }
}

#[test]
fn a_shuffle_follows_from_the_seed_and_the_rows_alone() {
    let shop = Shop::new();
    let mut job = shop.job("taxed");
    job.sink.shards = Some(3);
    job.sink.shuffle = Some(7);
    let first = shop.run(&job, "a", 1).expect("it runs");
    let second = shop.run(&job, "b", 4).expect("it runs");
    assert_eq!(first.digest, second.digest);
    let ids = shop.ids("a/train");
    assert_ne!(ids, good_ids());
    let mut sorted = ids.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, good_ids());
    job.sink.shuffle = Some(8);
    shop.run(&job, "c", 2).expect("it runs");
    assert_ne!(shop.ids("c/train"), ids);
}

#[test]
fn rows_that_meet_are_written_the_same_from_any_number_of_partitions() {
    let shop = Shop::new();
    let mut digests = Vec::new();
    for partitions in [1, 2, 4] {
        let mut job = shop.job("of_cities");
        job.partitions = Some(partitions);
        job.sink.shards = Some(4);
        let summary = shop.run(&job, &format!("p{partitions}"), 2).expect("it runs");
        assert_eq!(summary.rows, ROWS as u64);
        let mut ids = shop.ids(&format!("p{partitions}/train"));
        ids.sort_unstable();
        assert_eq!(ids, (0..ROWS).collect::<Vec<_>>());
        digests.push(summary.digest);
    }
    assert!(digests.iter().all(|digest| *digest == digests[0]), "{digests:?}");
}

#[test]
fn classes_are_divided_alike_and_each_row_is_in_one_part() {
    let shop = Shop::new();
    let mut job = shop.job("taxed");
    job.sink.split = vec![0.8, 0.1, 0.1];
    job.sink.stratify = Some("city".to_string());
    job.sink.shards = Some(5);
    let summary = shop.run(&job, "split", 2).expect("it runs");
    assert_eq!(shop.run(&job, "again", 1).expect("it runs").digest, summary.digest);
    let mut all = Vec::new();
    let mut classes: BTreeMap<i64, Vec<usize>> = BTreeMap::new();
    for part in ["train", "validation", "test"] {
        let ids = shop.ids(&format!("split/{part}"));
        for class in 0..3 {
            let of_class = ids.iter().filter(|id| **id % 7 % 3 == class).count();
            classes.entry(class).or_default().push(of_class);
        }
        all.extend(ids);
    }
    for (class, counts) in classes {
        let total = counts.iter().sum::<usize>() as f64;
        for (count, share) in counts.iter().zip(&job.sink.split) {
            let off = (*count as f64 - total * share).abs();
            assert!(off < 1.0 + 1e-6, "class {class}: {counts:?}");
        }
    }
    all.sort_unstable();
    assert_eq!(all, good_ids());
}

#[test]
fn shards_are_bounded_and_told_with_their_hashes() {
    let shop = Shop::new();
    let mut job = shop.job("taxed");
    job.sink.shard_records = Some(64);
    let summary = shop.run(&job, "small", 2).expect("it runs");
    assert_eq!(shop.ids("small/train"), good_ids());
    let manifest = fs::read(shop.at("small/manifest.json")).expect("there");
    let manifest: serde_json::Value = serde_json::from_slice(&manifest).expect("JSON");
    let shards = manifest["shards"].as_array().expect("shards");
    assert_eq!((shards.len() as u64, manifest["rows"].as_u64()), (summary.shards, Some(990)));
    for shard in shards {
        assert!(shard["rows"].as_u64().is_some_and(|rows| rows <= 64), "{shard}");
        let bytes = fs::read(shop.at("small").join(shard["file"].as_str().expect("a file")))
            .expect("there");
        assert_eq!(shard["blake3"], blake3::hash(&bytes).to_hex().as_str());
    }
}

#[test]
fn statistics_and_vocabularies_do_not_depend_on_who_counted() {
    let shop = Shop::new();
    let mut job = shop.job("taxed");
    job.sink.statistics = true;
    job.sink.vocabularies = vec!["city".to_string()];
    job.sink.shards = Some(7);
    for (out, threads) in [("one", 1), ("four", 4)] {
        shop.run(&job, out, threads).expect("it runs");
    }
    for file in ["stats.json", "vocabulary/city.txt", "manifest.json"] {
        let read = |out: &str| fs::read_to_string(shop.at(out).join(file)).expect("there");
        assert_eq!(read("one"), read("four"), "{file}");
    }
    let words = fs::read_to_string(shop.at("one/vocabulary/city.txt")).expect("there");
    assert_eq!(words, "bern\nlima\noslo\n");
    let stats =
        salamander_data::stats::Stats::from_file(&shop.at("one/stats.json")).expect("statistics");
    let prices = (0..ROWS).filter(|id| id % 100 != 50).map(|id| id as f64 / 8.0 * 1.5);
    let mean = prices.sum::<f64>() / 990.0;
    let (found, _) = stats.normaliser("price").expect("numbers");
    assert!((f64::from(found) - mean).abs() < 1e-3, "{found} {mean}");
}

#[test]
fn what_fails_leaves_nothing_and_says_why() {
    let shop = Shop::new();
    let check = |job: &FlowJob, expected: &str| {
        let before = fs::read_dir(shop.folder.path()).expect("a folder").count();
        let error = shop.run(job, "out", 2).expect_err("it fails").to_string();
        assert!(error.contains(expected), "{error}");
        assert_eq!(
            fs::read_dir(shop.folder.path()).expect("a folder").count(),
            before,
            "leftovers"
        );
    };
    check(&shop.job("failing"), "fail: cannot go on at 900");
    check(&shop.job("fialing"), "no flow \"fialing\" (there are: taxed, of_cities, failing)");
    let mut job = shop.job("taxed");
    job.parameters.insert("rate".to_string(), "much".to_string());
    check(&job, "--set rate=much: invalid float literal");
    let mut job = shop.job("taxed");
    job.sink.split = vec![0.5, 0.5];
    job.sink.stratify = Some("town".to_string());
    check(&job, "stratify: no column \"town\" (there are: id, city, price)");
    job.sink.split = vec![0.5, 0.5];
    job.sink.stratify = Some("ctiy".to_string());
    check(&job, "stratify: no column \"ctiy\" (did you mean \"city\"?)");
    let mut job = shop.job("taxed");
    job.sink.vocabularies = vec!["city".to_string(), "pirce".to_string()];
    check(&job, "vocabulary: no column \"pirce\" (did you mean \"price\"?)");
    let mut job = shop.job("taxed");
    job.sink.format = "orc".to_string();
    check(&job, "unknown format \"orc\"");
    let mut job = shop.job("taxed");
    job.sink.vocabularies = vec!["price".to_string()];
    check(&job, "vocabulary of \"price\": floats are no words");
    let mut job = shop.job("taxed");
    job.inputs.clear();
    check(&job, "name files with --in");
}

#[test]
fn an_output_that_is_there_is_not_touched() {
    let shop = Shop::new();
    let first = shop.run(&shop.job("taxed"), "out", 2).expect("it runs");
    let error = shop.run(&shop.job("of_cities"), "out", 2).expect_err("it is there").to_string();
    assert!(error.contains("is there already"), "{error}");
    assert_eq!(shop.ids("out/train").len() as u64, first.rows);
}

#[test]
fn what_a_killed_process_left_is_removed_by_the_next() {
    let shop = Shop::new();
    let left = shop.at(".out.flow-1");
    fs::create_dir(&left).expect("made");
    fs::write(left.join("lock"), "").expect("made");
    shop.run(&shop.job("taxed"), "out", 1).expect("it runs");
    assert!(!left.exists());
}

#[test]
fn a_broken_record_counts_once_where_a_flow_reads_it_twice() {
    let shop = Shop::new();
    shop.break_a_record();
    for partitions in [1, 3] {
        let mut job = shop.job("of_cities");
        job.partitions = Some(partitions);
        let out = format!("out-{partitions}");
        let summary = shop.run(&job, &out, 2).expect("it runs");
        assert_eq!((summary.rows, summary.bad_rows), (ROWS as u64 - 1, 1));
        let bad = fs::read_to_string(shop.at(&out).join("bad_rows.jsonl")).expect("kept");
        assert_eq!((bad.lines().count(), bad.contains(r#""step":"source""#)), (1, true), "{bad}");
    }
}

#[test]
fn broken_records_are_kept_aside_with_their_place() {
    let shop = Shop::new();
    shop.break_a_record();
    let summary = shop.run(&shop.job("taxed"), "out", 1).expect("it runs");
    assert_eq!((summary.rows, summary.bad_rows), (989, BAD + 1));
    let bad = fs::read_to_string(shop.at("out/bad_rows.jsonl")).expect("kept");
    let first = bad.lines().next().expect("a line");
    assert!(first.contains(r#""step":"source""#) && first.contains("sales.csv"), "{first}");
}

/// Does tasks as a worker does: the stage comes as JSON. The input is touched after the first.
struct TouchingWorker<'a> {
    flows: &'a Flows,
    input: PathBuf,
}

impl TaskRunner for TouchingWorker<'_> {
    fn is_shared(&self) -> bool {
        true
    }

    fn run(&mut self, stage: &FlowStage, folder: &Path) -> Result<Vec<TaskReport>, Error> {
        let told = serde_json::to_vec(stage).expect("JSON");
        let told: FlowStage = serde_json::from_slice(&told).expect("a stage");
        let mut reports = Vec::new();
        for task in 0..told.tasks() {
            reports.push(told.run(self.flows, task, folder, &format!("task-{task}"))?);
            let input = fs::File::options().append(true).open(&self.input).expect("opened");
            input.set_modified(UNIX_EPOCH).expect("touched");
        }
        Ok(reports)
    }
}

/// Who reads by the index that the first task has made notices that the file is another one; who makes a new index
/// does not.
#[test]
fn tasks_of_a_process_share_one_index() {
    let shop = Shop::new();
    let mut job = shop.job("taxed");
    job.sink.shards = Some(4);
    let mut worker = TouchingWorker { flows: &shop.flows, input: shop.at("sales.csv") };
    let error = job.run(&shop.flows, &shop.at("out"), &mut worker).expect_err("it has changed");
    assert!(error.to_string().contains("changed since it was indexed"), "{error}");
    assert!(!shop.at("out").exists());
}

#[test]
fn json_lines_that_were_written_can_be_read_by_the_engine() {
    let shop = Shop::new();
    let mut job = shop.job("taxed");
    job.sink.format = "jsonl".to_string();
    job.sink.shards = Some(2);
    assert_eq!(shop.run(&job, "lines", 1).expect("it runs").rows, 990);
    let rows = |place: &str| {
        let cx = FlowContext::new(&EngineSettings::default()).expect("an engine");
        let rows = cx.json_lines(&shop.at(place).display().to_string()).expect("a plan");
        rows.count().expect("read")
    };
    assert_eq!(rows("lines/train"), 990);
    assert_eq!(rows("lines/train/shard-00000.jsonl"), 495);
    fs::rename(shop.at("lines/train/shard-00001.jsonl"), shop.at("one.json")).expect("renamed");
    assert_eq!(rows("one.json"), 495);
}

#[test]
fn sql_writes_shards_too() {
    let shop = Shop::new();
    let mut job = shop.job("");
    job.call = FlowCall::Sql("select id, price * 2 as price from input where id < 100".to_string());
    job.sink.shards = Some(2);
    let summary = shop.run(&job, "some", 2).expect("it runs");
    assert_eq!((summary.rows, shop.ids("some/train")), (100, (0..100).collect()));
    job.call = FlowCall::Sql("select city, count(*) as id from input group by city".to_string());
    assert_eq!(shop.run(&job, "groups", 2).expect("it runs").rows, 3);
}

#[test]
fn a_disk_that_fails_is_no_broken_record() {
    let mut shop = Shop::new();
    shop.flows = flows![losing];
    let mut job = shop.job("losing");
    job.parameters.insert("input".to_string(), shop.at("sales.csv").display().to_string());
    let error = shop.run(&job, "out", 2).expect_err("the input is gone").to_string();
    assert!(error.contains("sales.csv") && error.contains("No such file"), "{error}");
    assert!(!shop.at("out").exists());
}

#[test]
fn asked_to_stop_a_flow_whose_rows_meet_ends_and_leaves_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let (flows, job) = (flows![endless], FlowJob::named("endless", &[]));
    let (stop, progress) = (AtomicBool::new(true), |_, _| {});
    let mut runner = TaskThreads { flows: &flows, threads: 2, stop: &stop, progress: &progress };
    let error = job.run(&flows, &folder.path().join("out"), &mut runner);
    assert!(matches!(error, Err(Error::Interrupted)), "{error:?}");
    assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 0);
}

#[test]
fn a_null_within_a_list_is_refused_where_it_has_no_place() {
    let shop = Shop::new();
    let query = "select id, make_array(id, nullif(id, 300)) as tags from input";
    let mut job = FlowJob { call: FlowCall::Sql(query.to_string()), ..shop.job("") };
    assert_eq!(shop.run(&job, "parquet", 2).expect("it runs").rows, ROWS as u64);
    for format in ["recordio", "jsonl"] {
        job.sink.format = format.to_string();
        let error = shop.run(&job, format, 2).expect_err("it has no place").to_string();
        assert!(error.contains("column \"tags\": a list has a null"), "{error}");
        assert!(!shop.at(format).exists());
    }
}
