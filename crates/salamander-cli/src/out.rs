//! Everything that the program prints, written in one place: whoever reads it may go away, as `head` does.

use std::fmt::{self, Arguments, Display};
use std::io::{self, ErrorKind, Write};

/// Prints a line to standard output, for `?`: a reader that has gone away ends the command, without a word and with
/// success, because it has had what it wanted.
macro_rules! outln {
    () => { $crate::out::line(format_args!("")) };
    ($($text:tt)*) => { $crate::out::line(format_args!($($text)*)) };
}

/// Prints a line to standard error. Nobody can be told if that fails, and it is no reason to end anything.
macro_rules! errln {
    ($($text:tt)*) => { $crate::out::Out::Stderr.line(&format!($($text)*)) };
}

/// Where text for people goes: with `--json`, standard output belongs to programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Out {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

impl Out {
    /// Prints a line; a closed pipe is no reason to end a training.
    pub(crate) fn line(self, text: &str) {
        let _ = match self {
            Out::Stdout => writeln!(io::stdout(), "{text}"),
            Out::Stderr => writeln!(io::stderr(), "{text}"),
        };
    }
}

/// Why standard output cannot be written to.
#[derive(Debug)]
pub(crate) enum Error {
    /// Nobody reads it any more.
    Closed,
    /// For example a full disk.
    Failed(io::Error),
}

impl Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Closed => f.write_str("nobody reads standard output any more"),
            Error::Failed(cause) => write!(f, "cannot write to standard output: {cause}"),
        }
    }
}

impl std::error::Error for Error {}

/// Prints a line to standard output; see [`outln`].
pub(crate) fn line(text: Arguments<'_>) -> Result<(), Error> {
    write_to(&mut io::stdout().lock(), format_args!("{text}\n"))
}

/// Prints text to standard output as it is.
pub(crate) fn text(text: &str) -> Result<(), Error> {
    write_to(&mut io::stdout().lock(), format_args!("{text}"))
}

/// Standard output for what writes by itself. That nobody reads it any more is known again by [`is_closed`].
pub(crate) struct PipedStdout;

impl Write for PipedStdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        io::stdout().write(bytes).map_err(marked)
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stdout().flush().map_err(marked)
    }
}

/// A connection may break as a pipe does: what is about standard output says so.
fn marked(error: io::Error) -> io::Error {
    match error.kind() {
        ErrorKind::BrokenPipe => io::Error::new(ErrorKind::BrokenPipe, Error::Closed),
        _ => error,
    }
}

/// Whether a command ended only because nobody reads what it prints.
pub(crate) fn is_closed(error: &anyhow::Error) -> bool {
    let by_run = match error.downcast_ref::<salamander_run::Error>() {
        Some(salamander_run::Error::System { cause, .. }) => cause.get_ref(),
        _ => None,
    };
    let by_run = by_run.and_then(|cause| cause.downcast_ref::<Error>());
    matches!(error.downcast_ref::<Error>().or(by_run), Some(Error::Closed))
}

fn write_to(out: &mut dyn Write, text: Arguments<'_>) -> Result<(), Error> {
    // Flushed, so that an error is told here and not swallowed at the end of the program.
    out.write_fmt(text).and_then(|()| out.flush()).map_err(|error| match error.kind() {
        ErrorKind::BrokenPipe => Error::Closed,
        _ => Error::Failed(error),
    })
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;

    use super::*;

    #[test]
    fn a_closed_pipe_is_told_from_other_failures() {
        let (reader, mut writer) = io::pipe().expect("a pipe");
        write_to(&mut writer, format_args!("read\n")).expect("the reader is there");
        drop(reader);
        let error = write_to(&mut writer, format_args!("unread\n")).expect_err("nobody reads");
        assert!(is_closed(&anyhow::Error::new(error).context("while showing something")));
        let system = |cause| salamander_run::Error::System { what: "cannot write".into(), cause };
        assert!(is_closed(&system(marked(ErrorKind::BrokenPipe.into())).into()));
        assert!(!is_closed(&system(ErrorKind::BrokenPipe.into()).into()), "a connection");

        let mut full = OpenOptions::new().write(true).open("/dev/full").expect("a full device");
        let error = write_to(&mut full, format_args!("text\n")).expect_err("it is full");
        assert!(error.to_string().starts_with("cannot write to standard output: "), "{error}");
        assert!(!is_closed(&error.into()));
    }
}
