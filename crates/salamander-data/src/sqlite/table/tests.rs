//! Tests of SQLite tables, apart because the reader itself fills its file.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::Reader;

fn database(statements: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("f.db");
    Connection::open(&path).unwrap().execute_batch(statements).unwrap();
    (folder, path)
}

fn with(path: &Path, settings: &str) -> PathBuf {
    PathBuf::from(format!("{}?{settings}", path.display()))
}

fn rows(table: &SqliteTable, records: Range<u64>) -> Result<Vec<String>, Error> {
    let mut found = Vec::new();
    table.read(0, records.clone(), &mut |record, row| {
        assert_eq!(record, records.start + found.len() as u64);
        found.push(format!("{:?}", row.columns().collect::<Vec<_>>()));
        Ok(())
    })?;
    Ok(found)
}

/// Five thousand records whose keys have gaps.
const MANY: &str = "CREATE TABLE t (id INTEGER PRIMARY KEY, name TEXT UNIQUE);
    WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 4999)
    INSERT INTO t SELECT i * 3, printf('%05d', 9999 - i) FROM n;";

#[test]
fn types_become_values_and_nulls_are_left_out() {
    let (_folder, path) = database(
        "CREATE TABLE t (a, b REAL, c TEXT, d BLOB);
         INSERT INTO t VALUES (1, 0.5, 'x', x'ff'), (NULL, NULL, NULL, NULL), ('text', 2, '', x'');",
    );
    let table = SqliteTable::open(&path).unwrap();
    let expected = [
        r#"[("a", Ints([1])), ("b", Floats([0.5])), ("c", Text("x")), ("d", Bytes([255]))]"#,
        "[]",
        r#"[("a", Text("text")), ("b", Floats([2.0])), ("c", Text("")), ("d", Bytes([]))]"#,
    ];
    assert_eq!(rows(&table, 0..3).unwrap(), expected);
}

#[test]
fn ranges_start_anywhere_by_any_key() {
    let (_folder, path) = database(MANY);
    for (settings, row) in [
        ("table=t", (|n| (n * 3, 9999 - n)) as fn(u64) -> (u64, u64)),
        ("table=t&key=name", |n| ((4999 - n) * 3, 5000 + n)),
    ] {
        let table = SqliteTable::open(&with(&path, settings)).unwrap();
        assert_eq!(table.records, 5000);
        for range in [0..1, 1023..1026, 1024..1024, 2048..5000, 4999..5000, 5000..5000] {
            let expected: Vec<String> = range
                .clone()
                .map(row)
                .map(|(id, name)| {
                    format!("[(\"id\", Ints([{id}])), (\"name\", Text(\"{name:05}\"))]")
                })
                .collect();
            assert_eq!(rows(&table, range).unwrap(), expected);
        }
        assert!(matches!(rows(&table, 4999..5001), Err(Error::Range { record: 5000, .. })));
    }
}

#[test]
fn what_cannot_be_opened_is_named() {
    let (_folder, path) = database(
        "CREATE TABLE a (x); CREATE TABLE b (x, \"odd\"\"name\");
         INSERT INTO b VALUES (1, 2), (1, 3), (NULL, 4);
         CREATE TABLE c (x PRIMARY KEY) WITHOUT ROWID;",
    );
    let check = |settings: &str, ending: &str| {
        let path = if settings.is_empty() { path.clone() } else { with(&path, settings) };
        let message = SqliteTable::open(&path).unwrap_err().to_string();
        assert!(message.ends_with(ending), "{message}");
    };
    check("", "which table? give one with ?table=NAME (there are: a, b, c)");
    check("table=d", "no table \"d\" (there are: a, b, c)");
    check("table=b&key=y", "no column \"y\" (the table has: x, odd\"name)");
    check("table=b&key=x", "key \"x\" has 1 different values for 3 records");
    check(
        "table=c",
        "sqlite: no such column: rowid in SELECT rowid FROM \"c\" ORDER BY rowid at offset 7",
    );
    check("tabel=b", "\"tabel=b\" is neither table=NAME nor key=COLUMN");
    assert_eq!(SqliteTable::open(&with(&path, "table=c&key=x")).unwrap().records, 0);
    assert_eq!(SqliteTable::open(&with(&path, "table=b&key=odd\"name")).unwrap().records, 3);
}

#[test]
fn a_commit_after_indexing_is_noticed() {
    for mode in ["delete", "wal"] {
        let (_folder, path) = database(&format!("PRAGMA journal_mode = {mode}; {MANY}"));
        let writer = Connection::open(&path).unwrap();
        let table = SqliteTable::open(&path).unwrap();
        assert_eq!(rows(&table, 0..9).unwrap().len(), 9);
        writer.execute_batch("UPDATE t SET name = 'x' WHERE id = 3").unwrap();
        assert!(matches!(rows(&table, 0..9), Err(Error::Changed { .. })), "{mode}");
    }
}

const SMALL: &str = "PRAGMA page_size = 512; CREATE TABLE t (a, b);
    INSERT INTO t VALUES (1, 'one'), (2, 'two'), (3, x'00ff');";

#[test]
fn no_truncation_and_no_flipped_bit_is_a_panic() {
    let (folder, path) = database(SMALL);
    let bytes = std::fs::read(&path).unwrap();
    let damaged = folder.path().join("damaged.db");
    let read = |bytes: &[u8]| -> Result<usize, Error> {
        std::fs::write(&damaged, bytes).unwrap();
        let table = SqliteTable::open(&damaged)?;
        // SQLite has no checksums: a changed cell is read as it is.
        Ok(rows(&table, 0..table.records)?.len())
    };
    assert_eq!(read(&bytes).unwrap(), 3);
    for length in 0..bytes.len() {
        assert!(read(&bytes[..length]).is_err(), "cut at {length}");
    }
    for bit in 0..8 * bytes.len() {
        let mut bytes = bytes.clone();
        bytes[bit / 8] ^= 1u8 << (bit % 8);
        let _ = read(&bytes);
    }
}

#[test]
fn a_record_that_cannot_be_read_leaves_the_others() {
    // Each text takes a page of its own beside the table's page.
    let (_folder, path) = database(
        "PRAGMA page_size = 512; CREATE TABLE t (a);
         INSERT INTO t VALUES (printf('%.*c', 600, 'x')), (printf('%.*c', 600, 'y')), ('z');",
    );
    let mut bytes = std::fs::read(&path).unwrap();
    // The first record is at the end of the table's page, and ends with the number of its next page.
    let next = &mut bytes[1020..1024];
    assert_eq!(next, [0, 0, 0, 3]);
    next.copy_from_slice(&[0, 0, 9, 9]);
    std::fs::write(&path, bytes).unwrap();
    let table = SqliteTable::open(&path).unwrap();
    assert_eq!(table.records, 3);
    assert_eq!(rows(&table, 1..3).unwrap().len(), 2);
    let error = rows(&table, 0..3).unwrap_err();
    assert!(error.is_bad_data(), "{error}");
    assert!(
        error.to_string().ends_with("f.db: record 0: sqlite: database disk image is malformed"),
        "{error}"
    );
}

#[test]
fn a_table_that_cannot_be_counted_is_refused_as_a_whole() {
    let (_folder, path) = database(MANY);
    let mut bytes = std::fs::read(&path).unwrap();
    // The kind of a page in the middle of the table.
    bytes[4096 * 5] = 77;
    std::fs::write(&path, bytes).unwrap();
    let error = SqliteTable::open(&path).unwrap_err();
    assert!(!error.is_bad_data() && error.to_string().contains("none is read"), "{error}");
}

proptest! {
    #[test]
    fn what_is_written_is_read(
        cells in vec((any::<i64>(), any::<f32>(), "\\PC{0,9}", vec(any::<u8>(), 0..9)), 0..30),
    ) {
        let (_folder, path) = database("CREATE TABLE t (i, f, t, b)");
        let mut writer = Connection::open(&path).unwrap();
        let insert = writer.transaction().unwrap();
        for (i, f, t, b) in &cells {
            insert.execute("INSERT INTO t VALUES (?1, ?2, ?3, ?4)", (i, f64::from(*f), t, b)).unwrap();
        }
        insert.commit().unwrap();
        let table = SqliteTable::open(&path).unwrap();
        let mut seen = 0;
        table.read(0, 0..cells.len() as u64, &mut |record, row| {
            let (i, f, t, b) = &cells[record as usize];
            assert_eq!(row.ints("i")?, [*i]);
            // SQLite stores what is no number as null.
            assert!(f.is_nan() || row.floats("f")? == [*f]);
            assert_eq!((row.text("t")?, row.bytes("b")?), (t.as_str(), b.as_slice()));
            seen += 1;
            Ok(())
        }).unwrap();
        prop_assert_eq!(seen, cells.len());
    }
}
