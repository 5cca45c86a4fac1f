//! What the targets share: bytes become a file of a format, and all of it is read.
//!
//! # Layout
//!
//! - `fuzz_targets/` has one file per decoder: the formats of data files through [`read_all`]; and on the bytes
//!   themselves `example`, `yaml`, `experiment`, what a run keeps or passes on (`journal`, `manifest`,
//!   `packed_state`) and what strangers send (`handshake`, `ps_request`, `control`, `serve_request`).

#![cfg(feature = "data")]

use std::path::PathBuf;
use std::sync::{Once, OnceLock};

use salamander_core::experiment::CsvSettings;
use salamander_data::{OpenOptions, Reader, open_indexed};

/// Writes the bytes to a file of this name, opens it as a user would and reads every record. Errors are
/// what damaged bytes should give; a panic, a hang or memory without end is what the fuzzer looks for.
pub fn read_all(name: &str, bytes: &[u8]) {
    read_all_as(name, bytes, CsvSettings::default());
}

/// [`read_all`] with settings for CSV files.
pub fn read_all_as(name: &str, bytes: &[u8], csv: CsvSettings) {
    let path = folder().join(name);
    std::fs::write(&path, bytes).expect("the folder for temporary files can be written");
    let options = OpenOptions { csv, ..OpenOptions::default() };
    if let Ok(reader) = open_indexed(&[path], None, &options) {
        read_shards(reader.as_ref());
    }
}

/// Like [`read_all`], for decoders that others wrote and our guard catches: only a panic that leaves
/// `salamander_data` ends the run, because libFuzzer's hook, which ends it at any panic, is taken away.
pub fn read_all_guarded(name: &str, bytes: &[u8]) {
    static QUIET: Once = Once::new();
    QUIET.call_once(|| std::panic::set_hook(Box::new(|_| {})));
    read_all(name, bytes);
}

/// Writes a file beside the one that [`read_all`] writes, such as the labels of images.
pub fn write_beside(name: &str, bytes: &[u8]) {
    let path = folder().join(name);
    std::fs::write(&path, bytes).expect("the folder for temporary files can be written");
}

/// Reads every shard from its start, and again from its middle, which takes another path in most readers.
fn read_shards(reader: &dyn Reader) {
    let Ok(shards) = reader.shards() else { return };
    for (number, shard) in shards.iter().enumerate() {
        for start in [0, shard.records / 2] {
            let mut due = start;
            let read = reader.read(number, start..shard.records, &mut |record, row| {
                assert_eq!(record, due, "records come in order");
                assert!(
                    row.columns()
                        .all(|(name, value)| row.get(name).is_some() && value.count() < usize::MAX)
                );
                due += 1;
                Ok(())
            });
            if read.is_ok() {
                assert_eq!(due, shard.records.max(start), "a good shard has all its records");
            }
        }
    }
}

/// One folder per process, so that several fuzzers do not write into each other's files.
fn folder() -> &'static PathBuf {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = std::env::temp_dir().join(format!("salamander-fuzz-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("the folder for temporary files can be written");
        folder
    })
}
