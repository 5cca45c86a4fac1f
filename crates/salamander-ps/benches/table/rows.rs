//! What a row costs in memory, and how long ten million of them take to a file and back.

use std::path::Path;

use salamander_core::progress::StepCount;
use salamander_ps::{Engine, EngineOptions, TableId, TableRows, TableSpec};

use crate::cpu_seconds;
use crate::lookup::id_of;
use crate::record::Record;

const DIM: usize = 16;
const ROWS: usize = 10_000_000;
const BATCH: usize = 8192;
/// Values and Adagrad's sums in f32, and the id.
const NEEDED: usize = 4 * DIM + 4 * DIM + 8;

/// Prints memory and seconds.
pub(crate) fn measure(record: &Record) {
    println!("rows: dimension {DIM}, Adagrad, {ROWS} rows, one owner thread");
    let before = resident();
    let engine = Engine::new(EngineOptions::default()).expect("it starts");
    let table = engine.declare(TableSpec::new("rows", DIM)).expect("the table is sound");
    let start = cpu_seconds();
    fill(&engine, table);
    println!("  created in {:.1} s of processor", cpu_seconds() - start);
    let bytes = (resident() - before) as f64 / ROWS as f64;
    let counted = engine.stats().expect("alive")[0].bytes as f64 / ROWS as f64;
    record.figure("resident", ("bytes/row", "less"), bytes, Some(NEEDED as f64));
    println!(
        "  {bytes:.1} bytes/row resident, {counted:.1} counted; {NEEDED} needed: {:.3} of it",
        bytes / NEEDED as f64
    );
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("rows.bench");
    save(&engine, &file, record);
    drop(engine);
    let engine = Engine::new(EngineOptions::default()).expect("it starts");
    let start = cpu_seconds();
    engine.restore(std::slice::from_ref(&file)).expect("restored");
    let restored = cpu_seconds() - start;
    record.figure("restored", ("s", "less"), restored, None);
    println!("  restored in {restored:.2} s of processor");
    assert_eq!(engine.stats().expect("alive")[0].rows, ROWS as u64);
    std::fs::remove_file(&file).ok();
}

fn fill(engine: &Engine, table: TableId) {
    let gradients = vec![1.0; BATCH * DIM];
    for (version, start) in (0..ROWS as u32).step_by(BATCH).enumerate() {
        let ids: Vec<u64> = (start..(start + BATCH as u32).min(ROWS as u32)).map(id_of).collect();
        let rows = TableRows { table, ids: &ids, values: &gradients[..ids.len() * DIM] };
        engine.stage(StepCount(version as u64), 0, &[rows]).expect("staged");
        engine.advance(StepCount(version as u64 + 1), 1.0, 1.0).expect("applied");
    }
}

fn save(engine: &Engine, file: &Path, record: &Record) {
    let start = cpu_seconds();
    let snapshot = engine.snapshot().expect("copied");
    let copied = cpu_seconds() - start;
    let written = snapshot.write(file).expect("written");
    let all = cpu_seconds() - start;
    record.figure("saved", ("s", "less"), all, None);
    println!(
        "  saved in {all:.2} s of processor, of which training waits {copied:.2} s; {} bytes, {} rows",
        written.bytes, written.rows
    );
}

/// Bytes of this process in memory.
fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = text.split_whitespace().nth(1).and_then(|pages| pages.parse::<usize>().ok());
    pages.unwrap_or(0) * rustix::param::page_size()
}
