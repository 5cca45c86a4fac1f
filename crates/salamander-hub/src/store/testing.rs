//! Every test of the store is run on all kinds of it.

use super::{Store, StoreAccess, StoreUrl};

#[cfg(feature = "postgres")]
#[path = "../../tests/support/postgres.rs"]
mod postgres;

/// Runs a test on a new store of each kind.
pub(crate) fn for_each_store(test: impl Fn(Store, &StoreUrl)) {
    let folder = tempfile::tempdir().expect("a folder");
    let url = StoreUrl::Sqlite(folder.path().join("hub.sqlite"));
    test(Store::at(&url, StoreAccess::Alone).expect("made"), &url);
    #[cfg(feature = "postgres")]
    {
        let url = postgres::server().database().parse().expect("an address");
        test(Store::at(&url, StoreAccess::Alone).expect("made"), &url);
    }
}
