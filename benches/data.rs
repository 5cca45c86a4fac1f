//! How fast records become batches, as shares of limits and peers measured in the same run.
//!
//! `SALAMANDER_PEERS=/path/to/python cargo bench -p benches --bench data` (torch, pyarrow and numpy there)

use std::fs::File;
use std::io::{BufWriter, Read};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use benches::{PythonPeer, Record, median};
use burn::tensor::Device;
use model_zoo::mnist::Digit;
use salamander_core::experiment::OnBadRecord;
use salamander_core::order::{Order, Shuffle};
use salamander_core::plan::Plan;
use salamander_data::example_proto::{Example, Feature};
use salamander_data::recordio::{ChunkInfo, Compression, RecordFile, Writer, WriterOptions};
use salamander_data::{Dataset, Format, Reader, sink};
use salamander_train::example::ExampleContext;
use salamander_train::loader::{LoadJob, Loader, LoaderOptions};

const ROUNDS: usize = 9;

fn main() {
    let folder = tempfile::tempdir().expect("a folder");
    let records = folder.path().join("records.recordio");
    write_records(&records, 400_000);
    println!("{:<44} {:>10} {:>10} {:>7}", "what", "ours", "limit/peer", "ratio");
    let record = Record::begin("data");
    recordio(&records, &record);
    parquet(folder.path(), &record);
    pipeline(&record);
    memory(folder.path(), &record);
}

fn line(record: &Record, what: &str, ours: f64, other: f64) {
    record.figure(what, ("as named", "more"), ours, Some(other));
    println!("{what:<44} {ours:>10.1} {other:>10.1} {:>7.2}", ours / other);
}

/// Examples of about 300 bytes that compress about as text does.
fn write_records(path: &Path, records: u64) {
    let file = BufWriter::new(File::create(path).expect("a file"));
    let options = WriterOptions { compression: Compression::Snappy, ..WriterOptions::default() };
    let mut writer = Writer::new(file, options);
    for i in 0..records {
        let text: Vec<u8> = (0..280u64).map(|k| (i * k % 97) as u8).collect();
        let features = [("text", Feature::bytes(text)), ("label", Feature::ints([i as i64 % 10]))];
        writer.write(&Example::new(features).to_bytes()).expect("written");
    }
    writer.finish().expect("finished");
}

/// Millions per second: the median of several rounds of all kinds of work, taken in turn, so that a slow
/// moment of the machine meets them all.
fn speeds<const N: usize>(amount: u64, mut work: [&mut dyn FnMut(); N]) -> [f64; N] {
    let mut rates = [const { Vec::new() }; N];
    for _ in 0..ROUNDS {
        for (work, rates) in work.iter_mut().zip(&mut rates) {
            let begun = Instant::now();
            work();
            rates.push(amount as f64 / 1e6 / begun.elapsed().as_secs_f64());
        }
    }
    rates.map(|mut rates| median(&mut rates))
}

fn recordio(path: &Path, record: &Record) {
    let size = std::fs::metadata(path).expect("a file").len();
    let bytes = std::fs::read(path).expect("the file");
    let chunks: Vec<ChunkInfo> = RecordFile::open(path).expect("opens").chunks().to_vec();
    // The limit: what any reader must do with the chunks, already in memory.
    let mut limit = || {
        let mut out = Vec::new();
        for chunk in &chunks {
            let start = chunk.offset as usize + 20;
            let payload = &bytes[start..start + chunk.compressed_size() as usize];
            std::hint::black_box(crc32fast::hash(payload));
            out.clear();
            snap::read::FrameDecoder::new(payload).read_to_end(&mut out).expect("whole");
            std::hint::black_box(&out);
        }
    };
    // A fresh reader each time: nothing is kept from the round before.
    let mut sequential = || {
        let file = RecordFile::open(path).expect("opens");
        read(&file, 0..file.shards().expect("shards")[0].records);
    };
    let mut random = || {
        let file = RecordFile::open(path).expect("opens");
        let order = Order::new(chunks.len() as u64, Shuffle::Full, 7, 0);
        for at in 0..chunks.len() as u64 {
            let chunk = &chunks[order.record(at) as usize];
            read(&file, chunk.first_record..chunk.first_record + u64::from(chunk.records()));
        }
    };
    let [limit, sequential, random] = speeds(size, [&mut limit, &mut sequential, &mut random]);
    line(record, "RecordIO sequential, MB/s, to checksum+snappy", sequential, limit);
    line(record, "RecordIO random chunks, MB/s, to sequential", random, sequential);
}

fn read(file: &RecordFile, records: Range<u64>) {
    let mut sum = 0;
    file.read_bytes(records, |_, record| {
        sum += record.len();
        Ok(())
    })
    .expect("reads");
    std::hint::black_box(sum);
}

fn parquet(folder: &Path, record: &Record) {
    let path = folder.join("table.parquet");
    let csv = folder.join("table.csv");
    let mut text = String::from("id,price,amount,city\n");
    for i in 0..400_000u64 {
        let city = ["lima", "oslo", "kyoto", "accra"][(i % 4) as usize];
        text.push_str(&format!("{i},{}.25,{},{city}\n", i % 1000, i * 7 % 13));
    }
    std::fs::write(&csv, text).expect("written");
    let dataset = Dataset::new(Arc::from(salamander_data::open(&[csv], None).expect("opens")));
    let dataset = dataset.expect("a dataset");
    let mut out = sink::create(&path, Format::Parquet).expect("creates");
    let all: Vec<u64> = (0..dataset.len()).collect();
    dataset.read(&all, &mut |_, row| out.write(&row)).expect("writes");
    out.finish().expect("finished");
    let rows = dataset.len();
    let [ours] = speeds(
        rows,
        [&mut || {
            let file = salamander_data::parquet::ParquetFile::open(&path).expect("opens");
            let mut seen = 0;
            for batch in file.batches(8192).expect("batches") {
                seen += batch.expect("a batch").num_rows() as u64;
            }
            assert_eq!(seen, rows);
        }],
    );
    let Some(peer) = PythonPeer::find("parquet.py", "pyarrow") else { return };
    let theirs = peer.measure(&[&path.display().to_string()]).unwrap_or(f64::NAN);
    line(record, "Parquet to batches, M rows/s, to pyarrow", ours, theirs);
}

/// RecordIO to shuffled, normalised batches of 64.
fn pipeline(record: &Record) {
    let digits =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../model_zoo/mnist/data/mnist-train.recordio");
    let reader: Arc<dyn Reader> =
        Arc::from(salamander_data::open(std::slice::from_ref(&digits), None).expect("opens"));
    let dataset = Arc::new(Dataset::new(reader).expect("a dataset"));
    let plan = Plan { records: dataset.len(), batch: 64, aggregation: 1, slices: 1 };
    let epochs = 10;
    let best = [1, 2]
        .map(|threads| {
            let mut rates: Vec<f64> = (0..ROUNDS)
                .map(|_| {
                    let jobs = (0..epochs).flat_map(move |epoch| {
                        let order = Order::new(plan.records, Shuffle::Full, 1, epoch);
                        (0..plan.steps())
                            .flat_map(move |step| plan.micro_batches(epoch, step, 1))
                            .map(move |slice| LoadJob { slice, order })
                    });
                    let options = LoaderOptions {
                        device: Device::flex(),
                        on_bad_record: OnBadRecord::Fail,
                        reading: ExampleContext::labelled(),
                        augment: None,
                        threads,
                    };
                    let begun = Instant::now();
                    let loader = Loader::start::<Digit>(Arc::clone(&dataset), jobs, options)
                        .expect("starts");
                    let records: u64 = loader.map(|l| l.expect("a batch").tally.applied).sum();
                    records as f64 / begun.elapsed().as_secs_f64()
                })
                .collect();
            median(&mut rates)
        })
        .into_iter()
        .fold(0.0, f64::max);
    let Some(peer) = PythonPeer::find("mnist_loader.py", "torch") else { return };
    let theirs = peer.measure(&[]).unwrap_or(f64::NAN);
    line(record, "MNIST pipeline, records/s, to DataLoader", best, theirs);
}

/// Peak memory over a small and a large file: a reader that kept what it read would show.
fn memory(folder: &Path, record: &Record) {
    let large = folder.join("large.recordio");
    let file = BufWriter::new(File::create(&large).expect("a file"));
    let options = WriterOptions { compression: Compression::None, ..WriterOptions::default() };
    let mut writer = Writer::new(file, options);
    let bytes = vec![7u8; 1 << 20];
    for _ in 0..2048 {
        writer.write(&bytes).expect("written");
    }
    writer.finish().expect("finished");
    let file = RecordFile::open(&large).expect("opens");
    let mut peaks = Vec::new();
    for part in [0..512, 512..2048] {
        read(&file, part);
        peaks.push(peak_megabytes());
    }
    let what = "peak MB after 2 GB, to after 0.5 GB";
    record.figure(what, ("MB", "less"), peaks[1], Some(peaks[0]));
    println!("{what:<44} {:>10.0} {:>10.0} {:>7.2}", peaks[1], peaks[0], peaks[1] / peaks[0]);
}

fn peak_megabytes() -> f64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with("VmHWM")).unwrap_or_default();
    let kilobytes: f64 = line.split_whitespace().nth(1).and_then(|n| n.parse().ok()).unwrap_or(0.0);
    kilobytes / 1024.0
}
