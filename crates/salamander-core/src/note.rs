//! What a master tells people: a sentence, and what it is about for programs, which read no sentences.

use crate::elastic::{Generation, WorkerId};

/// Something that people may want to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// The sentence.
    pub text: String,
    /// What it is about, where programs want to know of it.
    pub topic: Option<NoteTopic>,
}

impl Note {
    /// A sentence about something that programs want to know of.
    ///
    /// ```
    /// use salamander_core::elastic::WorkerId;
    /// use salamander_core::note::{Note, NoteTopic};
    ///
    /// let told = Note::about(NoteTopic::WorkerReplaced(WorkerId(7)), "worker 7 replaced: it hangs");
    /// assert!(Note::from("3 workers wanted").topic.is_none() && told.topic.is_some());
    /// ```
    pub fn about(topic: NoteTopic, text: impl Into<String>) -> Self {
        Self { text: text.into(), topic: Some(topic) }
    }
}

impl From<String> for Note {
    fn from(text: String) -> Self {
        Self { text, topic: None }
    }
}

impl From<&str> for Note {
    fn from(text: &str) -> Self {
        text.to_string().into()
    }
}

/// What a note is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoteTopic {
    /// A worker is not let in.
    WorkerRefused(WorkerId),
    /// A worker takes part no more.
    WorkerDropped(WorkerId),
    /// The process of a worker is ended, so that another one takes its place.
    WorkerReplaced(WorkerId),
    /// The same of a process that no worker was heard from, by its slot.
    ProcessReplaced(u32),
    /// The parameter server of this seat wants to leave.
    ServerLeaves(u32),
    /// This generation began with a checkpoint, so that steps after it are done again.
    WentBack(Generation),
    /// The checkpoint with this id counts.
    CheckpointKept(String),
}
