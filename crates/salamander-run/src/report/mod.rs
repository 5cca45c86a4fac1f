//! Says how good a classifier is, to people: a table per class and a picture of its confusions.
//!
//! Both start from the same confusion counts, row-major with the truth as rows and the prediction
//! as columns, so a count of class `t` predicted as `p` is at `t * classes + p`.

mod confusion;
mod labels;
mod table;

pub use confusion::confusion_svg;
pub use table::{ClassReport, ClassRow};
