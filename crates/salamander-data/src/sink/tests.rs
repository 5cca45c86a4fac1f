//! Round trips through every format that is written, and what each of them refuses.

use std::path::PathBuf;

use proptest::collection::{btree_map, vec};
use proptest::prelude::*;

use super::*;
use crate::{Value, open};

mod public;

/// A value that owns its content.
#[derive(Clone, Debug, PartialEq)]
enum Owned {
    Ints(Vec<i64>),
    Floats(Vec<f32>),
    Bytes(Vec<Vec<u8>>),
    Text(String),
}

type OwnedRow = Vec<(String, Owned)>;

impl Owned {
    fn borrow(&self) -> Value<'_> {
        match self {
            Owned::Ints(items) => Value::Ints(items.into()),
            Owned::Floats(items) => Value::Floats(items.into()),
            Owned::Text(text) => Value::Text(text),
            Owned::Bytes(items) => match &items[..] {
                [one] => Value::Bytes(one),
                many => Value::List(many.iter().map(Vec::as_slice).collect()),
            },
        }
    }
}

fn owned(value: &Value<'_>) -> Owned {
    match value {
        Value::Bytes(bytes) => Owned::Bytes(vec![bytes.to_vec()]),
        Value::List(items) => Owned::Bytes(items.iter().map(|item| item.to_vec()).collect()),
        Value::Text(text) => Owned::Text((*text).to_owned()),
        Value::Ints(items) => Owned::Ints(items.to_vec()),
        Value::Floats(items) => Owned::Floats(items.to_vec()),
    }
}

fn borrow(row: &OwnedRow) -> Row<'_> {
    Row::new(row.iter().map(|(name, value)| (name.into(), value.borrow())).collect())
}

fn write(path: &Path, format: Format, rows: &[OwnedRow]) -> Result<(), Error> {
    let mut sink = create(path, format)?;
    for row in rows {
        sink.write(&borrow(row))?;
    }
    sink.finish()
}

fn read(path: &Path) -> Vec<OwnedRow> {
    let reader = open(&[path.to_owned()], None).unwrap();
    let records = reader.shards().unwrap()[0].records;
    let mut rows = Vec::new();
    let each = &mut |_, row: Row<'_>| {
        rows.push(row.columns().map(|(name, value)| (name.to_owned(), owned(value))).collect());
        Ok(())
    };
    reader.read(0, 0..records, each).unwrap();
    rows
}

fn round_trip(name: &str, rows: &[OwnedRow]) -> Vec<OwnedRow> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    write(&path, Format::guess(&path).unwrap(), rows).unwrap();
    read(&path)
}

fn refused(name: &str, rows: &[OwnedRow]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    let message = write(&path, Format::guess(&path).unwrap(), rows).unwrap_err().to_string();
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is left behind");
    message.rsplit_once('/').map_or(message.clone(), |(_, rest)| rest.to_owned())
}

fn one(name: &str, value: Owned) -> OwnedRow {
    vec![(name.to_owned(), value)]
}

const ALL: [&str; 5] = ["a.recordio", "a.tfrecord", "a.csv", "a.tsv", "a.parquet"];

#[test]
fn no_rows_are_a_readable_file() {
    for name in ALL.iter().filter(|name| cfg!(feature = "parquet") || !name.ends_with("parquet")) {
        assert_eq!(round_trip(name, &[]), Vec::<OwnedRow>::new(), "{name}");
    }
}

#[test]
fn records_that_are_no_examples_stay_as_they_are() {
    let rows = [b"not an example".to_vec(), Vec::new(), vec![0xff; 9]];
    let rows = rows.map(|bytes| one("record", Owned::Bytes(vec![bytes])));
    for name in ["a.recordio", "a.tfrecord"] {
        assert_eq!(round_trip(name, &rows), rows, "{name}");
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.tfrecord");
    write(&path, Format::TfRecord, &rows[..1]).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 16 + 14);
}

#[test]
fn an_example_inside_a_record_column_is_not_unpacked() {
    let inner =
        crate::example_proto::Example::new([("x", crate::example_proto::Feature::ints([1]))]);
    let rows = [one("record", Owned::Bytes(vec![inner.to_bytes()]))];
    assert_eq!(round_trip("a.recordio", &rows), rows);
}

#[test]
fn numbers_survive_csv() {
    let rows: Vec<OwnedRow> = [0.1f32, -0.0, f32::MIN_POSITIVE, f32::MAX, f32::INFINITY, 1e-45]
        .map(|value| {
            vec![
                ("f".to_owned(), Owned::Floats(vec![value, 2.0])),
                ("i".to_owned(), Owned::Ints(vec![i64::MIN, i64::MAX])),
            ]
        })
        .to_vec();
    let folder = tempfile::tempdir().unwrap();
    let (first, second) = (folder.path().join("a.recordio"), folder.path().join("a.csv"));
    write(&first, Format::RecordIo, &rows).unwrap();
    write(&second, Format::Csv, &read(&first)).unwrap();
    for (row, expected) in read(&second).iter().zip(&rows) {
        let Owned::Text(floats) = &row[0].1 else { panic!("{row:?}") };
        let Owned::Text(ints) = &row[1].1 else { panic!("{row:?}") };
        let floats = floats.split(' ').map(|item| item.parse().unwrap()).collect();
        let ints = ints.split(' ').map(|item| item.parse().unwrap()).collect();
        assert_eq!([&expected[0].1, &expected[1].1], [&Owned::Floats(floats), &Owned::Ints(ints)]);
    }
}

#[test]
fn another_sign_separates_cells_and_is_quoted_in_them() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.csv");
    let mut sink = create_csv(&path, ";".parse().ok()).unwrap();
    let cells = [("x", "1,5"), ("y", "a;b")];
    let row = cells.map(|(name, cell)| (name.into(), Value::Text(cell)));
    sink.write(&Row::new(row.into())).unwrap();
    sink.finish().unwrap();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "x;y\n1,5;\"a;b\"\n");
}

#[test]
fn csv_names_what_it_cannot_hold() {
    let x = |value| one("x", value);
    let check = |rows: &[OwnedRow], expected: &str| assert_eq!(refused("a.csv", rows), expected);
    let fine = x(Owned::Ints(vec![1]));
    check(
        &[fine.clone(), x(Owned::Bytes(vec![vec![0xff]]))],
        "a.csv: record 1: column \"x\": bytes that are not UTF-8, which csv cannot hold",
    );
    check(
        &[fine.clone(), one("y", Owned::Ints(vec![1]))],
        "a.csv: record 1: column \"y\": the first record has no such column, so the header neither",
    );
    check(
        &[x(Owned::Bytes(vec![b"a b".to_vec(), b"c".to_vec()]))],
        "a.csv: record 0: column \"x\": a list with an empty item or spaces in one, which csv \
         cannot hold",
    );
    check(&[Vec::new()], "a.csv: record 0: no columns to make a header of");
    check(
        &[[fine.clone(), fine].concat()],
        "a.csv: record 0: column \"x\": occurs twice, which a header cannot tell apart",
    );
}

#[test]
fn a_record_too_large_for_recordio_is_named() {
    let large = one("x", Owned::Bytes(vec![vec![0; crate::recordio::MAX_RECORD_BYTES]]));
    let message = refused("a.recordio", &[one("x", Owned::Ints(vec![1])), large]);
    assert!(message.starts_with("a.recordio: record 1: 33554"), "{message}");
    assert!(refused("a.tfrecord", &[Vec::new()]).starts_with("a.tfrecord: record 0: no columns"));
}

#[test]
fn a_database_is_not_written() {
    let message = create(Path::new("x.db"), Format::Sqlite).err().unwrap().to_string();
    assert!(
        message.starts_with("x.db: sqlite is read, not written: give recordio, csv, jsonl, idx, "),
        "{message}"
    );
}

#[test]
fn bytes_grow_with_the_rows() {
    for name in ALL.iter().filter(|name| cfg!(feature = "parquet") || !name.ends_with("parquet")) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        let mut sink = create(&path, Format::guess(&path).unwrap()).unwrap();
        for record in 0..20_000 {
            sink.write(&borrow(&one("x", Owned::Text(format!("some text {record}"))))).unwrap();
        }
        let bytes = sink.bytes();
        sink.finish().unwrap();
        let size = std::fs::metadata(&path).unwrap().len();
        // What waits for compression counts in full, so more is right, but not without bound.
        assert!(bytes > size / 3 && bytes < 8 * size, "{name}: {bytes} of {size}");
    }
}

#[cfg(feature = "parquet")]
mod parquet {
    use super::*;

    #[test]
    fn kinds_come_from_the_first_records() {
        let rows = [
            one("x", Owned::Ints(vec![1])),
            one("y", Owned::Text("a".into())),
            one("x", Owned::Floats(vec![0.5, 2.0])),
            one("y", Owned::Bytes(vec![vec![0xff]])),
            Vec::new(),
        ];
        let expected = [
            one("x", Owned::Floats(vec![1.0])),
            one("y", Owned::Bytes(vec![b"a".to_vec()])),
            rows[2].clone(),
            rows[3].clone(),
            Vec::new(),
        ];
        assert_eq!(round_trip("a.parquet", &rows), expected);
    }

    #[test]
    fn what_comes_too_late_is_named() {
        let check = |late: OwnedRow, expected: &str| {
            let mut rows = vec![one("x", Owned::Ints(vec![1])); 1200];
            rows.push(late);
            assert_eq!(refused("a.parquet", &rows), format!("a.parquet: record 1200: {expected}"));
        };
        let start = "column \"x\": ";
        check(
            one("x", Owned::Floats(vec![0.5])),
            &format!("{start}floats where the first records have integers"),
        );
        check(
            one("x", Owned::Ints(vec![1, 2])),
            &format!("{start}2 items where the first records have one"),
        );
        check(
            one("y", Owned::Ints(vec![1])),
            "column \"y\": the first 1000 records have no such column",
        );
    }

    #[test]
    fn an_integer_that_no_float_equals_is_named() {
        let rows = [one("x", Owned::Floats(vec![0.5])), one("x", Owned::Ints(vec![16_777_217]))];
        assert_eq!(
            refused("a.parquet", &rows),
            "a.parquet: record 1: column \"x\": 16777217 is among floats, and no float of 32 bits \
             is the same"
        );
    }

    #[test]
    fn late_nulls_and_many_batches_survive() {
        let rows: Vec<OwnedRow> = (0..5000)
            .map(|n| match n % 3 {
                0 => one("x", Owned::Ints(vec![n])),
                1 => one("y", Owned::Text(format!("text {n}"))),
                _ => Vec::new(),
            })
            .collect();
        assert_eq!(round_trip("a.parquet", &rows), rows);
    }
}

fn value() -> impl Strategy<Value = Owned> {
    prop_oneof![
        vec(vec(any::<u8>(), 0..20), 0..4).prop_map(Owned::Bytes),
        vec(any::<f32>().prop_filter("comparable", |f| !f.is_nan()), 0..6).prop_map(Owned::Floats),
        vec(any::<i64>(), 0..6).prop_map(Owned::Ints),
    ]
}

/// Rows of the same columns and kinds, some cells missing; names are sorted, as an example has them.
fn table() -> impl Strategy<Value = Vec<OwnedRow>> {
    let columns = btree_map("[a-z]{1,3}", (value(), any::<bool>()), 1..4);
    (columns, 1usize..20, any::<u64>()).prop_map(|(columns, count, seed)| {
        let mut rng = salamander_core::seed::Rng::new(seed);
        let cell = |rng: &mut salamander_core::seed::Rng, value: &Owned| match value {
            Owned::Ints(items) => {
                Owned::Ints(items.iter().map(|i| i ^ rng.below(9) as i64).collect())
            }
            other => other.clone(),
        };
        let mut rows = Vec::new();
        for _ in 0..count {
            let present =
                columns.iter().filter(|(_, (_, optional))| !optional || rng.below(2) == 0);
            let present: Vec<_> = present.collect();
            rows.push(
                present.into_iter().map(|(n, (v, _))| (n.clone(), cell(&mut rng, v))).collect(),
            );
        }
        rows
    })
}

proptest! {
    #[test]
    fn what_is_written_as_examples_is_read(rows in table()) {
        let rows: Vec<OwnedRow> = rows.into_iter().filter(|row: &OwnedRow| !row.is_empty()).collect();
        prop_assert_eq!(&round_trip("a.recordio", &rows), &rows);
        prop_assert_eq!(&round_trip("a.tfrecord", &rows), &rows);
    }

    #[test]
    fn text_written_as_csv_is_read(
        cells in vec(("\\PC{0,9}", "[ -~\n\r\t\"]{0,9}"), 1..20), tabs: bool,
    ) {
        let rows: Vec<OwnedRow> = cells
            .into_iter()
            .map(|(a, b)| vec![("a".into(), Owned::Text(a)), ("b".into(), Owned::Text(b))])
            .collect();
        prop_assert_eq!(round_trip(if tabs { "a.tsv" } else { "a.csv" }, &rows), rows);
    }

    #[cfg(feature = "parquet")]
    #[test]
    fn what_is_written_as_parquet_is_read(rows in table()) {
        let first: OwnedRow = rows[0].clone();
        prop_assume!(!first.is_empty());
        let names: Vec<&String> = first.iter().map(|(name, _)| name).collect();
        let rows: Vec<OwnedRow> = rows
            .iter()
            .map(|row| row.iter().filter(|(name, _)| names.contains(&name)).cloned().collect())
            .collect();
        prop_assert_eq!(round_trip("a.parquet", &rows), rows);
    }
}

#[test]
fn an_old_file_stays_until_the_new_one_is_whole() {
    let folder = tempfile::tempdir().unwrap();
    let path: PathBuf = folder.path().join("a.csv");
    std::fs::write(&path, "old").unwrap();
    let mut sink = create(&path, Format::Csv).unwrap();
    sink.write(&borrow(&one("x", Owned::Ints(vec![1])))).unwrap();
    drop(sink);
    assert_eq!(std::fs::read(&path).unwrap(), b"old");
}

fn digit(pixels: &[u8], label: i64) -> Row<'_> {
    let label = Value::Ints(vec![label].into());
    Row::new(vec![("image".into(), Value::Bytes(pixels)), ("label".into(), label)])
}

/// What a file of this name has after rows were written to it, or why they were not.
fn written(name: &str, format: Format, rows: &[Row<'_>]) -> Result<Vec<String>, String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    let strip =
        |error: Error| error.to_string().replace(&format!("{}/", folder.path().display()), "");
    let mut sink = create(&path, format).map_err(strip)?;
    for row in rows {
        sink.write(row).map_err(strip)?;
    }
    sink.finish().map_err(strip)?;
    let mut found = Vec::new();
    let reader = open(&[path], None).map_err(strip)?;
    let count = reader.shards().unwrap()[0].records;
    let each = &mut |_, row: Row<'_>| {
        let label = row.ints("label").map(|label| label.to_vec()).unwrap_or_default();
        found.push(format!("{:?} {label:?}", row.bytes("image")?));
        Ok(())
    };
    reader.read(0, 0..count, each).map_err(strip)?;
    Ok(found)
}

#[test]
fn images_and_labels_become_two_idx_files() {
    let check = |name: &str, rows: &[Row<'_>], expected: Result<&[&str], &str>| {
        let found = written(name, Format::Idx, rows);
        let found = found.as_ref().map(|rows| rows.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(found.as_deref().map_err(|error| error.as_str()), expected);
    };
    let name = "t-images-idx3-ubyte";
    check(
        name,
        &[digit(&[1, 2, 3, 4], 7), digit(&[5; 4], 255)],
        Ok(&["[1, 2, 3, 4] [7]", "[5, 5, 5, 5] [255]"]),
    );
    let plain = Row::new(vec![("image".into(), Value::Bytes(&[9]))]);
    check("a.idx", std::slice::from_ref(&plain), Ok(&["[9] []"]));
    check(name, &[], Ok(&[]));
    check(
        "a.idx",
        &[digit(&[1], 2)],
        Err("a.idx: labels go into a file beside it: name it like train-images-idx3-ubyte"),
    );
    check(
        name,
        &[digit(&[1], 256)],
        Err(
            "t-images-idx3-ubyte: record 0: column \"label\": idx has one whole number from 0 to 255",
        ),
    );
    check(
        name,
        &[digit(&[1], 2), plain],
        Err("t-images-idx3-ubyte: record 1: some records have a label and some have none"),
    );
    check(
        name,
        &[digit(&[1], 2), digit(&[1; 4], 2)],
        Err("t-images-idx3-ubyte: record 1: 2 x 2, but the first image has 1 x 1"),
    );
    check(
        name,
        &[digit(&[1; 5], 2)],
        Err(
            "t-images-idx3-ubyte: record 0: column \"image\": 5 bytes are no 2 x 2 pixels: add height and width",
        ),
    );
}

#[cfg(feature = "images")]
#[test]
fn images_become_png_files_in_folders_of_their_classes() {
    let folder = "pictures";
    // Grey comes back as red, green and blue that are the same; classes are numbered from 0 by name.
    let rows = [digit(&[1, 2, 3, 4], 12), digit(&[7; 4], 3)];
    let found = written(folder, Format::ImageFolder, &rows).unwrap();
    assert_eq!(
        found,
        ["[7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7] [0]", "[1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4] [1]"]
    );
    let one = |value| Value::Ints(vec![value].into());
    let row = |class| {
        let columns = [
            ("image", Value::Bytes(&[1, 2, 3, 4, 5, 6])),
            ("height", one(1)),
            ("width", one(2)),
            ("class", Value::Text(class)),
        ];
        Row::new(columns.map(|(name, value)| (name.into(), value)).into())
    };
    assert_eq!(
        written(folder, Format::ImageFolder, &[row("cat")]).unwrap(),
        ["[1, 2, 3, 4, 5, 6] [0]"]
    );
    let error = written(folder, Format::ImageFolder, &[row("../cat")]).unwrap_err();
    assert_eq!(
        error,
        "pictures: record 0: column \"class\": \"../cat\" cannot be the name of a folder"
    );
    assert!(written(".", Format::ImageFolder, &[]).unwrap_err().contains("there already"));
}
