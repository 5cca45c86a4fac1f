//! Files of several formats as one reader, with and without known indexes.

use std::sync::Mutex;

use super::*;
use crate::{Row, recordio};

fn folder_with(files: &[(&str, &[u8])]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, content) in files {
        std::fs::write(folder.path().join(name), content).unwrap();
    }
    folder
}

#[test]
fn a_folder_is_read_in_order_of_names() {
    let folder = folder_with(&[("b.csv", b"x\n1\n2\n"), ("a.csv", b"x\n0\n"), (".hidden", b"?")]);
    std::fs::create_dir(folder.path().join("inside")).unwrap();
    let reader = open(&[folder.path().to_owned()], None).unwrap();
    let counts: Vec<u64> = reader.shards().unwrap().iter().map(|shard| shard.records).collect();
    assert_eq!(counts, [1, 2]);
    let mut seen = Vec::new();
    let each = &mut |record, row: Row<'_>| {
        seen.push((record, row.text("x")?.to_owned()));
        Ok(())
    };
    reader.read(1, 1..2, each).unwrap();
    assert!(matches!(reader.read(2, 0..1, each), Err(Error::NoShard { shard: 2, shards: 2 })));
    assert_eq!(seen, [(1, "2".to_owned())]);
}

#[test]
fn labels_are_no_shard_beside_their_images() {
    let images = [0, 0, 8, 3, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 9];
    let labels = [0, 0, 8, 1, 0, 0, 0, 1, 4];
    let folder = folder_with(&[("t-images-idx3-ubyte", &images), ("t-labels-idx1-ubyte", &labels)]);
    let reader = open(&[folder.path().to_owned()], None).unwrap();
    assert_eq!(reader.shards().unwrap().len(), 1);
    let alone = open(&[folder.path().join("t-labels-idx1-ubyte")], None).err().unwrap();
    assert!(alone.to_string().ends_with("give the images file beside it"), "{alone}");
}

#[test]
fn what_cannot_be_opened_is_named() {
    let check = |paths: &[PathBuf], ending: &str| {
        let message = open(paths, None).err().unwrap().to_string();
        assert!(message.ends_with(ending), "{message}");
    };
    let folder = folder_with(&[("readme.md", b"hello")]);
    let path = folder.path();
    check(
        &[path.to_owned()],
        "readme.md: cannot tell the format: give --format (in an experiment data: {format: ..}) recordio, csv, jsonl, \
         idx, cifar, tfrecord, parquet, sqlite, images, census, criteo or movielens",
    );
    let json = folder_with(&[("cars.json", b"[{\"a\": 1}]")]);
    check(&[json.path().to_owned()], "or give jsonl as its format if it is so");
    check(&[path.join("nothing.csv")], "nothing.csv: No such file or directory (os error 2)");
    let empty = folder_with(&[]);
    check(&[empty.path().to_owned()], ": no data files in this folder");
    check(&[], "no data files were given");
}

fn counts(reader: &dyn Reader) -> Vec<u64> {
    reader.shards().unwrap().iter().map(|shard| shard.records).collect()
}

#[test]
fn a_second_open_with_a_cache_reads_no_shard() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    std::fs::create_dir(&data).unwrap();
    for shard in 0..2000 {
        let mut writer = recordio::Writer::new(Vec::new(), recordio::WriterOptions::default());
        for record in 0..shard % 7 {
            writer.write(&[record as u8]).unwrap();
        }
        let path = data.join(format!("part-{shard:05}.recordio"));
        std::fs::write(path, writer.finish().unwrap()).unwrap();
    }
    std::fs::write(data.join("z.csv"), "x,y\n1,2\n").unwrap();
    let mut tf = crate::tfrecord::TfRecordWriter::new(Vec::new());
    tf.write(b"abc").unwrap();
    std::fs::write(data.join("z.tfrecord"), tf.finish().unwrap()).unwrap();

    let cache_folder = Some(folder.path().join("run"));
    let steps = Mutex::new(Vec::new());
    let progress = |done, total| steps.lock().unwrap().push((done, total));
    let options = OpenOptions { cache_folder, progress: Some(&progress), ..OpenOptions::default() };
    let first = open_indexed(std::slice::from_ref(&data), None, &options).unwrap();
    let opened = crate::blob::opened(&data);
    assert_eq!(opened, 2002);
    assert!(steps.lock().unwrap().iter().copied().eq((1..=2002).map(|done| (done, 2002))));

    let second = open_indexed(std::slice::from_ref(&data), None, &options).unwrap();
    assert_eq!(crate::blob::opened(&data), opened, "no shard was read");
    let expected: Vec<u64> = (0..2000).map(|shard| shard % 7).chain([1, 1]).collect();
    assert_eq!((counts(&*first), counts(&*second)), (expected.clone(), expected));
    for shard in [5, 2000, 2001] {
        second.read(shard, 0..1, &mut |_, _| Ok(())).unwrap();
    }
}

#[test]
fn a_file_that_changed_is_indexed_again() {
    let folder = folder_with(&[("a.csv", b"x\n1\n"), ("b.csv", b"x\n1\n")]);
    let cache = folder_with(&[]);
    let cache_folder = Some(cache.path().to_owned());
    let options = OpenOptions { cache_folder, threads: 1, ..OpenOptions::default() };
    let paths = [folder.path().to_owned()];
    assert_eq!(counts(&*open_indexed(&paths, None, &options).unwrap()), [1, 1]);
    std::fs::write(folder.path().join("b.csv"), "x\n1\n2\n").unwrap();
    assert_eq!(counts(&*open_indexed(&paths, None, &options).unwrap()), [1, 2]);
    let file = cache.path().join("index.cache");
    std::fs::write(&file, "nonsense").unwrap();
    assert_eq!(counts(&*open_indexed(&paths, None, &options).unwrap()), [1, 2]);
    assert!(std::fs::metadata(&file).unwrap().len() > 50, "written anew");
}

#[test]
fn the_first_error_in_order_is_reported() {
    let folder = folder_with(&[("a.csv", b"x\n"), ("b.csv", b"x,x\n"), ("c.csv", b"y,y\n")]);
    for threads in [0, 1, 3] {
        let options = OpenOptions { threads, ..OpenOptions::default() };
        let error = open_indexed(&[folder.path().to_owned()], None, &options).err().unwrap();
        assert!(error.to_string().contains("b.csv: header row"), "{error}");
    }
}
