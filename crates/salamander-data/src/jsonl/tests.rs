//! JSON lines as people have them, whole and broken.

use proptest::prelude::*;

use super::*;
use crate::{Format, Value, sink};

/// All rows as Rust prints them, or the error.
fn rows(content: &str) -> Result<Vec<String>, String> {
    let (_folder, path) = crate::blob::saved("a.jsonl", content.as_bytes());
    let strip = |error: Error| error.to_string().replace(&format!("{}", path.display()), "a");
    let file = crate::open(std::slice::from_ref(&path), None).map_err(strip)?;
    let mut rows = Vec::new();
    let records = file.shards().unwrap()[0].records;
    file.read(0, 0..records, &mut |_, row| {
        let cells = row.columns().map(|(name, value)| format!("{name}={value:?}"));
        rows.push(cells.collect::<Vec<_>>().join(" "));
        Ok(())
    })
    .map_err(strip)?;
    Ok(rows)
}

#[test]
fn values_have_the_kinds_of_their_json() {
    let check = |line: &str, expected: &str| assert_eq!(rows(line).unwrap(), [expected], "{line}");
    check(r#"{"b": 1, "a": 0.5, "c": "x"}"#, "b=Ints([1]) a=Floats([0.5]) c=Text(\"x\")");
    check(r#"{"yes": true, "none": null}"#, "yes=Ints([1])");
    check(
        r#"{"v": [1, 2], "w": [1, 2.5], "e": []}"#,
        "v=Ints([1, 2]) w=Floats([1.0, 2.5]) e=List([])",
    );
    check(r#"{"t": ["a", "b"], "s": ["a"]}"#, "t=List([[97], [98]]) s=Bytes([97])");
    check(r#"{"user": {"name": "ada", "age": 36}}"#, "user.name=Text(\"ada\") user.age=Ints([36])");
    check("\u{feff}{\"x\": 1}\r\n\r\n", "x=Ints([1])");
    assert!(rows("").unwrap().is_empty());
}

#[test]
fn faults_are_named_with_their_line() {
    let check = |content: &str, expected: &str| assert_eq!(rows(content).unwrap_err(), expected);
    check(
        "{\"x\": 1}\n\n[1]\n",
        "a: record 1: line 3: a list where an object is due: write {\"name\": value, ..}",
    );
    check("{\"x\": 1\n", "a: record 0: line 1: no JSON: EOF while parsing an object at column 7");
    check("{\"x\": [1, null]}", "a: record 0: line 1: column \"x\": a null inside a list");
    check("{\"x\": [[1]]}", "a: record 0: line 1: column \"x\": a list inside a list");
    check(
        "{\"x\": 9223372036854775808}",
        "a: record 0: line 1: column \"x\": 9223372036854775808 is more than 9223372036854775807",
    );
    check("{\"a\": {\"b\": 1}, \"a.b\": 2}", "a: record 0: line 1: column \"a.b\": occurs twice");
}

#[test]
fn a_bad_line_does_not_spoil_the_others_and_ranges_start_anywhere() {
    let mut content = String::new();
    for record in 0..3000 {
        content +=
            &if record == 1500 { "oops\n".to_owned() } else { format!("{{\"x\": {record}}}\n\n") };
    }
    let (_folder, path) = crate::blob::saved("a.ndjson", content.as_bytes());
    let file = crate::open(&[path], None).unwrap();
    for record in [0u64, 1023, 1024, 1499, 1501, 2999] {
        file.read(0, record..record + 1, &mut |_, row| {
            assert_eq!(row.ints("x")?, [record as i64]);
            Ok(())
        })
        .unwrap();
    }
    let error = file.read(0, 1499..1502, &mut |_, _| Ok(())).unwrap_err().to_string();
    assert!(
        error.ends_with("record 1500: line 3001: no JSON: expected value at column 1"),
        "{error}"
    );
}

#[test]
fn what_a_reader_of_rows_says_has_the_line_too() {
    let (_folder, path) = crate::blob::saved("a.jsonl", b"{\"x\": 1}\n{\"x\": 2}\n");
    let file = crate::open(&[path], None).unwrap();
    let error =
        file.read(0, 1..2, &mut |_, row| row.text("x").map(|_| ())).unwrap_err().to_string();
    assert!(
        error.ends_with("record 1: column \"x\": line 2: integers where text are needed"),
        "{error}"
    );
}

proptest! {
    #[test]
    fn any_lines_are_read_or_refused(content in "[\\[\\]{}a\",:0-9.\\-\\n ]{0,200}") {
        let _ = rows(&content);
    }

    #[test]
    fn rows_survive_being_written(
        ints in prop::collection::vec(any::<i64>(), 1..4),
        floats in prop::collection::vec(-1e30f32..1e30, 1..4),
        text in "\\PC{0,10}",
    ) {
        let folder = tempfile::tempdir().unwrap();
        for name in ["a.jsonl", "a.jsonl.gz"] {
            let path = folder.path().join(name);
            let row = Row::new(vec![
                ("z".into(), Value::Ints(ints.as_slice().into())),
                ("f".into(), Value::Floats(floats.as_slice().into())),
                ("a".into(), Value::Text(&text)),
            ]);
            let mut file = sink::create(&path, Format::JsonLines).unwrap();
            file.write(&row).unwrap();
            file.finish().unwrap();
            let read = crate::open(&[path], None).unwrap();
            read.read(0, 0..1, &mut |_, found| {
                assert_eq!(found, row);
                Ok(())
            })
            .unwrap();
        }
    }
}
