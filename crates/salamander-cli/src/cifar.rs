//! CIFAR-10 (<https://www.cs.toronto.edu/~kriz/cifar.html>) from its binary files, or from a folder of pictures per
//! class, as two files for training and validation.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use salamander_data::{Dataset, Error, Format, Row, Value, open, sink};

/// Classes by their numbers, which is also their order in the alphabet.
const CLASSES: [&str; 10] =
    ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"];
const SIDE: usize = 32;

/// Writes `data_batch_1.bin` and `test_batch.bin` into `out` and returns their paths.
pub(crate) fn fetch(
    source: Option<&str>,
    out: &Path,
    progress: &mut dyn FnMut(&str),
) -> Result<Vec<PathBuf>> {
    let Some(source) = source else {
        bail!(
            "cifar: say where it is with --from: a folder with data_batch_*.bin and test_batch.bin \
             (cifar-10-binary.tar.gz of https://www.cs.toronto.edu/~kriz/cifar.html, unpacked), or one with folders \
             train and test of pictures by class"
        );
    };
    let folder = Path::new(source);
    ensure!(folder.is_dir(), "{source}: is no folder");
    fs::create_dir_all(out).with_context(|| format!("cannot make {}", out.display()))?;
    let binary = folder.join("test_batch.bin").is_file();
    let mut paths = Vec::new();
    for (name, batches, pictures) in
        [("data_batch_1.bin", "data_batch_", "train"), ("test_batch.bin", "test_batch", "test")]
    {
        let from = match binary {
            true => batch_files(folder, batches)?,
            false => vec![folder.join(pictures)],
        };
        ensure!(
            from.iter().all(|path| path.exists()) && !from.is_empty(),
            "{source}: has neither {batches}*.bin nor {pictures}"
        );
        let path = out.join(name);
        ensure!(!from.contains(&path), "{}: is one of the files that are read", path.display());
        let records = convert(&from, binary, &path)?;
        progress(&format!("{}: {records} records", path.display()));
        paths.push(path);
    }
    Ok(paths)
}

fn batch_files(folder: &Path, start: &str) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    let is_batch = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with(start) && name.ends_with(".bin")
    };
    let mut found: Vec<PathBuf> = entries.flatten().map(|e| e.path()).filter(is_batch).collect();
    found.sort();
    Ok(found)
}

fn convert(from: &[PathBuf], binary: bool, path: &Path) -> Result<u64> {
    let format = if binary { Format::Cifar } else { Format::ImageFolder };
    let dataset = Dataset::new(Arc::from(open(from, Some(format))?))?;
    let mut file = sink::create(path, Format::Cifar)?;
    let records: Vec<u64> = (0..dataset.len()).collect();
    for block in records.chunks(1000) {
        dataset.read(block, &mut |_, row| match binary {
            true => file.write(&row),
            false => {
                let (pixels, class) = planes(&row)?;
                let label = Value::Ints(vec![class].into());
                file.write(&Row::new(vec![
                    ("image".into(), Value::Bytes(&pixels)),
                    ("label".into(), label),
                ]))
            }
        })?;
    }
    file.finish()?;
    Ok(dataset.len())
}

/// Plane after plane of a picture whose pixels have three bytes each, and the number of its class.
fn planes(row: &Row<'_>) -> Result<(Vec<u8>, i64), Error> {
    let wrong = Error::Rejected;
    let size = (row.ints("height")?.first().copied(), row.ints("width")?.first().copied());
    if size != (Some(SIDE as i64), Some(SIDE as i64)) {
        return Err(wrong(format!(
            "a picture of CIFAR-10 has {SIDE} x {SIDE} pixels, not {size:?}"
        )));
    }
    let class = row.text("class")?;
    let number = CLASSES.iter().position(|name| *name == class);
    let number = number.ok_or_else(|| wrong(format!("{class:?} is no class of CIFAR-10")))?;
    let pixels = row.bytes("image")?;
    let plane = |plane: usize| (0..SIDE * SIDE).map(move |at| pixels[3 * at + plane]);
    Ok(((0..3).flat_map(plane).collect(), number as i64))
}
