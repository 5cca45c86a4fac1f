//! Which master a run's journal in a store belongs to. Each put carries its master's signature and the condition that
//! the object is still what that master saw last, so a journal is only ever followed by one that was made from it: a
//! master that another has taken over from cannot put anything any more, and two that read the same journal cannot both
//! go on from it.

use salamander_master::journal::{sign, signature};

/// An object in a store, as its conditions see it.
pub(super) trait StoredObject {
    /// What versions are told apart by.
    type Version: Clone;
    /// What goes wrong on the way.
    type Error;
    /// Its content and version, if it is there.
    #[expect(
        clippy::type_complexity,
        reason = "a type of its own would need the trait's own types as parameters"
    )]
    fn read(&self) -> Result<Option<(Vec<u8>, Self::Version)>, Self::Error>;
    /// Puts it, if it is still what was seen. None: it is not, or an earlier try of the same has put it.
    fn put_if(
        &self,
        bytes: Vec<u8>,
        seen: Option<&Self::Version>,
    ) -> Result<Option<Self::Version>, Self::Error>;
}

/// Why an object was not put.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NotPut<E> {
    /// It is somebody else's by now.
    Lost,
    /// The store does not answer; whether it was put is not known.
    Unknown(E),
}

impl<E> From<E> for NotPut<E> {
    fn from(error: E) -> Self {
        NotPut::Unknown(error)
    }
}

/// A master's claim to an object.
#[derive(Clone, Debug)]
pub(super) struct Claim<V> {
    /// Of this master and no other.
    nonce: [u8; 16],
    /// The object as this master saw it last; none if it was not there.
    seen: Option<V>,
}

impl<V: Clone> Claim<V> {
    /// A claim of who goes on from what was seen.
    pub(super) fn new(nonce: [u8; 16], seen: Option<V>) -> Self {
        Self { nonce, seen }
    }

    /// Puts the object, if it is still this master's, or what it went on from.
    pub(super) fn put<O: StoredObject<Version = V>>(
        &mut self,
        object: &O,
        bytes: &[u8],
    ) -> Result<(), NotPut<O::Error>> {
        let signed = sign(bytes, self.nonce);
        loop {
            if let Some(version) = object.put_if(signed.clone(), self.seen.as_ref())? {
                self.seen = Some(version);
                return Ok(());
            }
            // It may be what this master has put itself, and the answer was lost.
            match object.read()? {
                Some((found, version)) if found == signed => {
                    self.seen = Some(version);
                    return Ok(());
                }
                Some((found, version)) if signature(&found) == Some(self.nonce) => {
                    self.seen = Some(version);
                }
                _ => return Err(NotPut::Lost),
            }
        }
    }

    /// Whether the object is still this master's.
    pub(super) fn holds<O: StoredObject<Version = V>>(&self, object: &O) -> Result<bool, O::Error> {
        let found = object.read()?;
        Ok(found.is_some_and(|(found, _)| signature(&found) == Some(self.nonce)))
    }
}

#[cfg(test)]
#[path = "claim_tests.rs"]
mod tests;
