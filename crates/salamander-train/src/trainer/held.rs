//! The model of a trainer, which can be handed over for a change and comes back: a step in place needs it to be nobody
//! else's meanwhile, and modules are changed by value.

use std::ops::Deref;

/// A value that is always there, but while it is changed.
#[derive(Debug)]
pub(super) struct Held<T>(Option<T>);

impl<T> Held<T> {
    pub(super) fn new(value: T) -> Self {
        Self(Some(value))
    }

    pub(super) fn change(&mut self, change: impl FnOnce(T) -> T) {
        self.0 = self.0.take().map(change);
    }
}

impl<T> Deref for Held<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_ref().expect("only `change` takes the value, and puts another in its place")
    }
}
