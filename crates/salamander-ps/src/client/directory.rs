//! Where servers listen. One that was started again listens elsewhere: whoever hears of it changes
//! the directory, and clients that wait for the server find it there.

use std::sync::{Arc, PoisonError, RwLock};

/// The endpoints of all servers, by number: a handle that is cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Directory(Arc<RwLock<Vec<String>>>);

impl Directory {
    /// A directory of these servers, each as the text of a [`salamander_net::Endpoint`].
    pub fn new(endpoints: Vec<String>) -> Self {
        Self(Arc::new(RwLock::new(endpoints)))
    }

    /// Says where a server listens from now on. A number that no server has is ignored.
    pub fn set(&self, server: usize, endpoint: String) {
        let mut endpoints = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(place) = endpoints.get_mut(server) {
            *place = endpoint;
        }
    }

    /// Where a server listens; nothing for a number that none has.
    pub fn get(&self, server: usize) -> String {
        let endpoints = self.0.read().unwrap_or_else(PoisonError::into_inner);
        endpoints.get(server).cloned().unwrap_or_default()
    }

    /// How many servers there are.
    pub fn len(&self) -> usize {
        self.0.read().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<T: ToString> FromIterator<T> for Directory {
    fn from_iter<I: IntoIterator<Item = T>>(endpoints: I) -> Self {
        Self::new(endpoints.into_iter().map(|endpoint| endpoint.to_string()).collect())
    }
}
