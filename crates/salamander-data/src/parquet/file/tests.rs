//! Tests of Parquet files written in many ways, whole and damaged.

use std::path::PathBuf;
use std::sync::Arc as Shared;

use arrow_array::builder::{Int64Builder, ListBuilder, StringBuilder};
use arrow_array::*;
use arrow_schema::{DataType, Field, Schema};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, Encoding};
use parquet::file::properties::{WriterProperties, WriterPropertiesBuilder, WriterVersion};
use parquet::file::reader::{FileReader, SerializedFileReader};
use proptest::prelude::*;

use super::{Error, ParquetFile};
use crate::Reader;

fn written(batch: &RecordBatch, properties: WriterPropertiesBuilder) -> Vec<u8> {
    let mut writer =
        ArrowWriter::try_new(Vec::new(), batch.schema(), Some(properties.build())).unwrap();
    writer.write(batch).unwrap();
    writer.into_inner().unwrap()
}

fn saved(bytes: &[u8]) -> (tempfile::TempDir, PathBuf) {
    crate::blob::saved("f.parquet", bytes)
}

fn rows(file: &ParquetFile, records: std::ops::Range<u64>) -> Result<Vec<String>, Error> {
    let mut found = Vec::new();
    file.read(0, records.clone(), &mut |record, row| {
        assert_eq!(record, records.start + found.len() as u64);
        found.push(format!("{:?}", row.columns().collect::<Vec<_>>()));
        Ok(())
    })?;
    Ok(found)
}

fn read_all(bytes: &[u8]) -> Result<Vec<String>, Error> {
    let (_folder, path) = saved(bytes);
    let file = ParquetFile::open(&path)?;
    // A damaged file can say that it has more records than there are atoms.
    rows(&file, 0..file.layout.records().min(10_000))
}

/// Numbers, text with few values, and lists, all with nulls.
fn table(count: i64) -> RecordBatch {
    let ints: Int64Array = (0..count).map(|n| (n % 7 != 0).then_some(n * n)).collect();
    let floats: Float64Array = (0..count).map(|n| (n % 5 != 0).then_some(n as f64 / 4.0)).collect();
    let texts: StringArray =
        (0..count).map(|n| (n % 3 != 0).then(|| format!("t{}", n % 11))).collect();
    let mut lists = ListBuilder::new(Int64Builder::new());
    for n in 0..count {
        for item in 0..n % 4 {
            lists.values().append_value(item + n);
        }
        lists.append(n % 6 != 0);
    }
    RecordBatch::try_from_iter([
        ("i", Shared::new(ints) as ArrayRef),
        ("f", Shared::new(floats)),
        ("t", Shared::new(texts)),
        ("l", Shared::new(lists.finish())),
    ])
    .unwrap()
}

/// What record `n` of the table is read as.
fn expected(n: i64) -> String {
    let mut columns = Vec::new();
    if n % 7 != 0 {
        columns.push(format!("(\"i\", Ints([{}]))", n * n));
    }
    if n % 5 != 0 {
        columns.push(format!("(\"f\", Floats([{:?}]))", (n as f64 / 4.0) as f32));
    }
    if n % 3 != 0 {
        columns.push(format!("(\"t\", Text(\"t{}\"))", n % 11));
    }
    if n % 6 != 0 {
        let items: Vec<i64> = (0..n % 4).map(|item| item + n).collect();
        columns.push(format!("(\"l\", Ints({items:?}))"));
    }
    format!("[{}]", columns.join(", "))
}

fn ways() -> Vec<(String, WriterPropertiesBuilder)> {
    let mut ways = Vec::new();
    for compression in [
        Compression::UNCOMPRESSED,
        Compression::SNAPPY,
        Compression::GZIP(Default::default()),
        #[cfg(feature = "brotli")]
        Compression::BROTLI(Default::default()),
        Compression::ZSTD(Default::default()),
        Compression::LZ4,
        Compression::LZ4_RAW,
    ] {
        let properties = WriterProperties::builder().set_compression(compression);
        ways.push((format!("{compression}"), properties));
    }
    for version in [WriterVersion::PARQUET_1_0, WriterVersion::PARQUET_2_0] {
        for encoding in [Encoding::PLAIN, Encoding::DELTA_BINARY_PACKED] {
            let properties = WriterProperties::builder()
                .set_writer_version(version)
                .set_dictionary_enabled(false)
                .set_column_encoding("i".into(), encoding)
                .set_column_encoding("t".into(), Encoding::DELTA_BYTE_ARRAY)
                .set_column_encoding("f".into(), Encoding::BYTE_STREAM_SPLIT)
                .set_data_page_row_count_limit(100)
                .set_write_batch_size(64);
            ways.push((format!("{version:?} {encoding}"), properties));
        }
    }
    let no_index = WriterProperties::builder()
        .set_offset_index_disabled(true)
        .set_data_page_row_count_limit(50)
        .set_write_batch_size(50);
    ways.push(("no page index".to_owned(), no_index));
    ways
}

#[test]
fn every_way_of_writing_is_read_from_any_place() {
    let table = table(3000);
    for (name, properties) in ways() {
        let properties = properties.set_max_row_group_row_count(Some(700));
        let (_folder, path) = saved(&written(&table, properties));
        let file = ParquetFile::open(&path).unwrap();
        assert_eq!((file.layout.records(), file.layout.groups()), (3000, 5), "{name}");
        for range in [2999..3000, 690..710, 0..1, 1400..1400, 1399..2801, 0..3000] {
            let expected: Vec<String> = range.clone().map(expected).collect();
            let range = range.start as u64..range.end as u64;
            assert_eq!(rows(&file, range.clone()).unwrap(), expected, "{name}, {range:?}");
        }
        assert!(matches!(rows(&file, 2999..3001), Err(Error::Range { record: 3000, .. })));
    }
}

#[test]
fn large_rows_are_read_block_by_block() {
    let items: Vec<Vec<u8>> = (0..40u8).map(|n| vec![n; 600_000]).collect();
    let array = BinaryArray::from_iter_values(&items);
    let batch = RecordBatch::try_from_iter([("b", Shared::new(array) as ArrayRef)]).unwrap();
    let properties = WriterProperties::builder().set_dictionary_enabled(false);
    let (_folder, path) = saved(&written(&batch, properties));
    let file = ParquetFile::open(&path).unwrap();
    assert!(file.layout.block_of(39).unwrap().number >= 5);
    for range in [0..40, 39..40, 7..30] {
        let mut seen = range.start;
        file.read(0, range.clone(), &mut |record, row| {
            assert_eq!(row.bytes("b")?, items[record as usize]);
            seen += 1;
            Ok(())
        })
        .unwrap();
        assert_eq!(seen, range.end);
    }
}

#[test]
fn batches_have_all_rows() {
    let table = table(1000);
    let properties = WriterProperties::builder().set_max_row_group_row_count(Some(300));
    let (_folder, path) = saved(&written(&table, properties));
    let file = ParquetFile::open(&path).unwrap();
    let batches: Vec<RecordBatch> =
        file.batches(256).unwrap().collect::<Result<_, Error>>().unwrap();
    assert_eq!(batches.iter().map(RecordBatch::num_rows).sum::<usize>(), 1000);
    assert!(batches.iter().all(|batch| batch.num_columns() == 4));
}

#[test]
fn types_become_values() {
    let check = |array: ArrayRef, expected: &str| {
        let kind = array.data_type().clone();
        let batch = RecordBatch::try_from_iter_with_nullable([("x", array, true)]).unwrap();
        let found = read_all(&written(&batch, WriterProperties::builder())).unwrap();
        assert_eq!(found, [format!("[(\"x\", {expected})]"), "[]".to_owned()], "{kind}");
    };
    check(Shared::new(BooleanArray::from(vec![Some(true), None])), "Ints([1])");
    check(Shared::new(Int8Array::from(vec![Some(-8), None])), "Ints([-8])");
    check(Shared::new(UInt16Array::from(vec![Some(65_535), None])), "Ints([65535])");
    check(Shared::new(UInt32Array::from(vec![Some(u32::MAX), None])), "Ints([4294967295])");
    check(Shared::new(UInt64Array::from(vec![Some(5), None])), "Ints([5])");
    check(Shared::new(Date32Array::from(vec![Some(19_000), None])), "Ints([19000])");
    check(Shared::new(TimestampMicrosecondArray::from(vec![Some(-9), None])), "Ints([-9])");
    check(Shared::new(Time64NanosecondArray::from(vec![Some(77), None])), "Ints([77])");
    check(Shared::new(Float32Array::from(vec![Some(0.1), None])), "Floats([0.1])");
    let decimal = Decimal128Array::from(vec![Some(-12_345), None]);
    check(Shared::new(decimal.with_precision_and_scale(9, 2).unwrap()), "Floats([-123.45])");
    let decimal = Decimal128Array::from(vec![Some(12_345), None]);
    check(Shared::new(decimal.with_precision_and_scale(38, 4).unwrap()), "Floats([1.2345])");
    check(Shared::new(LargeStringArray::from(vec![Some("é"), None])), "Text(\"é\")");
    check(Shared::new(StringViewArray::from(vec![Some("view"), None])), "Text(\"view\")");
    check(Shared::new(BinaryArray::from(vec![Some(&[255u8][..]), None])), "Bytes([255])");
    let fixed = vec![Some([1u8, 2]), None];
    let fixed = FixedSizeBinaryArray::try_from_sparse_iter_with_size(fixed.into_iter(), 2);
    check(Shared::new(fixed.unwrap()), "Bytes([1, 2])");
    let words: DictionaryArray<types::Int8Type> = vec![Some("word"), None].into_iter().collect();
    check(Shared::new(words), "Text(\"word\")");
    let mut texts = ListBuilder::new(StringBuilder::new());
    texts.append_value([Some("a"), Some("")]);
    texts.append(false);
    check(Shared::new(texts.finish()), "List([[97], []])");
}

#[test]
fn what_has_no_value_is_named() {
    let check = |array: ArrayRef, expected: &str| {
        let batch = RecordBatch::try_from_iter([("x", array)]).unwrap();
        let error = read_all(&written(&batch, WriterProperties::builder())).unwrap_err();
        let message = error.to_string();
        let message = message.rsplit_once('/').unwrap().1;
        assert_eq!(message, format!("f.parquet: {expected}"));
    };
    let field = Shared::new(Field::new("a", DataType::Int64, false));
    let a = Shared::new(Int64Array::from(vec![1])) as ArrayRef;
    check(
        Shared::new(StructArray::from(vec![(field, a)])),
        "column \"x\" is a struct: leave it out of the file",
    );
    check(
        Shared::new(UInt64Array::from(vec![1, u64::MAX])),
        "chunk 0 record 1: column \"x\": 18446744073709551615 is more than 9223372036854775807",
    );
    let mut holes = ListBuilder::new(Int64Builder::new());
    holes.append_value([Some(1)]);
    holes.append_value([Some(1), None]);
    check(Shared::new(holes.finish()), "chunk 0 record 1: column \"x\": a null inside a list");
}

#[test]
fn a_file_without_rows_or_columns_is_read() {
    assert_eq!(read_all(&written(&table(0), WriterProperties::builder())).unwrap().len(), 0);
    let nothing = RecordBatch::new_empty(Shared::new(Schema::empty()));
    assert_eq!(read_all(&written(&nothing, WriterProperties::builder())).unwrap().len(), 0);
}

#[test]
fn a_file_that_changed_after_indexing_is_noticed() {
    let bytes = written(&table(10), WriterProperties::builder());
    let (_folder, path) = saved(&bytes);
    let file = ParquetFile::open(&path).unwrap();
    assert_eq!(rows(&file, 0..10).unwrap().len(), 10);
    std::fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
    assert!(matches!(rows(&file, 0..10), Err(Error::Changed { .. })), "also from the cache");
}

/// Small files in the ways that differ most.
fn small() -> Vec<Vec<u8>> {
    let plain = WriterProperties::builder().set_dictionary_enabled(false);
    let second = WriterProperties::builder()
        .set_writer_version(WriterVersion::PARQUET_2_0)
        .set_compression(Compression::SNAPPY);
    let zstd = WriterProperties::builder().set_compression(Compression::ZSTD(Default::default()));
    let table = table(8);
    let narrow = table.project(&[0, 2]).unwrap();
    vec![written(&narrow, plain), written(&table, second), written(&table, zstd)]
}

#[test]
fn every_truncation_is_an_error() {
    for bytes in small() {
        for length in 0..bytes.len() {
            assert!(read_all(&bytes[..length]).is_err(), "cut at {length} of {}", bytes.len());
        }
    }
}

#[test]
fn no_flipped_bit_is_a_panic() {
    // Parquet has checksums only for pages, and most writers leave them out: a changed value is read.
    // The first file is tried whole, of the others every 23rd bit: each takes as long as a file.
    for (bytes, step) in small().into_iter().zip([1, 23, 23]) {
        for bit in (0..8 * bytes.len()).step_by(step) {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1u8 << (bit % 8);
            let _ = read_all(&damaged);
        }
    }
}

/// A page that cannot be decoded costs the records of its block, and only the first reader pays for it.
#[test]
fn a_damaged_row_group_leaves_the_others() {
    let properties = WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        .set_dictionary_enabled(false)
        .set_max_row_group_row_count(Some(100));
    let numbers: ArrayRef = Shared::new(Int64Array::from_iter_values((0..300).map(|n| n * n)));
    let mut bytes = written(&RecordBatch::try_from_iter([("n", numbers)]).unwrap(), properties);
    let group = SerializedFileReader::new(bytes::Bytes::from(bytes.clone())).unwrap();
    let (start, length) = group.metadata().row_group(1).column(0).byte_range();
    bytes[start as usize + length as usize / 2..(start + length) as usize].fill(0xff);
    let (_folder, path) = saved(&bytes);
    let file = ParquetFile::open(&path).unwrap();
    assert_eq!(rows(&file, 0..100).unwrap().len() + rows(&file, 200..300).unwrap().len(), 200);
    let before = crate::blob::opened(&path);
    let messages: Vec<String> = [100, 150, 199]
        .map(|record| {
            let error = rows(&file, record..record + 1).unwrap_err();
            assert!(error.is_bad_data(), "{error}");
            error.to_string()
        })
        .into();
    assert!(messages[0].contains("f.parquet: chunk 1 record 100: "), "{messages:?}");
    assert!(messages.iter().all(|message| *message == messages[0]), "{messages:?}");
    assert_eq!(crate::blob::opened(&path) - before, 1);
}

#[test]
fn an_absurd_footer_takes_no_memory() {
    for length in [u32::MAX, i32::MAX as u32, 1 << 20] {
        let bytes = [b"PAR1....".as_slice(), &length.to_le_bytes(), b"PAR1"].concat();
        let message = read_all(&bytes).unwrap_err().to_string();
        assert!(
            message.contains("f.parquet: not a parquet file, or its footer is damaged"),
            "{message}"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn damaged_files_are_read_or_refused(
        which in 0usize..3,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let mut bytes = small().swap_remove(which);
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        let _ = read_all(&bytes);
    }

    #[test]
    fn any_range_of_any_layout_is_read(
        count in 1i64..400, group in 1usize..200, page in 1usize..60, from in 0i64..400, dictionary: bool,
    ) {
        let properties = WriterProperties::builder()
            .set_max_row_group_row_count(Some(group))
            .set_data_page_row_count_limit(page)
            .set_write_batch_size(page)
            .set_dictionary_enabled(dictionary);
        let (_folder, path) = saved(&written(&table(count), properties));
        let file = ParquetFile::open(&path).unwrap();
        let from = from.min(count);
        let found = rows(&file, from as u64..count as u64).unwrap();
        prop_assert_eq!(found, (from..count).map(expected).collect::<Vec<_>>());
    }
}
