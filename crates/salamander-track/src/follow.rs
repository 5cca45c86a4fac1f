//! Follows a run's metrics file: what is new, and when it has begun again.
//!
//! The file is appended to. When a run goes back to a checkpoint, the lines after it are cut off by putting another
//! file in its place; whoever follows reads that one from its beginning.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use crate::point::LoggedPoint;

/// Bytes that are read at a time.
const PIECE: u64 = 1 << 20;
/// A line beyond this is none of ours, and is passed over.
const LONGEST_LINE: usize = 16 << 20;

/// What was found.
#[derive(Clone, Debug, PartialEq)]
pub enum Found {
    /// The points that follow are those from the run's beginning.
    FromTheBeginning,
    /// The next point.
    Point(LoggedPoint),
}

/// A metrics file and how far it was read.
#[derive(Debug)]
pub struct Follower {
    path: PathBuf,
    open: Option<Open>,
}

#[derive(Debug)]
struct Open {
    file: File,
    read: u64,
    /// When the file was written last, for lines that do not tell their time.
    modified: f64,
    lines: Lines,
}

impl Follower {
    /// Of a file that need not be there yet.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), open: None }
    }

    /// What has come since the last time, at most about a megabyte of it; nothing when all was read.
    pub fn poll(&mut self) -> io::Result<Vec<Found>> {
        let mut found = Vec::new();
        if !self.is_current()? {
            match self.begin() {
                Ok(()) => found.push(Found::FromTheBeginning),
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(found),
                Err(error) => return Err(error),
            }
        }
        let Some(open) = &mut self.open else { return Ok(found) };
        let mut bytes = Vec::new();
        open.read += (&open.file).take(PIECE).read_to_end(&mut bytes)? as u64;
        let modified = open.modified;
        open.lines.feed(&bytes, |line| {
            let point = std::str::from_utf8(line).ok().and_then(LoggedPoint::parse);
            found.extend(point.map(|point| {
                let time = point.time.or(Some(modified));
                Found::Point(LoggedPoint { time, ..point })
            }));
        });
        Ok(found)
    }

    /// Whether the file that is open is the one of this name, and has not become shorter.
    fn is_current(&self) -> io::Result<bool> {
        let Some(open) = &self.open else { return Ok(false) };
        let named = match fs::metadata(&self.path) {
            Ok(named) => named,
            // Between two files, or the run was deleted: there is nothing to begin with.
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(true),
            Err(error) => return Err(error),
        };
        let own = open.file.metadata()?;
        Ok((own.dev(), own.ino()) == (named.dev(), named.ino()) && named.len() >= open.read)
    }

    fn begin(&mut self) -> io::Result<()> {
        let file = File::open(&self.path)?;
        let modified = modified(&file).unwrap_or(0.0);
        self.open = Some(Open { file, read: 0, modified, lines: Lines::default() });
        Ok(())
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

fn modified(file: &File) -> Option<f64> {
    let time = file.metadata().ok()?.modified().ok()?;
    Some(time.duration_since(UNIX_EPOCH).ok()?.as_secs_f64())
}

/// Cuts bytes that come in pieces into lines.
#[derive(Debug, Default)]
struct Lines {
    rest: Vec<u8>,
    /// Whether the line that goes on is too long to be kept.
    too_long: bool,
}

impl Lines {
    fn feed(&mut self, bytes: &[u8], mut each: impl FnMut(&[u8])) {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            match piece.strip_suffix(b"\n") {
                Some(end) => {
                    if !std::mem::take(&mut self.too_long) {
                        self.rest.extend_from_slice(end);
                        each(&self.rest);
                    }
                    self.rest.clear();
                }
                None if self.too_long => {}
                None => {
                    self.rest.extend_from_slice(piece);
                    if self.rest.len() > LONGEST_LINE {
                        self.too_long = true;
                        self.rest = Vec::new();
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use proptest::prelude::*;
    use salamander_files::{Durability, replace};

    use super::*;

    fn line(step: u64) -> String {
        format!("{{\"kind\":\"step\",\"steps\":{step},\"time\":1.5,\"loss\":0.5}}\n")
    }

    fn steps(follower: &mut Follower) -> Vec<Option<u64>> {
        let step = |found: &Found| match found {
            Found::FromTheBeginning => None,
            Found::Point(point) => Some(point.step),
        };
        follower.poll().expect("read").iter().map(step).collect()
    }

    #[test]
    fn a_file_is_followed_and_begun_again_when_it_was_cut() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("metrics.jsonl");
        let mut follower = Follower::new(&path);
        assert_eq!(steps(&mut follower), []);
        let mut file = fs::OpenOptions::new().create(true).append(true).open(&path).expect("made");
        write!(file, "{}{}", line(1), &line(2)[..9]).expect("written");
        assert_eq!(steps(&mut follower), [None, Some(1)]);
        write!(file, "{}{}", &line(2)[9..], line(3)).expect("written");
        assert_eq!(steps(&mut follower), [Some(2), Some(3)]);
        assert_eq!(steps(&mut follower), []);
        replace(&path, line(1).as_bytes(), Durability::Unsynced).expect("cut");
        assert_eq!(steps(&mut follower), [None, Some(1)]);
        fs::remove_file(&path).expect("gone");
        assert_eq!(steps(&mut follower), []);
        fs::write(&path, line(7)).expect("written");
        assert_eq!(steps(&mut follower), [None, Some(7)]);
    }

    #[test]
    fn lines_that_are_too_long_are_passed_over() {
        let mut lines = Lines::default();
        let mut seen = Vec::new();
        let long = vec![b'x'; LONGEST_LINE];
        for bytes in [&b"a\n"[..], &long, &b"yy"[..], &long, &b"\nb\n"[..]] {
            lines.feed(bytes, |line| seen.push(line.to_vec()));
        }
        assert_eq!(seen, [b"a".to_vec(), b"b".to_vec()]);
    }

    proptest! {
        #[test]
        fn any_cut_into_pieces_gives_the_same_lines(
            text in "[a\n]{0,60}",
            cuts in proptest::collection::vec(0usize..60, 0..8),
        ) {
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(text.len())).collect();
            cuts.sort_unstable();
            let (mut lines, mut seen, mut from) = (Lines::default(), Vec::new(), 0);
            for to in cuts.into_iter().chain([text.len()]) {
                lines.feed(&text.as_bytes()[from..to], |line| seen.push(line.to_vec()));
                from = to;
            }
            let whole = text.rfind('\n').map_or("", |end| &text[..end]);
            let expected: Vec<Vec<u8>> = match text.contains('\n') {
                true => whole.split('\n').map(|line| line.as_bytes().to_vec()).collect(),
                false => Vec::new(),
            };
            prop_assert_eq!(seen, expected);
        }
    }
}
