//! Images and labels that fit together, and those that do not.

use std::io::Write;

use super::*;
use crate::Reader;

fn images(count: u32, rows: u32, columns: u32, pixels: &[u8]) -> Vec<u8> {
    let header = [IMAGES_MAGIC, count, rows, columns].map(u32::to_be_bytes);
    [header.as_flattened(), pixels].concat()
}

fn labels(count: u32, classes: &[u8]) -> Vec<u8> {
    [[LABELS_MAGIC, count].map(u32::to_be_bytes).as_flattened(), classes].concat()
}

/// Rows as text, or the error.
fn rows(images: &[u8], labels: Option<&[u8]>, records: Range<u64>) -> Result<Vec<String>, String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t-images-idx3-ubyte");
    std::fs::write(&path, images).unwrap();
    if let Some(labels) = labels {
        std::fs::write(folder.path().join("t-labels-idx1-ubyte"), labels).unwrap();
    }
    let strip =
        |error: Error| error.to_string().replace(&format!("{}/", folder.path().display()), "");
    let mut rows = Vec::new();
    let file = IdxFile::open(&path).map_err(strip)?;
    file.read(0, records, &mut |record, row| {
        let label = row.get("label").map(|_| row.ints("label").unwrap());
        rows.push(format!("{record} {:?} {label:?}", row.bytes("image")?));
        Ok(())
    })
    .map_err(strip)?;
    Ok(rows)
}

#[test]
fn images_come_with_labels_if_there_are_any() {
    let check = |labels: Option<&[u8]>, records: Range<u64>, expected: &[&str]| {
        let images = images(3, 1, 2, &[1, 2, 3, 4, 5, 6]);
        assert_eq!(rows(&images, labels, records).unwrap(), expected);
    };
    let some = labels(3, &[7, 8, 9]);
    check(Some(&some), 0..3, &["0 [1, 2] Some([7])", "1 [3, 4] Some([8])", "2 [5, 6] Some([9])"]);
    check(Some(&some), 2..3, &["2 [5, 6] Some([9])"]);
    check(None, 1..2, &["1 [3, 4] None"]);
    check(None, 1..1, &[]);
}

#[test]
fn ranges_longer_than_a_block_are_whole() {
    let pixels: Vec<u8> = (0..3_000_000).map(|i| (i / 1000) as u8).collect();
    let found = rows(&images(3000, 10, 100, &pixels), None, 5..3000).unwrap();
    assert_eq!(found.len(), 2995);
    assert!(found[2994].starts_with("2999 [183, 183, "), "{:.40}", found[2994]);
}

#[test]
fn images_that_contradict_themselves_are_refused() {
    let check = |images: &[u8], expected: &str| {
        let found = rows(images, None, 0..0).unwrap_err();
        assert_eq!(found, format!("t-images-idx3-ubyte: {expected}"));
    };
    let good = images(1, 1, 1, &[5]);
    check(&[], "0 bytes, but an idx header has 4");
    check(&good[..9], "9 bytes, but an idx header has 16");
    check(&[&good[..], &[0]].concat(), "18 bytes, but 1 images of 1 x 1 take 17");
    check(&images(2, 1, 1, &[5]), "17 bytes, but 2 images of 1 x 1 take 18");
    check(
        &images(u32::MAX, u32::MAX, u32::MAX, &[]),
        "16 bytes cannot hold 4294967295 images of 4294967295 x 4294967295",
    );
    check(&images(9, 0, 4, &[]), "9 images of 0 x 4 have no pixels");
    check(&[1; 16], "begins with 0x01010101, but an idx images file with 0x00000803");
    check(&labels(1, &[3]), "a labels file: give the images file beside it");
}

#[test]
fn labels_that_do_not_fit_their_images_are_refused() {
    let good = images(1, 1, 1, &[5]);
    let check = |labels: &[u8], expected: &str| {
        let found = rows(&good, Some(labels), 0..0).unwrap_err();
        assert_eq!(found, format!("t-labels-idx1-ubyte: {expected}"));
    };
    check(&labels(2, &[1, 2]), "2 labels for 1 images");
    check(&labels(2, &[1]), "9 bytes, but 2 labels take 10");
    check(&good, "begins with 0x00000803, but an idx labels file with 0x00000801");
}

#[test]
fn gzip_is_unpacked_and_other_bytes_are_left() {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(b"digits").unwrap();
    let packed = encoder.finish().unwrap();
    assert_eq!(gunzip_if_needed(packed.clone()).unwrap(), b"digits");
    assert_eq!(gunzip_if_needed(b"digits".to_vec()).unwrap(), b"digits");
    assert!(gunzip_if_needed(packed[..12].to_vec()).is_err());
}
