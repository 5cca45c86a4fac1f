//! Turns a panic of a decoder that others wrote into an error, because one damaged file must not end a
//! worker that could report it and go on.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs `decode`; a panic becomes its message.
///
/// What `decode` has changed when it panics is dropped by the callers, so nothing half-changed is seen.
pub(crate) fn guard<T>(decode: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(decode)).map_err(|panic| message(panic.as_ref()))
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("the decoder gave up: {}", text.unwrap_or("unknown reason"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_its_message() {
        assert_eq!(guard(|| 5), Ok(5));
        let empty: &[u8] = std::hint::black_box(&[]);
        let message = guard(|| empty[0]).unwrap_err();
        assert!(message.starts_with("the decoder gave up: index out of bounds"), "{message}");
        assert_eq!(guard(|| panic!("no")), Err::<(), _>("the decoder gave up: no".into()));
    }
}
