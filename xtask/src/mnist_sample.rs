//! Makes the small MNIST sample of the model zoo, so that the first training run needs no network.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::{Context, Result, ensure};
use salamander_data::example_proto::{Example, Feature};
use salamander_data::idx::IdxFile;
use salamander_data::recordio::{Compression, Writer, WriterOptions};
use salamander_data::{Error, Reader};

const TRAINING_RECORDS: usize = 8_000;
const VALIDATION_RECORDS: usize = 2_000;
const CHUNK_RECORDS: u32 = 500;

/// Both files together stay below this, because they are checked in.
const MAX_BYTES: u64 = 3_000_000;

/// Any number would do; it only has to stay the same, so that the files can be made again.
const SEED: u64 = 0x5a1a_ba6d_e700_0001;

/// Draws digits from the MNIST training files in `folder` and writes `mnist-train.recordio` and
/// `mnist-valid.recordio` into `out`. The result is the same bytes each time.
pub(crate) fn run(folder: &Path, out: &Path) -> Result<()> {
    let images = folder.join("train-images-idx3-ubyte");
    let digits = IdxFile::open(&images).context("the MNIST training images cannot be used")?;
    let wanted = TRAINING_RECORDS + VALIDATION_RECORDS;
    let available = digits.records();
    ensure!(available >= wanted as u64, "{}: {available} digits, need {wanted}", images.display());
    std::fs::create_dir_all(out).with_context(|| format!("cannot make {}", out.display()))?;

    let order = shuffled(available, SEED);
    let (training, rest) = order.split_at(TRAINING_RECORDS);
    let (validation, _) = rest.split_at(VALIDATION_RECORDS);
    let bytes = save(&digits, training, &out.join("mnist-train.recordio"))?
        + save(&digits, validation, &out.join("mnist-valid.recordio"))?;
    ensure!(bytes < MAX_BYTES, "the sample has {bytes} bytes, but must stay below {MAX_BYTES}");
    Ok(())
}

/// Writes the digits in this order and returns the file's size.
fn save(digits: &IdxFile, order: &[u64], path: &Path) -> Result<u64> {
    let named = || path.display().to_string();
    let options = WriterOptions {
        compression: Compression::Gzip,
        gzip_level: 9,
        max_chunk_records: CHUNK_RECORDS,
        ..WriterOptions::default()
    };
    let file = File::create(path).with_context(named)?;
    let mut writer = Writer::new(BufWriter::new(file), options);
    for &digit in order {
        let mut record = Vec::new();
        digits.read(0, digit..digit + 1, &mut |_, row| {
            let [label] = row.ints("label")? else {
                return Err(Error::Rejected("needs exactly one label".into()));
            };
            let image = Feature::bytes(row.bytes("image")?);
            let label = Feature::ints([*label]);
            record = Example::new([("image", image), ("label", label)]).to_bytes();
            Ok(())
        })?;
        writer.write(&record).with_context(named)?;
    }
    let mut file = writer.finish().with_context(named)?;
    file.flush().with_context(named)?;
    Ok(file.get_ref().metadata().with_context(named)?.len())
}

/// The numbers below `count` in a fixed random order (Fisher-Yates).
fn shuffled(count: u64, seed: u64) -> Vec<u64> {
    let mut order: Vec<u64> = (0..count).collect();
    let mut state = seed;
    for last in (1..order.len()).rev() {
        // The remainder's bias is one part in 10^14 here.
        let other = (splitmix64(&mut state) % (last as u64 + 1)) as usize;
        order.swap(last, other);
    }
    order
}

/// The generator of <https://prng.di.unimi.it/splitmix64.c>.
fn splitmix64(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_generator_is_splitmix64() {
        let mut state = 1_234_567;
        assert_eq!(splitmix64(&mut state), 6_457_827_717_110_365_317);
        assert_eq!(splitmix64(&mut state), 3_203_168_211_198_807_973);
    }

    #[test]
    fn shuffling_keeps_every_number() {
        let mut order = shuffled(1_000, SEED);
        assert_eq!(order, shuffled(1_000, SEED));
        assert_ne!(order, (0..1_000).collect::<Vec<_>>());
        order.sort_unstable();
        assert_eq!(order, (0..1_000).collect::<Vec<_>>());
    }
}
