//! Which checkpoints of a distributed run count: those that the master has journaled, in a list beside them. A worker
//! that was dropped may have left others.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use salamander_core::layout::COUNTED;

use super::read_manifest;
use super::store::beginning_with;
use crate::Error;

/// How the line with the list's checksum begins.
const CHECKSUM: &str = "blake3 ";
/// Digits of a step in a name.
const DIGITS: usize = 8;

/// The list. Its last line is a checksum of the others: whoever took a damaged list at its word would remove what
/// counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counted(Vec<String>);

impl Counted {
    /// The list of a folder of checkpoints. None: there is no list, and all of them count.
    pub fn read(folder: &Path) -> Result<Option<Self>, Error> {
        let path = folder.join(COUNTED);
        let bytes = match fs::read(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            bytes => bytes.map_err(Error::io(&path))?,
        };
        let damaged = |reason| Error::Invalid(format!("{}: {reason}", path.display()));
        Self::parse(&bytes).map(Some).map_err(damaged)
    }

    /// The list for its owner, the master: of a damaged one what names a checkpoint that is there, without one what
    /// counts without a list.
    pub fn repaired(folder: &Path) -> Result<Self, Error> {
        let path = folder.join(COUNTED);
        let bytes = match fs::read(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Self::first(folder)),
            bytes => bytes.map_err(Error::io(&path))?,
        };
        Ok(Self::parse(&bytes).unwrap_or_else(|reason| {
            tracing::warn!(path = %path.display(), reason, "what is damaged is left out of it");
            let text = String::from_utf8_lossy(&bytes);
            let there = |name: &&str| is_name(name) && read_manifest(&folder.join(name)).is_ok();
            Self(text.lines().filter(there).map(str::to_string).collect())
        }))
    }

    /// The list that a folder without one begins with: checkpoints of one process, which have no generation in their
    /// names and all count.
    fn first(folder: &Path) -> Self {
        let plain = |name: &String| name.len() == "step-".len() + DIGITS && is_name(name);
        let mut names: Vec<String> = beginning_with("step-", folder).filter(plain).collect();
        names.sort();
        Self(names)
    }

    /// The list in these bytes; those of earlier releases have no checksum.
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        let damaged = || "the list of checkpoints that count is damaged".to_string();
        let text = std::str::from_utf8(bytes).map_err(|_| damaged())?;
        let whole = text.trim_end_matches('\n');
        if whole.is_empty() {
            // Not even an empty list has nothing: what was in it is lost.
            return Err(damaged());
        }
        let (list, last) = whole.rsplit_once('\n').unwrap_or(("", whole));
        let (list, sum) = match last.strip_prefix(CHECKSUM) {
            Some(sum) => (list, Some(sum)),
            None => (text, None),
        };
        let names: Vec<String> = list.lines().map(str::to_string).collect();
        let fits = sum.is_none_or(|sum| sum == checksum(&names));
        if fits && names.iter().all(|name| is_name(name)) {
            Ok(Self(names))
        } else {
            Err(damaged())
        }
    }

    /// Whether a checkpoint counts.
    pub fn has(&self, id: &str) -> bool {
        self.0.iter().any(|name| name == id)
    }

    /// Adds a checkpoint; false if it is there.
    pub fn add(&mut self, id: &str) -> bool {
        let is_new = !self.has(id);
        if is_new {
            self.0.push(id.to_string());
        }
        is_new
    }

    /// What is written.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut text: String = self.0.iter().map(|name| format!("{name}\n")).collect();
        text.push_str(&format!("{CHECKSUM}{}\n", checksum(&self.0)));
        text.into_bytes()
    }
}

fn checksum(names: &[String]) -> String {
    blake3::hash(names.join("\n").as_bytes()).to_hex().to_string()
}

/// `step-00000012`, or with the generation that wrote it.
fn is_name(name: &str) -> bool {
    let rest = name.strip_prefix("step-").unwrap_or_default();
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.');
    rest.as_bytes().first().is_some_and(u8::is_ascii_digit) && rest.bytes().all(is_part)
}

#[cfg(test)]
mod tests {
    use salamander_core::progress::StepCount;

    use super::super::{Snapshot, write};
    use super::*;

    fn list() -> Counted {
        let mut list = Counted::default();
        assert!(list.add("step-00000010") && list.add("step-00000020-g1.2"));
        assert!(!list.add("step-00000010"));
        list
    }

    #[test]
    fn any_flipped_bit_or_lost_end_is_found_or_changes_nothing() {
        let bytes = list().to_bytes();
        assert_eq!(Counted::parse(&bytes), Ok(list()));
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut flipped = bytes.clone();
                flipped[at] ^= 1 << bit;
                let found = Counted::parse(&flipped);
                assert!(found.is_err() || found == Ok(list()), "byte {at}, bit {bit}");
            }
        }
        let empty = Counted::default();
        assert_eq!(Counted::parse(&empty.to_bytes()), Ok(empty));
        assert!(Counted::parse(b"").is_err());
    }

    #[test]
    fn a_list_of_an_earlier_release_and_none_at_all() {
        let old = Counted::parse(b"step-00000010\nstep-00000020-g1.2\n");
        assert_eq!(old, Ok(list()));
        let folder = tempfile::tempdir().expect("a folder");
        assert_eq!(Counted::read(folder.path()).expect("no list"), None);
        for name in ["step-00000004", "step-00000003", "step-00000005-g1.1", "step-x"] {
            fs::create_dir(folder.path().join(name)).expect("made");
        }
        let first = Counted::repaired(folder.path()).expect("read");
        assert_eq!(first.0, ["step-00000003", "step-00000004"]);
    }

    #[test]
    fn a_list_that_cannot_be_read_is_no_absent_one() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::create_dir(folder.path().join(COUNTED)).expect("made");
        assert!(Counted::read(folder.path()).is_err() && Counted::repaired(folder.path()).is_err());
    }

    #[test]
    fn the_master_makes_a_damaged_list_anew_from_what_is_there() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut list = Counted::default();
        for steps in [1, 2, 3] {
            write(folder.path(), &Snapshot::sample(steps), None).expect("written");
            list.add(&super::super::id(StepCount(steps)));
        }
        let mut bytes = list.to_bytes();
        bytes["step-00000001\nstep-0000000".len()] ^= 8;
        fs::write(folder.path().join(COUNTED), &bytes).expect("written");
        assert!(Counted::read(folder.path()).is_err());
        let repaired = Counted::repaired(folder.path()).expect("read");
        assert_eq!(repaired.0, ["step-00000001", "step-00000003"]);
    }
}
