//! How fast tables are beside the memory's own speed, in one run.

fn main() {}
