//! Files of records, of the sizes that PyTorch's are made of in memory.

use std::path::{Path, PathBuf};

use benches::{MINILM, REVIEW_LENGTHS};
use burn::tensor::Device;
use salamander::models::bert::{self, BertClassifier, BertConfig};
use salamander_data::generate::Pictures;
use salamander_data::{Format, Row, Value, sink};
use salamander_train::example::Assets;

/// Writes records into a folder, and says where.
pub(crate) type WriteRecords = fn(&Path) -> PathBuf;

/// Ids that the tokenizer of the fixture has; the table is of MiniLM's size.
const IDS: usize = 99;

/// The zoo's digits.
pub(crate) fn digits(_: &Path) -> PathBuf {
    let digits = Path::new(env!("CARGO_MANIFEST_DIR")).join("../model_zoo/mnist/data");
    digits.join("mnist-train.recordio").canonicalize().expect("the zoo's data")
}

/// Pictures like those of CIFAR-10.
pub(crate) fn pictures(folder: &Path) -> PathBuf {
    let world = Pictures::new(1);
    let path = folder.join("data_batch_1.bin");
    let mut file = sink::create(&path, Format::Cifar).expect("a file");
    (0..4096).for_each(|record| file.write(&world.draw(record).row()).expect("written"));
    file.finish().expect("finished");
    path
}

/// Pictures of 64 x 64 pixels.
pub(crate) fn photos(folder: &Path) -> PathBuf {
    write(folder, 2048, &mut |at, write| {
        let pixels: Vec<u8> =
            (0..3 * 64 * 64).map(|pixel| ((pixel + at) * 7919 % 256) as u8).collect();
        let label = Value::Ints(vec![(at % 10) as i64].into());
        write(vec![("image", Value::Bytes(&pixels)), ("label", label)]);
    })
}

/// Tokens of film reviews, beside a folder with a fresh MiniLM.
pub(crate) fn reviews(folder: &Path) -> PathBuf {
    minilm(&folder.join("minilm"));
    write(folder, 64 * REVIEW_LENGTHS.len(), &mut |at, write| {
        let length = REVIEW_LENGTHS[at % REVIEW_LENGTHS.len()];
        let ids: Vec<i64> = (0..length).map(|token| ((token + at) * 7919 % IDS) as i64).collect();
        let label = Value::Text(["negative", "positive"][at % 2]);
        write(vec![("text", Value::Ints(ids.into())), ("label", label)]);
    })
}

fn minilm(folder: &Path) {
    let config = BertConfig::parse(MINILM.as_bytes()).expect("a configuration");
    let model = BertClassifier::new(&config, 2, &Device::flex().autodiff());
    let classes = ["negative", "positive"].map(String::from);
    bert::export(&model, &config, &classes, &Assets::default(), folder).expect("written");
    let fixture = "../crates/salamander-models/tests/fixtures/bert/tokenizer.json";
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join(fixture);
    std::fs::copy(fixture, folder.join("tokenizer.json")).expect("a fixture");
}

/// Passages of 128 bytes, and one that is only guessed.
pub(crate) fn passages(folder: &Path) -> PathBuf {
    write(folder, 512, &mut |at, write| {
        let letter = |byte: usize| char::from(b'a' + ((byte + at) * 7919 % 26) as u8);
        let text: String = (0..129).map(letter).collect();
        write(vec![("text", Value::Text(&text))]);
    })
}

/// Takes the cells of a record.
type WriteCells<'a> = dyn FnMut(Vec<(&'static str, Value<'_>)>) + 'a;

fn write(
    folder: &Path,
    count: usize,
    record: &mut dyn FnMut(usize, &mut WriteCells<'_>),
) -> PathBuf {
    let path = folder.join("records.recordio");
    let mut file = sink::create(&path, Format::RecordIo).expect("a file");
    for at in 0..count {
        record(at, &mut |cells| {
            let cells = cells.into_iter().map(|(name, value)| (name.into(), value)).collect();
            file.write(&Row::new(cells)).expect("written");
        });
    }
    file.finish().expect("finished");
    path
}
