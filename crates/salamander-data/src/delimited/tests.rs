//! Text files as people have them, whole and broken.

use proptest::prelude::*;

use super::*;
use crate::reader::FileIndex as _;
use crate::{Format, Reader};

fn opened(blob: Blob) -> Result<Delimited, Error> {
    let dialect = Dialect::with_header(blob.path());
    let index = index::build(&dialect, &blob)?;
    Ok(Delimited::new(blob, dialect, index, Arc::default()))
}

/// All rows as "column=value|column=value", or the error; a `.txt` file is one of Criteo's.
fn rows(name: &str, content: &[u8], records: Option<Range<u64>>) -> Result<Vec<String>, String> {
    let (_folder, path) = crate::blob::saved(name, content);
    let strip = |error: Error| error.to_string().replace(&format!("{}", path.display()), name);
    let format = Format::of_name(&path).unwrap_or(Format::Criteo);
    let file = crate::open(std::slice::from_ref(&path), Some(format)).map_err(strip)?;
    let records = records.unwrap_or(0..file.shards().unwrap()[0].records);
    written(&*file, records).map_err(strip)
}

/// Rows of the first shard as "column=value|column=value".
fn written(file: &dyn Reader, records: Range<u64>) -> Result<Vec<String>, Error> {
    let mut rows = Vec::new();
    file.read(0, records, &mut |_, row| {
        let cells = row.columns().map(|(name, _)| format!("{name}={}", row.text(name).unwrap()));
        rows.push(cells.collect::<Vec<_>>().join("|"));
        Ok(())
    })?;
    Ok(rows)
}

#[test]
fn quotes_newlines_and_tabs_are_understood() {
    let check = |name: &str, content: &str, expected: &[&str]| {
        assert_eq!(rows(name, content.as_bytes(), None).unwrap(), expected);
    };
    check("a.csv", "x,y\n1,2\n3,4\n", &["x=1|y=2", "x=3|y=4"]);
    check("a.csv", "x,y\r\n1,2\r\n3,4", &["x=1|y=2", "x=3|y=4"]);
    check("a.csv", "x,y\n\"a\nb\",\"c,\"\"d\"\"\"\n", &["x=a\nb|y=c,\"d\""]);
    check("a.csv", "x,y\n,\n", &["x=|y="]);
    check("a.csv", "\u{feff}x,y\n1,2\n", &["x=1|y=2"]);
    check("a.tsv", "x\ty\n1,5\t2\n", &["x=1,5|y=2"]);
    check("a.csv", "x,y\n", &[]);
    check("a.csv", "", &[]);
}

#[test]
fn bad_files_are_named_with_line_and_record() {
    let check = |content: &[u8], expected: &str| {
        assert_eq!(rows("a.csv", content, None).unwrap_err(), expected);
    };
    check(b"x,y\n1,2\n3\n", "a.csv: record 1: line 3: 1 fields, but the header has 2");
    check(b"x,y\r\n1,2\r\n3\r\n", "a.csv: record 1: line 3: 1 fields, but the header has 2");
    check(b"x,y\n1,2\n\n\n3\n", "a.csv: record 1: line 5: 1 fields, but the header has 2");
    check(b"x,y\n\"1\n1\",2\n3,4,5\n", "a.csv: record 1: line 4: 3 fields, but the header has 2");
    check(
        b"x,y\n1,\xff\n",
        "a.csv: record 0: column \"y\": line 2: invalid utf-8 sequence of 1 bytes from index 0 \
         (write the file as UTF-8: iconv -f LATIN1 -t UTF-8)",
    );
    check(
        b"\xff\xfex\0,\0y\0\n\0",
        "a.csv: header row: column 0: invalid utf-8 sequence of 1 bytes from index 0 \
         (write the file as UTF-8: iconv -f UTF-16 -t UTF-8)",
    );
    check(
        b"x,x\n1,2\n",
        "a.csv: header row: column \"x\" occurs twice (say `header: no` if the file has no header row)",
    );
}

/// Rows of a file that is read as settings say, which are JSON here.
fn told(settings: &str, name: &str, content: &str) -> Result<Vec<String>, String> {
    let (_folder, path) = crate::blob::saved(name, content.as_bytes());
    let csv = serde_json::from_str(settings).unwrap();
    let options = crate::OpenOptions { csv, ..Default::default() };
    let strip = |error: Error| error.to_string().replace(&format!("{}", path.display()), name);
    let file = crate::open_indexed(std::slice::from_ref(&path), None, &options).map_err(strip)?;
    let records = 0..file.shards().unwrap()[0].records;
    written(&*file, records).map_err(strip)
}

#[test]
fn settings_say_header_separator_spaces_and_missing_words() {
    let check = |settings: &str, content: &str, expected: &[&str]| {
        assert_eq!(told(settings, "a.csv", content).unwrap(), expected, "{settings}");
    };
    check(r#"{"separator":";"}"#, "x;y\n1,5;2\n", &["x=1,5|y=2"]);
    check(r#"{"separator":"tab"}"#, "x\ty\n1\t2\n", &["x=1|y=2"]);
    check(r#"{"separator":","}"#, "x;y\n1\n", &["x;y=1"]);
    check(r#"{"separator":" "}"#, "x y\n1 2\n", &["x=1|y=2"]);
    check(r#"{"header":"no"}"#, "1,a\n2,b\n", &["column_1=1|column_2=a", "column_1=2|column_2=b"]);
    check(r#"{"header":["n","t"]}"#, "\u{feff}1,a\n2,b\n", &["n=1|t=a", "n=2|t=b"]);
    check(r#"{"header":"yes"}"#, "2019,2020\n1,2\n", &["2019=1|2020=2"]);
    check("{}", "x,y\n Bern , St. Gallen\n", &["x= Bern |y= St. Gallen"]);
    check(r#"{"trim":true}"#, " x , y\n Bern , St. Gallen\n", &["x=Bern|y=St. Gallen"]);
    check(r#"{"missing":["NA","nan"]}"#, "x,y\nNA,nan\n NA,NAN\n", &["x=|y=", "x=|y=NAN"]);
    check(r#"{"header":"no"}"#, "", &[]);
}

#[test]
fn files_that_are_not_what_they_seem_are_refused_with_the_setting() {
    let check = |settings: &str, name: &str, content: &str, expected: &[&str]| {
        let error = told(settings, name, content).unwrap_err();
        assert!(expected.iter().all(|part| error.contains(part)), "{error}");
    };
    let separator = ["a.csv: line 1 has one column by the separator \",\"", "--separator ';'"];
    check("{}", "a.csv", "x;y;z\n1;2;3\n", &separator);
    check(r#"{"header":"no"}"#, "a.csv", "1;2;3\n", &separator);
    check("{}", "a.csv", "x\ty\n1\t2\n", &["say `separator: \"tab\"`"]);
    check("{}", "a.tsv", "x,y\n1,2\n", &["by the separator \"tab\", with \",\" in it once"]);
    check(
        "{}",
        "a.csv",
        "1,2,3\n4,5,6\n",
        &["looks like a record", "\"1\" is a number", "--header no"],
    );
    check("{}", "a.csv", "5.1,3.5,setosa\n", &["looks like a record", "\"5.1\" is a number"]);
    check(
        r#"{"header":["a","b"]}"#,
        "a.csv",
        "1,2,3\n",
        &["a.csv: record 0: line 1: 3 fields, but the names given are 2"],
    );
    check(
        r#"{"header":"no"}"#,
        "a.csv",
        "1,2\n3\n",
        &["a.csv: record 1: line 2: 1 fields, but the first record has 2"],
    );
    // Years may be names of columns.
    assert!(told("{}", "a.csv", "country,2019,2020\nCH,1,2\n").is_ok());
}

#[test]
fn what_a_reader_of_rows_says_has_the_line() {
    let (_folder, path) = crate::blob::saved("a.csv", b"x\n1\n\n2\n");
    let file = crate::open(&[path], None).unwrap();
    let error = file.read(0, 1..2, &mut |_, row| row.ints("x").map(|_| ())).unwrap_err();
    let error = error.to_string();
    assert!(
        error.ends_with("record 1: column \"x\": line 4: text where integers are needed"),
        "{error}"
    );
}

/// The same file in the same folder of indexes, read in another way.
#[test]
fn other_settings_have_another_index() {
    let (folder, path) = crate::blob::saved("a.csv", b"x,y\n1,2\n");
    let records = |settings: &str| {
        let csv = serde_json::from_str(settings).unwrap();
        let cache_folder = Some(folder.path().join("run"));
        let options = crate::OpenOptions { cache_folder, csv, ..Default::default() };
        let file = crate::open_indexed(std::slice::from_ref(&path), None, &options).unwrap();
        file.shards().unwrap()[0].records
    };
    for _ in 0..2 {
        assert_eq!((records("{}"), records(r#"{"header":"no"}"#)), (1, 2));
    }
}

#[test]
fn gzipped_files_are_read_and_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.tsv.gz");
    let mut sink = crate::sink::create(&path, Format::Csv).unwrap();
    for record in 0..3000 {
        let cell = record.to_string();
        sink.write(&Row::new(vec![
            ("x".into(), Value::Text(&cell)),
            ("y".into(), Value::Text("a,b")),
        ]))
        .unwrap();
    }
    sink.finish().unwrap();
    let packed = std::fs::read(&path).unwrap();
    assert!(packed.starts_with(&[0x1f, 0x8b]) && packed.len() < 15_000);
    let found = rows("a.tsv.gz", &[&packed[..], &packed[..]].concat(), Some(2999..3001)).unwrap();
    // The header of the second member is a record like any other.
    assert_eq!(found, ["x=2999|y=a,b", "x=x|y=y"]);
}

/// The first lines of the public files.
#[test]
fn public_files_have_the_columns_of_their_format() {
    let adult = "39, State-gov, 77516, Bachelors, 13, Never-married, Adm-clerical, Not-in-family, White, \
                 Male, 2174, 0, 40, United-States, <=50K\n\
                 52, ?, 209642, HS-grad, 9, Married-civ-spouse, ?, Husband, White, Male, 0, 0, 45, ?, \
                 >50K\n\n";
    let found = rows("adult.data", adult.as_bytes(), None).unwrap();
    assert_eq!(found.len(), 2);
    assert!(found[0].starts_with("age=39|workclass=State-gov|fnlwgt=77516|"), "{}", found[0]);
    assert!(found[0].ends_with("|native_country=United-States|label=0"), "{}", found[0]);
    assert!(found[1].contains("workclass=|") && found[1].contains("|occupation=|"));
    assert!(found[1].ends_with("|native_country=|label=1"), "{}", found[1]);
    let test = format!("|1x3 Cross validator\n{}", adult.replace("50K", "50K."));
    assert_eq!(rows("adult.test", test.as_bytes(), None).unwrap(), found);

    let criteo = format!("0\t1\t-1{}68fd1e64{}\n", "\t".repeat(12), "\t".repeat(25));
    let found = rows("train.txt", criteo.as_bytes(), None).unwrap();
    assert!(found[0].starts_with("label=0|I1=1|I2=-1|I3=|"), "{}", found[0]);
    assert!(found[0].contains("|I13=|C1=68fd1e64|C2=|"), "{}", found[0]);
    let unlabelled = rows("test.txt", &criteo.as_bytes()[2..], None).unwrap();
    assert_eq!(format!("label=0|{}", unlabelled[0]), found[0]);

    let movielens = "1::1193::5::978300760\n1::661::3::978302109\n";
    let found = rows("ratings.dat", movielens.as_bytes(), None).unwrap();
    assert_eq!(found[1], "userId=1|movieId=661|rating=3|timestamp=978302109");
    let csv = "userId,movieId,rating,timestamp\n1,1193,5,978300760\n1,661,3,978302109\n";
    assert_eq!(rows("ratings.csv", csv.as_bytes(), None).unwrap(), found);
}

#[test]
fn faults_of_public_files_are_named_with_their_line() {
    let check = |name: &str, content: &str, expected: &str| {
        assert_eq!(rows(name, content.as_bytes(), None).unwrap_err(), expected);
    };
    check(
        "ratings.dat",
        "1::2::3::4\n1::2::3\n",
        "ratings.dat: record 1: line 2: 3 fields, but the format has 4",
    );
    for odd in ["1:x:2:y:3:z:4", "1::2::3::4:"] {
        let reason = "ratings.dat: record 0: line 1: write two colons between two fields";
        check("ratings.dat", odd, reason);
    }
    check(
        "adult.test",
        "|1x3 Cross validator\r\n\r\n39, Private\r\n",
        "adult.test: record 0: line 3: 2 fields, but the format has 15",
    );
    check("train.txt", "0\t1\n", "train.txt: record 0: line 1: 2 fields, but the format has 40");
}

#[test]
fn ranges_start_anywhere() {
    for end_of_line in ["\n", "\r\n"] {
        let mut content = format!("x,y{end_of_line}");
        for record in 0..5000 {
            content += &format!("{record},\"a{end_of_line},\"{end_of_line}");
        }
        let all = rows("a.csv", content.as_bytes(), None).unwrap();
        assert_eq!(all.len(), 5000);
        let check = |records: Range<u64>| {
            let found = rows("a.csv", content.as_bytes(), Some(records.clone())).unwrap();
            assert_eq!(found, all[records.start as usize..records.end as usize]);
        };
        check(0..1);
        check(1023..1025);
        check(1024..1024);
        check(1025..3000);
        check(4096..5000);
        check(4999..5000);
    }
}

#[test]
fn lines_are_right_after_a_jump() {
    let mut content = "x,y\r\n".to_owned();
    content += &"1,2\r\n".repeat(3000);
    content += "3\r\n";
    let found = rows("a.csv", content.as_bytes(), Some(2900..3001)).unwrap_err();
    assert_eq!(found, "a.csv: record 3000: line 3002: 1 fields, but the header has 2");
}

fn saved(content: &str) -> (tempfile::TempDir, Blob) {
    let (folder, path) = crate::blob::saved("a.csv", content.as_bytes());
    (folder, Blob::open(&path).unwrap())
}

#[test]
fn shuffled_reading_parses_each_block_once() {
    let content = format!("x\n{}", "1\n".repeat(5000));
    let (_folder, blob) = saved(&content);
    let file = opened(blob).unwrap();
    let before = crate::blob::opened(file.blob.path());
    for record in (0..5000).map(|n| n * 1777 % 5000) {
        file.read(0, record..record + 1, &mut |_, _| Ok(())).unwrap();
    }
    assert_eq!(crate::blob::opened(file.blob.path()) - before, 5);
}

#[test]
fn large_records_make_small_blocks() {
    let (_folder, blob) = saved(&format!("x\n{}", ("y".repeat(1 << 18) + "\n").repeat(10)));
    let file = opened(blob).unwrap();
    assert_eq!(file.index.marks.iter().map(|mark| mark.record).collect::<Vec<_>>(), [0, 4, 8]);
    let mut seen = 0;
    file.read(0, 3..10, &mut |_, row| {
        seen += row.text("x")?.len();
        Ok(())
    })
    .unwrap();
    assert_eq!(seen, 7 << 18);
}

#[test]
fn a_saved_index_is_restored_for_the_same_file_only() {
    let content = format!("x,\u{e9}\n{}", "1,2\n".repeat(3000));
    let (_folder, blob) = saved(&content);
    let index = index::build(&Dialect::with_header(blob.path()), &blob).unwrap();
    let (saved, size) = (index.save(), blob.size());
    assert_eq!(TextIndex::restore(&saved, size), Some(index));
    assert_eq!(TextIndex::restore(&saved, size / 2), None);
    for length in 0..saved.len() {
        assert_eq!(TextIndex::restore(&saved[..length], size), None, "{length}");
    }
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(
        name in prop::sample::select(vec!["a.csv", "a.tsv", "adult.test", "ratings.dat", "train.txt"]),
        bytes in "[a-c0-9|:,?\\\"\\t\\r\\n .]{0,300}",
    ) {
        let _ = rows(name, bytes.as_bytes(), None);
    }

    /// What is written in a format without quotes is read again, or was refused.
    #[test]
    fn cells_survive_formats_without_quotes(cells in prop::collection::vec("[a-z0-9 .:,?|]{1,8}", 4)) {
        let dialect = crate::dialect::of_movielens();
        let names = dialect.fixed_columns().unwrap();
        let written: Option<Vec<&str>> =
            names.iter().zip(&cells).map(|(name, cell)| dialect.write(name, cell)).collect();
        let refused = cells.iter().any(|cell| cell.contains(':'));
        prop_assert_eq!(written.is_none(), refused);
        if let Some(written) = written {
            let found = rows("ratings.dat", written.join(dialect.between).as_bytes(), None).unwrap();
            let expected: Vec<String> =
                names.iter().zip(&cells).map(|(name, cell)| format!("{name}={cell}")).collect();
            prop_assert_eq!(&found[0], &expected.join("|"));
        }
    }
}
