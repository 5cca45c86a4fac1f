//! Files exchanged with Python: what pyarrow and the tfrecord package write is read, and what is written here
//! they read. Needs a Python with pyarrow, tfrecord, numpy and crc32c, named by SALAMANDER_PYTHON.

use std::path::Path;
use std::process::Command;

use salamander_data::{Format, Row, Value, open, sink};

use crate::support;

/// Runs a script with the path as its argument; none when there is no Python to run it.
fn python(test: &str, script: &str, path: &Path) -> Option<String> {
    let program = support::python(test, "pyarrow, tfrecord, numpy, crc32c")?;
    let output = Command::new(program).arg("-c").arg(script).arg(path).output().expect("python");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "python: {errors}");
    Some(String::from_utf8(output.stdout).expect("text"))
}

fn rows(path: &Path) -> Vec<String> {
    rows_in(path, |_| {})
}

/// With their columns in an order of the caller's.
fn rows_in(path: &Path, order: fn(&mut [(&str, &Value<'_>)])) -> Vec<String> {
    let reader = open(&[path.to_owned()], None).expect("it works");
    let records = reader.shards().expect("it works")[0].records;
    let mut rows = Vec::new();
    let each = &mut |_, row: Row<'_>| {
        let mut columns: Vec<_> = row.columns().collect();
        order(&mut columns);
        rows.push(format!("{columns:?}"));
        Ok(())
    };
    reader.read(0, 0..records, each).expect("it works");
    rows
}

fn write(path: &Path, format: Format) {
    let mut sink = sink::create(path, format).expect("it works");
    for n in 0..3000i64 {
        let mut columns = vec![
            ("f".into(), Value::Floats(vec![n as f32 / 8.0].into())),
            ("i".into(), Value::Ints(vec![n * n - 5].into())),
            ("l".into(), Value::Ints((0..n % 4).collect::<Vec<_>>().into())),
            ("b".into(), Value::Bytes(&[0, 255])),
        ];
        if n % 7 != 0 {
            columns.push(("t".into(), Value::Text("h\u{e9}")));
        }
        sink.write(&Row::new(columns)).expect("it works");
    }
    sink.finish().expect("it works");
}

const PYARROW_WRITES: &str = r#"
import sys, decimal, datetime
import pyarrow as pa, pyarrow.parquet as pq
n = 2500
table = pa.table({
    "i8": pa.array([i % 100 if i % 7 else None for i in range(n)], pa.int8()),
    "u32": pa.array([i * 1000 for i in range(n)], pa.uint32()),
    "i64": pa.array([i * i for i in range(n)], pa.int64()),
    "flag": pa.array([i % 2 == 0 for i in range(n)], pa.bool_()),
    "f32": pa.array([i / 8 for i in range(n)], pa.float32()),
    "f64": pa.array([i / 8 if i % 5 else None for i in range(n)], pa.float64()),
    "dec": pa.array([decimal.Decimal(i) / 4 for i in range(n)], pa.decimal128(12, 2)),
    "day": pa.array([datetime.date(1970, 1, 1) + datetime.timedelta(i) for i in range(n)]),
    "at": pa.array([i * 1000 for i in range(n)], pa.timestamp("us")),
    "text": pa.array([f"t{i % 9}" for i in range(n)]),
    "word": pa.array([f"w{i % 3}" for i in range(n)]).dictionary_encode(),
    "large": pa.array([f"l{i}" for i in range(n)], pa.large_string()),
    "raw": pa.array([bytes([i % 256, 255]) for i in range(n)]),
    "list": pa.array([list(range(i % 4)) if i % 6 else None for i in range(n)], pa.list_(pa.int32())),
    "vec": pa.array([[i, i + 0.5] for i in range(n)], pa.list_(pa.float32(), 2)),
})
WAYS
"#;

fn expected(i: i64) -> String {
    let mut columns = Vec::new();
    if i % 7 != 0 {
        columns.push(format!("(\"i8\", Ints([{}]))", i % 100));
    }
    columns.push(format!("(\"u32\", Ints([{}]))", i * 1000));
    columns.push(format!("(\"i64\", Ints([{}]))", i * i));
    columns.push(format!("(\"flag\", Ints([{}]))", i64::from(i % 2 == 0)));
    let eighth = i as f32 / 8.0;
    columns.push(format!("(\"f32\", Floats([{eighth:?}]))"));
    if i % 5 != 0 {
        columns.push(format!("(\"f64\", Floats([{eighth:?}]))"));
    }
    columns.push(format!("(\"dec\", Floats([{:?}]))", i as f32 / 4.0));
    columns.push(format!("(\"day\", Ints([{i}]))"));
    columns.push(format!("(\"at\", Ints([{}]))", i * 1000));
    columns.push(format!("(\"text\", Text(\"t{}\"))", i % 9));
    columns.push(format!("(\"word\", Text(\"w{}\"))", i % 3));
    columns.push(format!("(\"large\", Text(\"l{i}\"))"));
    columns.push(format!("(\"raw\", Bytes([{}, 255]))", i % 256));
    if i % 6 != 0 {
        columns.push(format!("(\"list\", Ints({:?}))", (0..i % 4).collect::<Vec<_>>()));
    }
    columns.push(format!("(\"vec\", Floats([{:?}, {:?}]))", i as f32, i as f32 + 0.5));
    format!("[{}]", columns.join(", "))
}

#[test]
fn parquet_from_pyarrow_is_read() {
    let mut ways = Vec::new();
    for compression in ["none", "snappy", "gzip", "brotli", "zstd", "lz4"] {
        ways.push(format!("compression={compression:?}, row_group_size=700"));
    }
    for version in ["1.0", "2.0"] {
        ways.push(format!(
            "data_page_version={version:?}, use_dictionary=False, data_page_size=2000, \
             write_page_index=True, write_page_checksum=True, column_encoding={{\
             'i64': 'DELTA_BINARY_PACKED', 'text': 'DELTA_BYTE_ARRAY', \
             'large': 'DELTA_LENGTH_BYTE_ARRAY', 'f32': 'BYTE_STREAM_SPLIT'}}"
        ));
    }
    ways.push("use_dictionary=True, store_schema=False, version='1.0'".to_owned());
    for way in ways {
        let folder = tempfile::tempdir().expect("it works");
        let path = folder.path().join("a.parquet");
        let call = format!("pq.write_table(table, sys.argv[1], {way})");
        let script = PYARROW_WRITES.replace("WAYS", &call);
        if python("parquet_from_pyarrow_is_read", &script, &path).is_none() {
            return;
        }
        // Version 1.0 has no unsigned 32 bits and stores them as 64, which reads the same.
        let found = rows(&path);
        assert_eq!(found.len(), 2500, "{way}");
        for (i, row) in found.iter().enumerate() {
            assert_eq!(*row, expected(i as i64), "{way}");
        }
    }
}

#[test]
fn parquet_is_read_by_pyarrow() {
    let folder = tempfile::tempdir().expect("it works");
    let path = folder.path().join("a.parquet");
    write(&path, Format::Parquet);
    let script = r#"
import sys
import pyarrow.parquet as pq
rows = pq.read_table(sys.argv[1]).to_pylist()
assert len(rows) == 3000
for n, row in enumerate(rows):
    text = "hé" if n % 7 else None
    assert row == {"f": n / 8, "i": n * n - 5, "l": list(range(n % 4)), "b": b"\0\xff", "t": text}, row
print("fine")
"#;
    if let Some(answer) = python("parquet_is_read_by_pyarrow", script, &path) {
        assert_eq!(answer, "fine\n");
    }
}

#[test]
fn tfrecord_from_python_is_read() {
    let folder = tempfile::tempdir().expect("it works");
    let path = folder.path().join("a.tfrecord");
    let script = r#"
import sys
from tfrecord.writer import TFRecordWriter
writer = TFRecordWriter(sys.argv[1])
for n in range(1000):
    writer.write({
        "image": (bytes([n % 256]) * (n % 50), "byte"),
        "label": (n - 500, "int"),
        "many": ([n, n + 1], "int"),
        "weight": ([n / 4, 0.5], "float"),
    })
writer.close()
"#;
    if python("tfrecord_from_python_is_read", script, &path).is_none() {
        return;
    }
    // Protocol buffers keep maps in any order.
    let rows = rows_in(&path, |columns| columns.sort_by_key(|(name, _)| name.to_string()));
    for (n, row) in rows.iter().enumerate() {
        let image = vec![n as u8; n % 50];
        let (label, weight) = (n as i64 - 500, n as f32 / 4.0);
        let expected = format!(
            "[(\"image\", Bytes({image:?})), (\"label\", Ints([{label}])), (\"many\", Ints([{n}, \
             {}])), (\"weight\", Floats([{weight:?}, 0.5]))]",
            n + 1
        );
        assert_eq!(*row, expected);
    }
    assert_eq!(rows.len(), 1000);
}

#[test]
fn tfrecord_is_read_by_python() {
    let folder = tempfile::tempdir().expect("it works");
    let path = folder.path().join("a.tfrecord");
    write(&path, Format::TfRecord);
    let script = r#"
import struct, sys
from tfrecord import example_pb2
from tfrecord.reader import tfrecord_loader
from tfrecord.writer import TFRecordWriter
kinds = {"f": "float", "i": "int", "b": "byte"}
count = 0
for n, row in enumerate(tfrecord_loader(sys.argv[1], None, kinds)):
    assert row["f"][0] == n / 8 and row["i"][0] == n * n - 5 and bytes(row["b"]) == b"\0\xff", row
    count += 1
assert count == 3000
# The package's reader passes over the checksums and over features that not all records have.
data = open(sys.argv[1], "rb").read()
at = n = 0
while at < len(data):
    head = data[at:at + 8]
    length, = struct.unpack("<Q", head)
    record = data[at + 12:at + 12 + length]
    assert data[at + 8:at + 12] == TFRecordWriter.masked_crc(head)
    assert data[at + 12 + length:at + 16 + length] == TFRecordWriter.masked_crc(record)
    example = example_pb2.Example()
    example.ParseFromString(record)
    feature = example.features.feature
    assert list(feature["l"].int64_list.value) == list(range(n % 4))
    assert ("t" in feature) == (n % 7 != 0)
    assert n % 7 == 0 or feature["t"].bytes_list.value[0] == "hé".encode()
    at += 16 + length
    n += 1
assert n == 3000
print("fine")
"#;
    if let Some(answer) = python("tfrecord_is_read_by_python", script, &path) {
        assert_eq!(answer, "fine\n");
    }
}
