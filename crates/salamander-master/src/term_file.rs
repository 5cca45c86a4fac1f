//! A term is taken by making a file, which only one master can: on folders that several machines share, locks may not
//! reach from one to the other.

use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use salamander_core::elastic::Term;

/// How the names of these files begin.
const TERM: &str = ".term-";

/// The term of a master, which has a file in the run's folder.
#[derive(Debug)]
pub(crate) struct TermFile {
    folder: PathBuf,
    pub(crate) term: Term,
}

impl TermFile {
    /// Takes the next term that nobody has.
    pub(crate) fn take(folder: &Path, before: Term) -> io::Result<Self> {
        let mut term = before.next();
        loop {
            match OpenOptions::new().write(true).create_new(true).open(path(folder, term)) {
                Ok(file) => {
                    file.sync_all()?;
                    break;
                }
                // Its master may be alive, or have died before it wrote anything.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => term = term.next(),
                Err(error) => return Err(error),
            }
        }
        let taken = Self { folder: folder.to_path_buf(), term };
        for number in taken.others()?.into_iter().filter(|number| *number < before) {
            // One too many does no harm.
            let _ = fs::remove_file(path(folder, number));
        }
        Ok(taken)
    }

    /// A later term that was taken: its master leads.
    pub(crate) fn later(&self) -> io::Result<Option<Term>> {
        Ok(self.others()?.into_iter().filter(|other| *other > self.term).max())
    }

    fn others(&self) -> io::Result<Vec<Term>> {
        let mut terms = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            let name = entry?.file_name();
            let number = name.to_str().and_then(|name| name.strip_prefix(TERM));
            terms.extend(number.and_then(|number| number.parse().ok()).map(Term));
        }
        Ok(terms)
    }
}

fn path(folder: &Path, term: Term) -> PathBuf {
    folder.join(format!("{TERM}{}", term.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_term_is_taken_once_and_the_later_one_leads() {
        let folder = tempfile::tempdir().expect("a folder");
        let take = |before| TermFile::take(folder.path(), Term(before)).expect("taken");
        let first = take(0);
        assert_eq!((first.term, first.later().expect("read")), (Term(1), None));
        // Both have read the same journal.
        let terms: Vec<TermFile> = (0..4)
            .map(|_| {
                let folder = folder.path().to_path_buf();
                std::thread::spawn(move || TermFile::take(&folder, Term(1)).expect("taken"))
            })
            .collect::<Vec<_>>()
            .into_iter()
            .map(|thread| thread.join().expect("no panic"))
            .collect();
        let mut numbers: Vec<u32> = terms.iter().map(|taken| taken.term.0).collect();
        numbers.sort_unstable();
        assert_eq!(numbers, [2, 3, 4, 5]);
        assert_eq!(first.later().expect("read"), Some(Term(5)));
        let leading = terms.iter().filter(|taken| taken.later().expect("read").is_none());
        assert_eq!(leading.count(), 1);
        let next = take(5);
        assert_eq!(next.term, Term(6));
        assert_eq!(fs::read_dir(folder.path()).expect("there").count(), 2, "old ones are removed");
    }
}
