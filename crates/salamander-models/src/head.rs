//! What becomes of a classifier's last layers when weights come from a file.

/// What becomes of the head of a classifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Head {
    /// It is in the file: a classifier that was trained.
    There,
    /// It is taken from the file if it is there, else it stays as it is: fine-tuning.
    IfThere,
    /// It stays as it is, whatever the file has: fine-tuning for other classes.
    Fresh,
}
