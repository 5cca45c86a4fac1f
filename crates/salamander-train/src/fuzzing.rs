//! Doors for the fuzz targets into decoders that are private, so that these can stay private for all others.

use std::path::Path;

use crate::checkpoint::{Counted, Manifest, parse_manifest, unpack};

/// Unpacks the state that a worker sends to one that joins; the names of the parameters in it.
pub fn unpack_state(bytes: &[u8]) -> Result<Vec<String>, String> {
    unpack(bytes).map(|state| state.model.into_keys().collect())
}

/// Reads the manifest of a checkpoint.
pub fn manifest(bytes: &[u8]) -> Result<Manifest, String> {
    parse_manifest(Path::new("fuzzed"), bytes).map_err(|error| error.to_string())
}

/// Reads the list of checkpoints that count.
pub fn counted(bytes: &[u8]) -> Result<Counted, String> {
    Counted::parse(bytes)
}

#[cfg(test)]
mod tests {
    use salamander_core::environment;
    use salamander_files::mutated::try_mutations;

    use super::*;
    use crate::checkpoint::{Snapshot, pack};

    /// What mutations of the files in a folder are given to.
    fn tried(seeds: &Path, what: &str, entry: impl FnMut(&[u8])) {
        let seconds = std::env::var(environment::FUZZ_SECONDS).ok();
        let executions = try_mutations(seeds, seconds.as_deref(), entry).expect("there are seeds");
        println!("{what}: {executions} executions");
    }

    #[test]
    fn no_state_breaks_who_receives_it() {
        let seeds = tempfile::tempdir().expect("a folder");
        let state = pack(&Snapshot::sample(3)).expect("packed");
        std::fs::write(seeds.path().join("state"), state).expect("written");
        let mut understood = 0;
        tried(seeds.path(), "states", |bytes| {
            if let Ok(names) = unpack_state(bytes) {
                assert!(names.len() <= bytes.len(), "every parameter has bytes");
                understood += 1;
            }
        });
        assert!(understood > 0, "a right one is understood");
    }

    #[test]
    fn no_manifest_and_no_list_break_who_reads_them() {
        let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds/manifest");
        let mut understood = 0;
        tried(&seeds, "manifests and lists", |bytes| {
            if let Ok(read) = manifest(bytes) {
                let text = serde_json::to_string(&read).expect("JSON");
                // As text, since a metric may be no number.
                let again = manifest(text.as_bytes()).expect("read back");
                assert_eq!(serde_json::to_string(&again).expect("JSON"), text);
                understood += 1;
            }
            if let Ok(list) = counted(bytes) {
                assert_eq!(counted(&list.to_bytes()), Ok(list), "a list is read back");
                understood += 1;
            }
        });
        assert!(understood > 0, "right ones are understood");
    }
}
