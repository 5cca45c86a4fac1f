//! Every operation of a flow against a plain one on vectors, for random tables and any number of partitions.

use std::collections::BTreeMap;
use std::fmt::Debug;

use proptest::collection::vec;
use proptest::prelude::*;
use salamander_flow::flow::aggregates::{count, sum};
use salamander_flow::flow::{EngineSettings, Error, FlowContext, FlowShape, Join, TSet, col, lit};
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct LeftRow {
    id: i64,
    key: String,
    x: i64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct RightRow {
    key: String,
    y: i64,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct JoinedRow {
    id: Option<i64>,
    key: String,
    x: Option<i64>,
    y: Option<i64>,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct KeySum {
    key: String,
    total: i64,
    rows: i64,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct KeyGroup {
    key: String,
    y: Vec<i64>,
}

fn context(partitions: usize) -> FlowContext {
    let settings = EngineSettings { partitions: Some(partitions), ..EngineSettings::default() };
    FlowContext::new(&settings).expect("a context")
}

fn table<T>(cx: &FlowContext, rows: &[T], partitions: usize) -> TSet
where
    T: Clone + Sync + Serialize + for<'de> Deserialize<'de> + Send + 'static,
{
    let rows = rows.to_vec();
    let part = move |number: usize| {
        rows.clone().into_iter().skip(number).step_by(partitions).collect::<Vec<T>>().into_iter()
    };
    cx.source("rows", partitions, part).expect("a source")
}

/// Rows without an order.
fn bag<T: Debug>(rows: impl IntoIterator<Item = T>) -> Vec<String> {
    let mut rows: Vec<String> = rows.into_iter().map(|row| format!("{row:?}")).collect();
    rows.sort();
    rows
}

fn key() -> impl Strategy<Value = String> {
    "[a-e]"
}

fn items() -> impl Strategy<Value = Vec<LeftRow>> {
    let item = (any::<i16>(), key(), -100i64..100);
    vec(item.prop_map(|(id, key, x)| LeftRow { id: id.into(), key, x }), 0..40)
}

fn others() -> impl Strategy<Value = Vec<RightRow>> {
    vec((key(), -100i64..100).prop_map(|(key, y)| RightRow { key, y }), 0..12)
}

fn joined(left: &[LeftRow], right: &[RightRow], kind: Join) -> Vec<JoinedRow> {
    let mut rows = Vec::new();
    for item in left {
        for other in right.iter().filter(|other| other.key == item.key) {
            let (id, x, y) = (Some(item.id), Some(item.x), Some(other.y));
            rows.push(JoinedRow { id, key: item.key.clone(), x, y });
        }
    }
    let alone = |key: &str, id: Option<i64>, x: Option<i64>, y: Option<i64>| JoinedRow {
        id,
        key: key.to_string(),
        x,
        y,
    };
    if matches!(kind, Join::Left | Join::Full) {
        let without = left.iter().filter(|item| right.iter().all(|other| other.key != item.key));
        rows.extend(without.map(|item| alone(&item.key, Some(item.id), Some(item.x), None)));
    }
    if matches!(kind, Join::Right | Join::Full) {
        let without = right.iter().filter(|other| left.iter().all(|item| item.key != other.key));
        rows.extend(without.map(|other| alone(&other.key, None, None, Some(other.y))));
    }
    rows
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn functions_on_rows_equal_plain_ones(left in items(), partitions in 1usize..4) {
        let cx = context(partitions);
        let rows = || table(&cx, &left, partitions);
        let twice = |item: LeftRow| LeftRow { x: item.x * 2, ..item };
        let mapped = rows().map("twice", move |item| Ok(twice(item))).unwrap();
        prop_assert_eq!(bag(mapped.gather::<LeftRow>().unwrap()), bag(left.iter().cloned().map(twice)));

        let copies = |item: LeftRow| vec![item.clone(); item.x.rem_euclid(3) as usize];
        let many = rows().flat_map("copies", move |item| Ok(copies(item))).unwrap();
        prop_assert_eq!(bag(many.gather::<LeftRow>().unwrap()), bag(left.iter().cloned().flat_map(copies)));

        let positive = bag(left.iter().filter(|item| item.x > 0));
        let filtered = rows().filter(col("x").gt(lit(0))).unwrap();
        prop_assert_eq!(bag(filtered.gather::<LeftRow>().unwrap()), positive.clone());
        let filtered = rows().filter_rows("positive", |item: &LeftRow| item.x > 0).unwrap();
        prop_assert_eq!(bag(filtered.gather::<LeftRow>().unwrap()), positive);

        // Each partition's sum; together they are the sum of all.
        let sums = rows().compute("sum", || {
            let mut total = 0;
            move |items: Vec<LeftRow>| {
                total += items.iter().map(|item| item.x).sum::<i64>();
                let end = RightRow { key: "sum".to_string(), y: total };
                Ok(if items.is_empty() { vec![end] } else { Vec::new() })
            }
        }).unwrap();
        let sums = sums.gather::<RightRow>().unwrap();
        let total: i64 = left.iter().map(|item| item.x).sum();
        prop_assert_eq!(sums.iter().map(|sum| sum.y).sum::<i64>(), total);
        prop_assert!(sums.len() >= partitions);

        let reduced = rows().reduce(|a: LeftRow, b: LeftRow| LeftRow { x: a.x + b.x, ..a }).unwrap();
        prop_assert_eq!(reduced.map(|item| item.x), (!left.is_empty()).then_some(total));
        prop_assert_eq!(rows().count().unwrap(), left.len() as u64);
        let mut seen = Vec::new();
        rows().for_each(|item: LeftRow| seen.push(item)).unwrap();
        prop_assert_eq!(bag(seen), bag(&left));
    }

    #[test]
    fn rows_that_meet_equal_plain_ones(left in items(), right in others(), partitions in 1usize..4) {
        let cx = context(partitions);
        let (items, others) = (|| table(&cx, &left, partitions), || table(&cx, &right, 2));
        for kind in [Join::Inner, Join::Left, Join::Right, Join::Full] {
            let rows = items().join(others(), kind, &["key"]).unwrap().gather::<JoinedRow>().unwrap();
            prop_assert_eq!(bag(rows), bag(joined(&left, &right, kind)), "{:?}", kind);
        }
        let spread = items().partition(3).unwrap().gather::<LeftRow>().unwrap();
        prop_assert_eq!(bag(spread), bag(&left));
        let spread = items().partition_by(&["key"], 3).unwrap().gather::<LeftRow>().unwrap();
        prop_assert_eq!(bag(spread), bag(&left));
        let both = items().union(items()).unwrap().gather::<LeftRow>().unwrap();
        prop_assert_eq!(bag(both), bag(left.iter().chain(&left)));

        let mut sums: BTreeMap<&str, (i64, i64)> = BTreeMap::new();
        for item in &left {
            let sum = sums.entry(&item.key).or_default();
            *sum = (sum.0 + item.x, sum.1 + 1);
        }
        let expected = sums.into_iter().map(|(key, (total, rows))| KeySum { key: key.to_string(), total, rows });
        let expected = bag(expected);
        let aggregates = vec![sum(col("x")).alias("total"), count(lit(1)).alias("rows")];
        let found = items().key_by(&["key"]).reduce(aggregates).unwrap().gather::<KeySum>().unwrap();
        prop_assert_eq!(bag(found), expected.clone());
        cx.register("items", &items()).unwrap();
        let query = "select key, sum(x) as total, count(*) as rows from items group by key";
        prop_assert_eq!(bag(cx.sql(query).unwrap().gather::<KeySum>().unwrap()), expected);

        let mut groups: BTreeMap<String, Vec<i64>> = BTreeMap::new();
        right.iter().for_each(|other| groups.entry(other.key.clone()).or_default().push(other.y));
        let sorted = |mut group: KeyGroup| {
            group.y.sort_unstable();
            group
        };
        let found = others().key_by(&["key"]).gather().unwrap().gather::<KeyGroup>().unwrap();
        let expected = groups.into_iter().map(|(key, y)| sorted(KeyGroup { key, y }));
        prop_assert_eq!(bag(found.into_iter().map(sorted)), bag(expected));

        let folder = tempfile::tempdir().unwrap();
        let cached = items().cache(&folder.path().join("kept")).unwrap();
        prop_assert_eq!(bag(cached.gather::<LeftRow>().unwrap()), bag(&left));
    }
}

#[test]
fn plans_are_shown_and_nothing_runs_before_an_end() {
    let cx = context(2);
    let rows = cx
        .source("never", 1, |_| -> std::vec::IntoIter<LeftRow> { panic!("it ran") })
        .and_then(|rows| rows.map("twice", |item: LeftRow| Ok(item)))
        .and_then(|rows| rows.filter(col("x").gt(lit(3))))
        .expect("a plan");
    let plan = rows.explain().expect("a plan");
    assert!(plan.contains("map twice") && plan.contains("FunctionExec"), "{plan}");
    let shape = FlowShape::of(&rows).expect("a shape");
    assert_eq!(shape, FlowShape::Whole("a source of its own".to_string()));
}

#[test]
fn mistakes_name_the_function_and_the_column() {
    let cx = context(1);
    let rows = table(&cx, &[RightRow { key: "a".to_string(), y: 1 }], 1);
    let check = |result: Result<TSet, Error>, expected: &str| {
        let error = result.map(|_| ()).expect_err("it is wrong").to_string();
        assert!(error.contains(expected), "{error}");
    };
    check(
        rows.clone().map("twice", |item: LeftRow| Ok(item)),
        "twice: no column \"id\" (there are: key, y)",
    );
    check(
        rows.clone().join(rows.clone(), Join::Inner, &["key"]),
        "join: both sides have a column \"y\"",
    );
    check(rows.filter(col("z").gt(lit(1))), "z");
    check(cx.sql("select nothing from nowhere"), "nowhere");
    check(cx.sql("create table t (x int)"), "DDL not supported");
}

#[test]
fn rows_that_a_function_refuses_are_kept_with_the_reason() {
    let cx = context(1);
    let all: Vec<RightRow> = (0..10).map(|y| RightRow { key: format!("k{y}"), y }).collect();
    let rows = table(&cx, &all, 1).map("even", |other: RightRow| match other.y % 2 {
        0 => Ok(other),
        _ => Err(format!("{} is odd", other.y)),
    });
    let rows = rows.expect("a plan");
    assert_eq!(rows.gather::<RightRow>().expect("rows").len(), 5);
    let bad = rows.take_bad_rows();
    assert_eq!((bad.len(), bad[0].step.as_str(), bad[0].reason.as_str()), (5, "even", "1 is odd"));
    assert_eq!(bad[0].row["key"], "k1");
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct RowsAndSum {
    many: i64,
    total: i64,
}

#[test]
fn a_join_stays_within_a_bound_of_memory() {
    const ROWS: i64 = 1_000_000;
    let settings =
        EngineSettings { partitions: Some(2), memory: Some(48 << 20), ..EngineSettings::default() };
    let cx = FlowContext::new(&settings).expect("a context");
    // A side takes 40 MB, more than there is together with a table of its hashes.
    let side = |name: &str| {
        format!(
            "(select (value * 7919) % {ROWS} as id, value as {name}1, value + 1 as {name}2, value + 2 as {name}3, \
             value + 3 as {name}4 from generate_series(0, {}))",
            ROWS - 1
        )
    };
    let query = format!(
        "select count(*) as many, sum(l1 + l2 + l3 + l4 + r1 + r2 + r3 + r4) as total \
         from {} a join {} b on a.id = b.id",
        side("l"),
        side("r"),
    );
    let rows = cx.sql(&query).expect("a plan");
    let plan = rows.explain().expect("a plan");
    assert!(plan.contains("SortMergeJoin") && !plan.contains("HashJoin"), "{plan}");
    // Each value meets itself: four times on each side, with 0 to 3 added.
    let total = 2 * (4 * (ROWS * (ROWS - 1) / 2) + 6 * ROWS);
    let found = rows.gather::<RowsAndSum>().expect("it fits");
    assert_eq!(found, [RowsAndSum { many: ROWS, total }]);
}

#[test]
fn a_function_on_partitions_is_told_their_end_once() {
    let cx = context(1);
    // Three batches.
    let all: Vec<RightRow> = (0..12_000).map(|y| RightRow { key: String::new(), y }).collect();
    let ends = |rows: Result<TSet, Error>| -> Vec<i64> {
        let counted = rows.and_then(|rows| {
            rows.compute("count", || {
                let mut seen = 0;
                move |rows: Vec<RightRow>| {
                    seen += rows.len() as i64;
                    let end = RightRow { key: "end".to_string(), y: seen };
                    Ok(if rows.is_empty() { vec![end] } else { Vec::new() })
                }
            })
        });
        let rows = counted.and_then(|rows| rows.gather::<RightRow>()).expect("rows");
        rows.into_iter().map(|row| row.y).collect()
    };
    let rows = || table(&cx, &all, 1);
    assert_eq!(ends(rows().map("same", |row: RightRow| Ok(row))), [12_000]);
    // Nothing is left of the second batch.
    let outside = |row: &RightRow| !(4_000..8_500).contains(&row.y);
    assert_eq!(ends(rows().filter_rows("outside", outside)), [7_500]);
    let none = |_: RightRow| -> Result<RightRow, String> { Err("nobody".to_string()) };
    assert_eq!(ends(rows().map("none", none)), [0]);
    let twice = |row: RightRow| Ok(vec![row.clone(), row]);
    assert_eq!(ends(rows().flat_map("twice", twice)), [24_000]);
}
