//! Gets MNIST from a folder or from the web, checks it, and turns it into RecordIO for training.

use std::fs::File;
use std::io::{BufWriter, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use salamander_data::example_proto::{Example, Feature};
use salamander_data::idx::gunzip_if_needed;
use salamander_data::recordio::{Compression, Options, Writer};

const DEFAULT_SOURCE: &str = "https://ossci-datasets.s3.amazonaws.com/mnist";
const CHUNK_RECORDS: u32 = 1_000;
const IMAGE_BYTES: usize = 28 * 28;
const IMAGES_HEADER: usize = 16;
const LABELS_HEADER: usize = 8;

const RETRIES: u32 = 3;
const FIRST_WAIT: Duration = Duration::from_secs(1);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);
/// For one file of at most 10 MB as gzip or 47 MB without; a slow line may take minutes.
const TRANSFER_TIMEOUT: Duration = Duration::from_secs(600);

/// A file of the data set as published, unpacked.
struct Published {
    name: &'static str,
    bytes: usize,
    blake3: &'static str,
}

/// The two files that become one RecordIO file.
struct Part {
    output: &'static str,
    images: Published,
    labels: Published,
}

const PARTS: [Part; 2] = [
    Part {
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
    Part {
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
pub fn mnist(
    source: Option<&str>,
    out: &Path,
    progress: &mut dyn FnMut(&str),
) -> Result<Vec<PathBuf>> {
    let source = Source::new(source.unwrap_or(DEFAULT_SOURCE))?;
    std::fs::create_dir_all(out).with_context(|| format!("cannot make {}", out.display()))?;
    let mut paths = Vec::new();
    for part in &PARTS {
        let images = source.get(&part.images, progress)?;
        let labels = source.get(&part.labels, progress)?;
        let path = out.join(part.output);
        let records = convert(&images, &labels, &path)?;
        progress(&format!("{}: {records} records", path.display()));
        paths.push(path);
    }
    Ok(paths)
}

/// Where the files come from.
enum Source {
    Folder(PathBuf),
    Web { prefix: String, agent: ureq::Agent },
}

impl Source {
    fn new(source: &str) -> Result<Source> {
        if source.starts_with("http://") || source.starts_with("https://") {
            let config = ureq::Agent::config_builder()
                .timeout_connect(Some(CONNECT_TIMEOUT))
                .timeout_global(Some(TRANSFER_TIMEOUT))
                .build();
            let prefix = source.trim_end_matches('/').to_owned();
            return Ok(Source::Web { prefix, agent: config.into() });
        }
        let folder = PathBuf::from(source);
        ensure!(folder.is_dir(), "{source}: neither a folder nor an http(s) address");
        Ok(Source::Folder(folder))
    }

    /// The unpacked and verified content of a file.
    fn get(&self, file: &Published, progress: &mut dyn FnMut(&str)) -> Result<Vec<u8>> {
        let (place, bytes) = match self {
            Source::Folder(folder) => read_from_folder(folder, file)?,
            Source::Web { prefix, agent } => download(agent, prefix, file, progress)?,
        };
        let bytes = gunzip_if_needed(bytes).with_context(|| format!("{place}: cannot unpack"))?;
        verify(&bytes, file).with_context(|| format!("{place}: not the published file"))?;
        progress(&format!("{place}: {} bytes, checksum as published", bytes.len()));
        Ok(bytes)
    }
}

fn verify(bytes: &[u8], file: &Published) -> Result<()> {
    let (found, expected) = (bytes.len(), file.bytes);
    ensure!(found == expected, "{found} bytes unpacked, but {} has {expected}", file.name);
    let (found, expected) = (blake3::hash(bytes).to_hex(), file.blake3);
    ensure!(found.as_str() == expected, "blake3 {found}, but {} has {expected}", file.name);
    Ok(())
}

fn read_from_folder(folder: &Path, file: &Published) -> Result<(String, Vec<u8>)> {
    for name in [file.name.to_owned(), format!("{}.gz", file.name)] {
        let path = folder.join(name);
        let place = path.display().to_string();
        match std::fs::read(&path) {
            Ok(bytes) => return Ok((place, bytes)),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error).context(place),
        }
    }
    bail!("{}: has neither {} nor {}.gz", folder.display(), file.name, file.name)
}

/// Tries the packed file first, because it is a fifth of the size.
fn download(
    agent: &ureq::Agent,
    prefix: &str,
    file: &Published,
    progress: &mut dyn FnMut(&str),
) -> Result<(String, Vec<u8>)> {
    let (packed, plain) = (format!("{prefix}/{}.gz", file.name), format!("{prefix}/{}", file.name));
    // A packed file is never much larger than the plain one.
    let limit = file.bytes as u64 + (1 << 20);
    match download_with_retries(agent, &packed, limit, progress) {
        Ok(bytes) => Ok((packed, bytes)),
        Err(ureq::Error::StatusCode(404)) => {
            let bytes = download_with_retries(agent, &plain, limit, progress);
            Ok((plain.clone(), bytes.with_context(|| format!("{plain} (also tried .gz)"))?))
        }
        Err(error) => Err(error).context(packed),
    }
}

fn download_with_retries(
    agent: &ureq::Agent,
    address: &str,
    limit: u64,
    progress: &mut dyn FnMut(&str),
) -> Result<Vec<u8>, ureq::Error> {
    let mut wait = FIRST_WAIT;
    progress(&format!("{address}: fetching"));
    for attempt in 1..=RETRIES {
        match download_once(agent, address, limit) {
            Err(error) if may_pass(&error) => {
                let seconds = wait.as_secs();
                progress(&format!(
                    "{address}: {error}; retry {attempt} of {RETRIES} in {seconds} s"
                ));
                std::thread::sleep(wait);
                wait *= 2;
            }
            settled => return settled,
        }
    }
    download_once(agent, address, limit)
}

fn download_once(agent: &ureq::Agent, address: &str, limit: u64) -> Result<Vec<u8>, ureq::Error> {
    agent.get(address).call()?.into_body().into_with_config().limit(limit).read_to_vec()
}

/// True for failures that another attempt may not meet.
fn may_pass(error: &ureq::Error) -> bool {
    match error {
        ureq::Error::StatusCode(code) => *code >= 500 || *code == 429,
        ureq::Error::Timeout(_) => true,
        ureq::Error::Io(error) => matches!(
            error.kind(),
            ErrorKind::TimedOut | ErrorKind::ConnectionReset | ErrorKind::UnexpectedEof
        ),
        _ => false,
    }
}

/// Writes the digits beside `path` and renames, so that a file of that name is always whole.
fn convert(images: &[u8], labels: &[u8], path: &Path) -> Result<u64> {
    let unfinished = path.with_extension("recordio.part");
    let written = write_records(images, labels, &unfinished).and_then(|records| {
        std::fs::rename(&unfinished, path)?;
        Ok(records)
    });
    if written.is_err() {
        // The first error is the one to report; a leftover does no harm.
        let _ = std::fs::remove_file(&unfinished);
    }
    written.with_context(|| format!("cannot write {}", path.display()))
}

/// The files are verified, so headers have known sizes and there are as many labels as images.
fn write_records(images: &[u8], labels: &[u8], path: &Path) -> Result<u64> {
    let options = Options {
        compression: Compression::Snappy,
        max_chunk_records: CHUNK_RECORDS,
        ..Options::default()
    };
    let pixels = images.get(IMAGES_HEADER..).unwrap_or_default().chunks_exact(IMAGE_BYTES);
    let classes = labels.get(LABELS_HEADER..).unwrap_or_default();
    let mut writer = Writer::new(BufWriter::new(File::create(path)?), options);
    for (image, &class) in pixels.zip(classes) {
        let image = Feature::bytes(image);
        let label = Feature::ints([i64::from(class)]);
        writer.write(&Example::new([("image", image), ("label", label)]).to_bytes())?;
    }
    let records = writer.records();
    writer.finish()?.into_inner().map_err(|error| error.into_error())?.sync_all()?;
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
        assert!(!folder.path().join("few.recordio.part").exists());
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
