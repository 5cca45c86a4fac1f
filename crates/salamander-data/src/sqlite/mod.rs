//! Tables of SQLite databases; `table` reads one.

#[cfg(feature = "sqlite")]
mod table;

use crate::format::Definition;

pub(crate) static FORMAT: Definition = Definition {
    endings: &["sqlite", "sqlite3", "db"],
    begins: |start| start.starts_with(b"SQLite format 3\0"),
    #[cfg(feature = "sqlite")]
    open: Some(table::open),
    ..Definition::named("sqlite")
};
