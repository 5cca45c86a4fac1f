//! The flow of the guide's page, run: the page has the very text of this file.

use salamander_flow as salamander;

// The page begins.
use salamander::flow::{Error, FlowContext, TSet};
use serde::{Deserialize, Serialize};

/// A row: its fields are columns, which are cast to these types.
#[derive(Serialize, Deserialize)]
struct Person {
    name: String,
    age: f32,
}

/// Grown-ups, with their age in units of `--set unit=..`.
fn adults(cx: &FlowContext) -> Result<TSet, Error> {
    let unit: f32 = cx.parameter("unit", 1.0)?;
    cx.input()?.filter_rows("adults", |person: &Person| person.age >= 18.0)?.map(
        "unit",
        move |person: Person| match person.age {
            age if age > 150.0 => Err(format!("nobody is {age} years old")),
            age => Ok(Person { age: age / unit, ..person }),
        },
    )
}
// The page ends.

#[test]
fn the_guides_flow_does_what_it_says() {
    let page = include_str!("../../../docs/guide/src/flow.md");
    let own = include_str!("guide.rs");
    let code = own
        .split("// The page begins.\n")
        .nth(1)
        .and_then(|rest| rest.split("// The page ends.").next());
    assert!(page.contains(&format!("```rust\n{}```", code.expect("the code"))), "the page differs");

    let folder = tempfile::tempdir().expect("a folder");
    let people = folder.path().join("people.csv");
    std::fs::write(&people, "name,age\nada,36\nbob,7\nmethuselah,969\n").expect("written");
    let mut job = salamander::flow::FlowJob::named("adults", &[&people.display().to_string()]);
    job.parameters.insert("unit".to_string(), "10".to_string());
    job.sink.format = "jsonl".to_string();
    let out = folder.path().join("adults");
    let summary = job.run_here(&salamander::flows![adults], &out).expect("it runs");
    assert_eq!((summary.rows, summary.bad_rows), (1, 1));
    let rows = std::fs::read_to_string(out.join("train/shard-00000.jsonl")).expect("rows");
    assert_eq!(rows.trim(), r#"{"name":"ada","age":3.6}"#);
}
