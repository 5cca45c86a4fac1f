//! A file that says what this worker is doing, for tests that kill it at a chosen moment: its folder is in
//! SALAMANDER_PHASES.

use std::fs::File;
use std::os::unix::fs::FileExt;

use salamander_core::elastic::Work;

/// The file, if one is wanted.
#[derive(Debug, Default)]
pub(crate) struct Phases(Option<File>);

impl Phases {
    pub(crate) fn open() -> Self {
        let file = std::env::var_os("SALAMANDER_PHASES").and_then(|folder| {
            let name = format!("phase-{}", std::process::id());
            File::create(std::path::Path::new(&folder).join(name)).ok()
        });
        Self(file)
    }

    pub(crate) fn note(&self, work: Work) {
        let Some(file) = &self.0 else { return };
        let text = match work {
            Work::Idle => "idle      \n",
            Work::Computing => "computing \n",
            Work::Exchanging => "exchanging\n",
        };
        // A test that reads nothing fails by itself.
        let _ = file.write_all_at(text.as_bytes(), 0);
    }
}
