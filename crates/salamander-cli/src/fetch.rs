//! Gets MNIST from a folder or from the web, checks it, and turns it into RecordIO for training.

use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use salamander_data::example_proto::{Example, Feature};
use salamander_data::idx::gunzip_if_needed;
use salamander_data::recordio::{Compression, Writer, WriterOptions};
use salamander_data::{Blob, Error};
use salamander_files::{Durability, PendingFile};

const DEFAULT_SOURCE: &str = "https://ossci-datasets.s3.amazonaws.com/mnist";
const CHUNK_RECORDS: u32 = 1_000;
const IMAGE_BYTES: usize = 28 * 28;
const IMAGES_HEADER: usize = 16;
const LABELS_HEADER: usize = 8;

/// A file of the data set as published, unpacked.
struct Published {
    name: &'static str,
    bytes: usize,
    blake3: &'static str,
}

/// The two files that become one RecordIO file.
struct FilePair {
    output: &'static str,
    images: Published,
    labels: Published,
}

const PARTS: [FilePair; 2] = [
    FilePair {
        output: "train.recordio",
        images: Published {
            name: "train-images-idx3-ubyte",
            bytes: 47_040_016,
            blake3: "c6e6fd8c67d07c8a9b7bffa7dd0413ff4b8af241607b049b7721107f379df9fd",
        },
        labels: Published {
            name: "train-labels-idx1-ubyte",
            bytes: 60_008,
            blake3: "8ebcfdf2fe191516f9cb37fceb75d2d19289d91ee92026534ed45e44144b5642",
        },
    },
    FilePair {
        output: "test.recordio",
        images: Published {
            name: "t10k-images-idx3-ubyte",
            bytes: 7_840_016,
            blake3: "f8d502322cd9f186e155a74a3dff598ed56c1a7b5a5c8d312749ac47c4a2bec7",
        },
        labels: Published {
            name: "t10k-labels-idx1-ubyte",
            bytes: 10_008,
            blake3: "6d43ea317fa8f5851bb85404bb7358defd48b0294cf31f60cdcde8106fe2c3ad",
        },
    },
];

/// Writes `train.recordio` and `test.recordio` into `out` and returns their paths. `source` is a folder with
/// the four files, plain or `.gz`, or the http(s) address they are below; without it, a public copy is used.
pub(crate) fn mnist(
    source: Option<&str>,
    out: &Path,
    progress: &mut dyn FnMut(&str),
) -> Result<Vec<PathBuf>> {
    let source = place(source.unwrap_or(DEFAULT_SOURCE))?;
    std::fs::create_dir_all(out).with_context(|| format!("cannot make {}", out.display()))?;
    let mut paths = Vec::new();
    for part in &PARTS {
        let images = get(source, &part.images, progress)?;
        let labels = get(source, &part.labels, progress)?;
        let path = out.join(part.output);
        let records = convert(&images, &labels, &path)?;
        progress(&format!("{}: {records} records", path.display()));
        paths.push(path);
    }
    Ok(paths)
}

/// Where the files are below: a folder or an http(s) address.
fn place(source: &str) -> Result<&str> {
    let found = is_web(source) || Path::new(source).is_dir();
    ensure!(found, "{source}: neither a folder nor an http(s) address");
    Ok(source.trim_end_matches('/'))
}

fn is_web(source: &str) -> bool {
    source.starts_with("http://") || source.starts_with("https://")
}

/// The unpacked and verified content of a file. The packed one comes first, because it is a fifth of the size.
fn get(source: &str, file: &Published, progress: &mut dyn FnMut(&str)) -> Result<Vec<u8>> {
    // A packed file is never much larger than the plain one.
    let limit = file.bytes as u64 + (1 << 20);
    for ending in [".gz", ""] {
        let place = format!("{source}/{}{ending}", file.name);
        if is_web(source) {
            progress(&format!("{place}: fetching"));
        }
        let Some(bytes) = read_all(&place, limit)? else { continue };
        let bytes = gunzip_if_needed(bytes).with_context(|| format!("{place}: cannot unpack"))?;
        verify(&bytes, file).with_context(|| format!("{place}: not the published file"))?;
        progress(&format!("{place}: {} bytes, checksum as published", bytes.len()));
        return Ok(bytes);
    }
    bail!("{source}: has neither {} nor {}.gz", file.name, file.name)
}

fn verify(bytes: &[u8], file: &Published) -> Result<()> {
    let (found, expected) = (bytes.len(), file.bytes);
    ensure!(found == expected, "{found} bytes unpacked, but {} has {expected}", file.name);
    let (found, expected) = (blake3::hash(bytes).to_hex(), file.blake3);
    ensure!(found.as_str() == expected, "blake3 {found}, but {} has {expected}", file.name);
    Ok(())
}

/// The bytes at a path or an address, if there are any. The data crate's places retry what may pass.
pub(crate) fn read_all(address: &str, limit: u64) -> Result<Option<Vec<u8>>> {
    let blob = match Blob::open(Path::new(address)) {
        Ok(blob) => blob,
        Err(Error::Io { cause, .. }) if cause.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(unread(address, error)),
    };
    let size = blob.size();
    ensure!(size <= limit, "{address}: {size} bytes, which is not the published file");
    let mut bytes = Vec::with_capacity(size as usize);
    blob.handle()?.reader(0).read_to_end(&mut bytes).with_context(|| address.to_owned())?;
    Ok(Some(bytes))
}

/// Who is not connected can have the files from elsewhere.
fn unread(address: &str, error: Error) -> anyhow::Error {
    let error = anyhow::Error::new(error);
    match is_web(address) {
        true => {
            error.context("it cannot be fetched; --from DIR takes the original files from a folder")
        }
        false => error,
    }
}

/// Writes the digits into a file that is there when it is whole.
fn convert(images: &[u8], labels: &[u8], path: &Path) -> Result<u64> {
    write_records(images, labels, path).with_context(|| format!("cannot write {}", path.display()))
}

/// The files are verified, so headers have known sizes and there are as many labels as images.
fn write_records(images: &[u8], labels: &[u8], path: &Path) -> Result<u64> {
    let options = WriterOptions {
        compression: Compression::Snappy,
        max_chunk_records: CHUNK_RECORDS,
        ..WriterOptions::default()
    };
    let pixels = images.get(IMAGES_HEADER..).unwrap_or_default().chunks_exact(IMAGE_BYTES);
    let classes = labels.get(LABELS_HEADER..).unwrap_or_default();
    let mut writer = Writer::new(PendingFile::create(path, Durability::Synced)?, options);
    for (image, &class) in pixels.zip(classes) {
        let image = Feature::bytes(image);
        let label = Feature::ints([i64::from(class)]);
        writer.write(&Example::new([("image", image), ("label", label)]).to_bytes())?;
    }
    let records = writer.records();
    writer.finish()?.commit()?;
    Ok(records)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use salamander_data::{Dataset, open};

    use super::*;

    const SMALL: Published = Published {
        name: "small",
        bytes: 3,
        blake3: "6437b3ac38465133ffb63b75273a8db548c558465d79db03fd359c6cd5bd9d85",
    };

    #[test]
    fn only_the_published_bytes_pass() {
        let check = |bytes: &[u8], expected: Option<&str>| {
            let message = verify(bytes, &SMALL).err().map(|error| error.to_string());
            match (message, expected) {
                (None, None) => {}
                (Some(message), Some(start)) => assert!(message.starts_with(start), "{message}"),
                other => panic!("{other:?}"),
            }
        };
        check(b"abc", None);
        check(b"abcd", Some("4 bytes unpacked, but small has 3"));
        check(b"abd", Some("blake3 "));
    }

    #[test]
    fn who_is_not_connected_is_told_of_folders() {
        let said = |address: &str| {
            let cause = std::io::Error::other("the store cannot be read");
            format!("{:#}", unread(address, Error::io(Path::new(address))(cause)))
        };
        let web = said("https://example.org/iris.data");
        assert!(web.contains("--from DIR") && web.ends_with("the store cannot be read"), "{web}");
        assert_eq!(said("iris.data"), "iris.data: the store cannot be read");
    }

    #[test]
    fn a_source_must_exist() {
        let folder = tempfile::tempdir().unwrap();
        let check = |source: &str, expected: &str| {
            let error = mnist(Some(source), folder.path(), &mut |_| {}).unwrap_err();
            assert!(format!("{error:#}").contains(expected), "{error:#}");
        };
        check("/nowhere/at/all", "neither a folder nor an http(s) address");
        check(&folder.path().display().to_string(), "has neither train-images-idx3-ubyte nor");
        std::fs::write(folder.path().join("train-images-idx3-ubyte"), "short").unwrap();
        check(
            &folder.path().display().to_string(),
            "5 bytes unpacked, but train-images-idx3-ubyte",
        );
    }

    #[test]
    fn digits_become_examples() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("few.recordio");
        let images: Vec<u8> = (0..IMAGES_HEADER + 3 * IMAGE_BYTES).map(|i| i as u8).collect();
        let labels = [0, 0, 8, 1, 0, 0, 0, 3, 5, 0, 9];
        assert_eq!(convert(&images, &labels, &path).unwrap(), 3);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
        let dataset = Dataset::new(Arc::from(open(&[path], None).unwrap())).unwrap();
        let mut found = Vec::new();
        dataset
            .read(&[0, 1, 2], &mut |_, row| {
                let first_pixel = row.bytes("image")?[0];
                found.push((first_pixel, row.bytes("image")?.len(), row.ints("label")?[0]));
                Ok(())
            })
            .unwrap();
        assert_eq!(found, [(16, 784, 5), (32, 784, 0), (48, 784, 9)]);
    }
}
