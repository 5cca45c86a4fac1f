//! Objects against a server that misbehaves on demand.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use server::HttpServer;

use super::disk::Disk;
use super::{BLOCK_BYTES, Object, Remote, RequestSettings};
use crate::blob::{BlobSource, ReadAt};
use crate::{Blob, Dataset, Error, open};

mod server;

const MIB: usize = BLOCK_BYTES as usize;

/// Something to read from, with the patience of a busy machine. It is never dropped, as the real one.
fn remote(disk: Option<Disk>) -> &'static Remote {
    with_patience(Duration::from_secs(30), Duration::from_secs(120), disk)
}

/// The same for servers that make it wait.
fn impatient() -> &'static Remote {
    with_patience(Duration::from_millis(400), Duration::from_secs(5), None)
}

fn with_patience(timeout: Duration, patience: Duration, disk: Option<Disk>) -> &'static Remote {
    let settings =
        RequestSettings { timeout, retries: 3, pause: Duration::from_millis(10), patience };
    Box::leak(Box::new(Remote::new(settings, disk).unwrap()))
}

fn content(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|n| (n / 7 + n / 1000) as u8).collect()
}

fn read(object: &Object, offset: usize, length: usize) -> Result<Vec<u8>, Error> {
    let mut buf = vec![0; length];
    object.read_exact_at(&mut buf, offset as u64).map_err(Error::io(object.path()))?;
    Ok(buf)
}

#[test]
fn any_range_is_read_right_and_each_block_once() {
    let bytes = content(5 * MIB + 123);
    let server = HttpServer::start(bytes.clone());
    let object = Object::open(remote(None), &server.place("a.bin")).unwrap();
    assert_eq!(object.size(), bytes.len() as u64);
    let check = |offset: usize, length: usize| {
        assert!(read(&object, offset, length).unwrap() == bytes[offset..offset + length]);
    };
    check(0, 1);
    check(MIB - 1, 2);
    check(5 * MIB, 123);
    check(10, 5 * MIB);
    check(7, 0);
    check(0, bytes.len());
    assert_eq!(server.gets(), 6);
    assert!(read(&object, 5 * MIB, 124).is_err(), "past the end");
    assert!(read(&object, usize::MAX, 1).is_err(), "past everything");
}

#[test]
fn sequential_reading_fetches_the_next_block_ahead() {
    let server = HttpServer::start(content(4 * MIB));
    let object = Object::open(remote(None), &server.place("a.bin")).unwrap();
    read(&object, 0, 100).unwrap();
    assert_eq!(server.gets(), 1, "one read tells nothing");
    read(&object, 100, 100).unwrap();
    let deadline = Instant::now() + Duration::from_secs(10);
    while server.gets() < 2 {
        assert!(Instant::now() < deadline, "nothing was fetched ahead");
        std::thread::yield_now();
    }
    read(&object, MIB, 1).unwrap();
    let seen = server.state().seen.clone();
    assert_eq!(seen[1..3], ["GET bytes=0-1048575", "GET bytes=1048576-2097151"]);
}

#[test]
fn refusals_stalls_and_cut_answers_are_tried_again() {
    let bytes = content(1000);
    let server = HttpServer::start(bytes.clone());
    server.state().refuse = 2;
    let object = Object::open(impatient(), &server.place("a.bin")).unwrap();
    server.state().stall = 1;
    assert!(read(&object, 0, 1000).unwrap() == bytes);

    let object = Object::open(impatient(), &server.place("a.bin")).unwrap();
    server.state().cut = 1;
    assert!(read(&object, 0, 1000).unwrap() == bytes);
}

#[test]
fn a_server_that_never_recovers_is_an_error_in_time() {
    let check = |change: fn(&HttpServer), expected: &str| {
        let server = HttpServer::start(content(1000));
        let object = Object::open(impatient(), &server.place("a.bin")).unwrap();
        change(&server);
        let started = Instant::now();
        let message = read(&object, 0, 10).unwrap_err().to_string();
        assert!(
            message.starts_with("http://127.0.0.1:") && message.contains(expected),
            "{message}"
        );
        assert!(started.elapsed() < Duration::from_secs(60));
    };
    check(|server| server.state().refuse = usize::MAX, "503");
    check(|server| server.state().stall = usize::MAX, "the store cannot be read");
    check(|server| server.state().cut = usize::MAX, "the store cannot be read");
}

#[test]
fn a_changed_object_is_noticed() {
    let check = |change: fn(&HttpServer), etag: Option<&str>| {
        let server = HttpServer::start(content(3 * MIB));
        server.state().etag = etag.map(str::to_owned);
        let object = Object::open(remote(None), &server.place("a.bin")).unwrap();
        read(&object, 0, 10).unwrap();
        change(&server);
        read(&object, 20, 10).unwrap();
        let error = read(&object, 2 * MIB, 10).unwrap_err();
        assert!(matches!(error, Error::Changed { .. }), "{error}");
    };
    check(|server| server.state().etag = Some("\"2\"".to_owned()), Some("\"1\""));
    check(|server| server.state().etag = Some("W/\"2\"".to_owned()), Some("W/\"1\""));
    check(|server| server.state().content.push(0), None);
    check(|server| server.state().content.truncate(3 * MIB - 1), Some("W/\"1\""));
}

#[test]
fn weak_tags_and_no_tags_can_be_read() {
    for etag in [None, Some("W/\"1\"".to_owned())] {
        let server = HttpServer::start(content(100));
        server.state().etag = etag;
        let object = Object::open(remote(None), &server.place("a.bin")).unwrap();
        assert_eq!(read(&object, 0, 100).unwrap(), content(100));
    }
}

#[test]
fn a_server_without_ranges_is_read_whole_once() {
    let bytes = content(3 * MIB + 5);
    let server = HttpServer::start(bytes.clone());
    server.state().ranges = false;
    let object = Object::open(remote(None), &server.place("a.bin")).unwrap();
    assert!(read(&object, 2 * MIB - 1, MIB).unwrap() == bytes[2 * MIB - 1..3 * MIB - 1]);
    let before = server.gets();
    assert!(read(&object, 0, bytes.len()).unwrap() == bytes);
    assert_eq!(server.gets(), before, "all blocks are there");
}

#[test]
fn a_large_file_without_ranges_is_refused() {
    let server = HttpServer::start(vec![0; 65 * MIB]);
    server.state().ranges = false;
    let settings =
        RequestSettings { timeout: Duration::from_secs(20), ..RequestSettings::default() };
    let remote = Box::leak(Box::new(Remote::new(settings, None).unwrap()));
    let object = Object::open(remote, &server.place("a.bin")).unwrap();
    let message = read(&object, 0, 1).unwrap_err().to_string();
    assert!(
        message.contains("the server ignores ranges, and 68157440 bytes are too many"),
        "{message}"
    );
}

#[test]
fn blocks_on_disk_are_not_fetched_again() {
    let folder = tempfile::tempdir().unwrap();
    let bytes = content(2 * MIB + 9);
    let server = HttpServer::start(bytes.clone());
    let open = |etag: &str| {
        server.state().etag = Some(etag.to_owned());
        let disk = Disk::new(folder.path(), 10 << 20).unwrap();
        Object::open(remote(Some(disk)), &server.place("a.bin")).unwrap()
    };
    assert!(read(&open("\"1\""), 0, bytes.len()).unwrap() == bytes);
    assert_eq!(server.gets(), 3);
    assert!(read(&open("\"1\""), 0, bytes.len()).unwrap() == bytes);
    assert_eq!(server.gets(), 3);
    assert!(read(&open("\"2\""), 0, bytes.len()).unwrap() == bytes);
    assert_eq!(server.gets(), 6);
}

#[test]
fn many_threads_share_the_blocks() {
    let bytes = content(8 * MIB);
    let server = HttpServer::start(bytes.clone());
    let object = Object::open(remote(None), &server.place("a.bin")).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..6 {
            let (object, bytes) = (&object, &bytes);
            scope.spawn(move || {
                for turn in 0..40 {
                    let offset = (thread * 1_234_567 + turn * 777_777) % (7 * MIB);
                    assert!(read(object, offset, MIB).unwrap() == bytes[offset..offset + MIB]);
                }
            });
        }
    });
    assert!(server.gets() <= 8, "{}", server.gets());
}

#[test]
fn formats_read_from_a_url() {
    let server = HttpServer::start(b"x,y\n1,a\n2,b\n3,c\n".to_vec());
    let reader = open(&[server.place("folder/a.csv")], None).unwrap();
    let dataset = Dataset::new(Arc::from(reader)).unwrap();
    let mut seen = vec![String::new(); 2];
    dataset
        .read(&[2, 0], &mut |position, row| {
            seen[position] = row.text("y")?.to_owned();
            Ok(())
        })
        .unwrap();
    assert_eq!(seen, ["c", "a"]);
    assert_eq!(dataset.describe(1), format!("{} record 1", server.place("folder/a.csv").display()));
}

#[test]
fn places_that_cannot_be_read_are_named() {
    let check = |place: &Path, expected: &str| {
        let message = open(&[place.to_owned()], None).err().unwrap().to_string();
        assert_eq!(message, format!("{}: {expected}", place.display()));
    };
    let server = HttpServer::start(Vec::new());
    check(&server.place("folder/"), "http has no listing: name the files");
    check(
        Path::new("ftp://host/a.csv"),
        "unknown kind of place \"ftp\": give s3://, gs://, az://, http:// or https://",
    );
    assert_eq!(Blob::open(&server.place("empty")).unwrap().size(), 0);
}
