//! Pre-processing on DataFusion, with the words of Twister2: rows from files or functions, functions on them by name,
//! and shards that are complete or absent. Behind the feature `flow`.
//!
//! ```
//! use salamander_flow::flow::*;
//! use serde::{Deserialize, Serialize};
//!
//! #[derive(Serialize, Deserialize)]
//! struct Person { name: String, age: f32 }
//!
//! /// A flow is a function from a context to rows.
//! fn adults(cx: &FlowContext) -> Result<TSet, Error> {
//!     let oldest: f32 = cx.parameter("oldest", 100.0)?;
//!     cx.input()?.filter_rows("adults", |person: &Person| person.age >= 18.0)?.map(
//!         "scale",
//!         move |person: Person| match person.age {
//!             age if age > oldest => Err(format!("{age} is too old")),
//!             age => Ok(Person { age: age / oldest, ..person }),
//!         },
//!     )
//! }
//!
//! # let folder = tempfile::tempdir()?;
//! # let (people, out) = (folder.path().join("people.csv"), folder.path().join("adults"));
//! std::fs::write(&people, "name,age\nada,36\nbob,7\nmethuselah,969\n")?;
//! let flows = salamander_flow::flows![adults];
//! let job = FlowJob::named("adults", &[&people.display().to_string()]);
//! let summary = job.run_here(&flows, &out)?;
//! // One is too young, and one was kept aside with the reason.
//! assert_eq!((summary.rows, summary.bad_rows), (1, 1));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Layout
//! - [`FlowContext`]: sources, SQL and parameters; `records`: files of every format; `generated`: rows from a function
//! - [`TSet`], [`KeyedTSet`]: the operations; `batches`: the node of a plan for a function; `typed`: rows as structs;
//!   `cells`: rows of ours and arrays; [`BadRow`]: what a function refuses
//! - [`Flows`]: the flows of a program by name; [`FlowShape`]: whether one is made of tasks
//! - [`FlowJob`]: a flow with input and output, which a [`TaskRunner`] runs in tasks and `whole` in one piece;
//!   `stages`: flows whose rows meet, in tasks; [`sink`]: shards, their order, their parts, and the manifest;
//!   `streamed`: partitions that are trained on while the flow runs

mod bad_rows;
mod batches;
mod cells;
mod context;
mod error;
mod generated;
mod job;
mod records;
mod registry;
mod shape;
pub mod sink;
mod stages;
mod streamed;
mod tset;
mod typed;
mod whole;

pub use bad_rows::BadRow;
pub use context::{EngineSettings, FlowContext};
/// Expressions, for `filter`, `select` and `reduce`.
pub use datafusion::functions_aggregate::expr_fn as aggregates;
pub use datafusion::logical_expr::{Expr, col, lit};
pub use error::Error;
pub use job::{FlowCall, FlowJob, TaskRunner, TaskThreads};
pub use records::Records;
pub use registry::{BuildFlow, Flows};
pub use shape::FlowShape;
pub use sink::{FlowStage, FlowSummary, SinkSettings, TaskReport};
pub use stages::ShuffleStage;
pub use tset::{Join, KeyedTSet, TSet};
pub use typed::FlowRow;
