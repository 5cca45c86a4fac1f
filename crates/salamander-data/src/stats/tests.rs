//! Columns of every kind, in one piece and in parts.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::*;

fn sample(records: std::ops::Range<i64>) -> Stats {
    let row = |record: i64| {
        let mut columns = vec![
            ("id".into(), Value::Ints(vec![record, record + 1].into())),
            ("image".into(), Value::Bytes(&b"abcdef"[..record as usize % 7])),
            ("city".into(), Value::Text(["Bern", "Chur", ""][record as usize % 3])),
        ];
        if record % 2 == 0 {
            columns.push(("rare".into(), Value::Floats(vec![0.5].into())));
        }
        Row::new(columns)
    };
    records.map(row).collect()
}

#[test]
fn columns_are_described_by_their_kind() {
    let stats = sample(0..30);
    let names: Vec<&str> = stats.columns().iter().map(|column| column.name.as_str()).collect();
    assert_eq!(names, ["id", "image", "city", "rare"]);
    let id = stats.column("id").unwrap();
    assert_eq!((id.count, id.values), (30, 60));
    assert_eq!(stats.column("image").unwrap().lengths, Some(Lengths { min: 0, max: 6 }));
    assert_eq!((stats.missing("city"), stats.missing("rare"), stats.missing("x")), (10, 15, 30));
    let words = stats.column("city").unwrap().words.as_ref().unwrap();
    assert_eq!(words.top(1), [("Bern", 10)]);
}

#[test]
fn only_columns_of_numbers_can_be_normalised() {
    let stats = sample(0..30);
    assert_eq!(stats.normaliser("rare"), Some((0.5, 0.0)));
    assert_eq!(stats.normaliser("city"), None);
    assert_eq!(stats.normaliser("image"), None);
    assert_eq!(stats.normaliser("nothing"), None);
    let mixed: Stats =
        ["1", "two"].map(|x| Row::new(vec![("x".into(), Value::Text(x))])).into_iter().collect();
    assert_eq!(mixed.normaliser("x"), None);
}

#[test]
fn merged_parts_are_the_whole() {
    let mut merged = sample(0..10);
    merged.merge(&sample(10..30));
    let whole = sample(0..30);
    assert_eq!(merged.records, 30);
    for (ours, theirs) in merged.columns().iter().zip(whole.columns()) {
        assert_eq!(
            (&ours.name, ours.count, ours.values),
            (&theirs.name, theirs.count, theirs.values)
        );
        assert_eq!((&ours.words, ours.lengths), (&theirs.words, theirs.lengths));
    }
    let ours = merged.normaliser("id").unwrap();
    let theirs = whole.normaliser("id").unwrap();
    assert!((ours.0 - theirs.0).abs() < 1e-5 && (ours.1 - theirs.1).abs() < 1e-5);
}

#[test]
fn a_file_has_statistics_alone_or_in_the_answer_of_inspect() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("stats.json");
    let stats = serde_json::to_value(sample(0..30)).unwrap();
    let check = |written: serde_json::Value, good: bool| {
        std::fs::write(&path, written.to_string()).unwrap();
        let found = Stats::from_file(&path).ok().map(|stats| stats.normaliser("id"));
        assert_eq!(found, good.then(|| sample(0..30).normaliser("id")), "{written:.60}");
    };
    check(stats.clone(), true);
    check(serde_json::json!({"format": "csv", "records": 30, "stats": stats}), true);
    check(serde_json::json!({"format": "csv", "records": 30, "stats": null}), false);
    check(serde_json::json!([1, 2]), false);
    std::fs::remove_file(&path).unwrap();
    assert!(matches!(Stats::from_file(&path), Err(Error::Io { .. })));
}

/// What is needed again is there to the last bit, and no list of raw values is.
#[test]
fn json_has_figures_and_no_raw_values() {
    let row = |record: u16| {
        Row::new(vec![("x".into(), Value::Floats(vec![f32::from(record) / 3.0].into()))])
    };
    let stats: Stats = (0..10_000).map(row).collect();
    let json = serde_json::to_value(&stats).unwrap();
    let numbers = &json["columns"][0]["numbers"];
    let column = stats.column("x").unwrap().numbers.as_ref().unwrap();
    assert_eq!(numbers["std"], column.std());
    assert_eq!((&numbers["median_exact"], numbers["median"].is_f64()), (&false.into(), true));
    assert!(json.to_string().len() < 400, "{json}");
    let back: Stats = serde_json::from_value(json.clone()).unwrap();
    assert_eq!(back.normaliser("x"), stats.normaliser("x"));
    assert_eq!(serde_json::to_value(&back).unwrap(), json);
    let by_hand = r#"{"records": 2, "columns": [{"name": "x", "count": 2, "values": 2,
        "numbers": {"count": 2, "mean": 3.0, "std": 0.5}}]}"#;
    let by_hand: Stats = serde_json::from_str(by_hand).unwrap();
    assert_eq!(by_hand.normaliser("x"), Some((3.0, 0.5)));
}

/// Several parts, so that what threads read is merged.
#[test]
fn a_dataset_is_read_to_its_end() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.csv");
    let lines: String = (0..200_000).map(|record| format!("{record}\n")).collect();
    std::fs::write(&path, format!("x\n{lines}")).unwrap();
    let reader = crate::open(&[path], None).unwrap();
    let dataset = Dataset::new(Arc::from(reader)).unwrap();
    let done = AtomicU64::new(0);
    let progress = |more| _ = done.fetch_add(more, Ordering::Relaxed);
    let stats = Stats::of(&dataset, progress).unwrap();
    assert_eq!((stats.records, done.into_inner()), (200_000, 200_000));
    assert_eq!(stats.normaliser("x").map(|(mean, _)| mean), Some(99_999.5));
    let words = stats.column("x").unwrap().words.as_ref().unwrap();
    assert!(!words.exact() && (190_000..210_000).contains(&words.distinct()));
    let again = Stats::of(&dataset, |_| ()).unwrap();
    assert_eq!(again, stats, "whichever thread is done first");
}
