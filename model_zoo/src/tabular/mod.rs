//! Small tables that many people have met first: flowers by their petals, and hearts by what a doctor measures.

pub mod heart;
pub mod iris;
