//! YAML with places: every value remembers its line, so that a mistake is shown where it was made.
//!
//! The tree is ours, rather than a serde crate's, because serde reports an unknown field without
//! saying where it stands or what was probably meant.

mod de;
mod emit;
mod error;
mod node;
mod parse;

pub use de::from_node;
pub use emit::to_yaml;
pub use error::{Error, nearest};
pub use node::{Key, Node, SourcePosition, Value};
pub use parse::parse;
