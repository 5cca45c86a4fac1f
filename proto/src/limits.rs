//! Sizes and deadlines of the control plane, the same on both sides.

use std::time::Duration;

/// The longest message. An activation has some hundred bytes per member.
pub const MESSAGE: usize = 4 << 20;
/// The longest report, so that one always fits into a message.
pub const REPORT: usize = 1 << 20;
/// How long a unary call may take.
pub const CALL: Duration = Duration::from_secs(5);
/// How long connecting may take.
pub const CONNECT: Duration = Duration::from_secs(2);
/// How long the first message of a session may take, on both sides.
pub const FIRST_MESSAGE: Duration = Duration::from_secs(5);
/// How often a quiet connection is probed,
pub const KEEP_ALIVE: Duration = Duration::from_secs(5);
/// and how long the answer may take.
pub const KEEP_ALIVE_ANSWER: Duration = Duration::from_secs(10);
/// Messages under way in one direction of a session.
pub const IN_FLIGHT: usize = 64;
/// Messages that a session keeps for a master that is away.
pub const KEPT: usize = 8_192;
