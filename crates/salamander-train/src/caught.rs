//! Panics of a model's own code as errors that name the model, the phase and the layers: the tensor library panics
//! where shapes do not fit.

use std::cell::{Cell, RefCell};
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

use burn::tensor::Device;
use salamander_kernels::ops::is_gpu;

use crate::Error;
use crate::params::{self, ParamInfo};
use crate::threads::panic_text;
use crate::trial::Trial;

thread_local! {
    /// Whether this thread turns panics into errors, so that none is printed.
    static QUIET: Cell<bool> = const { Cell::new(false) };
    /// Where the last of them was.
    static PLACE: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Does something with a model; `phase` names it in the error that a panic becomes, and the layers are those whose
/// shapes such an error may show.
pub(crate) fn attempt<T: Trial, R>(
    phase: &str,
    layers: &[ParamInfo],
    work: impl FnOnce() -> R,
) -> Result<R, Error> {
    quietly(work).map_err(|panicked| panicked.error::<T>(phase, layers))
}

/// The same in the middle of a run, where `phase` and the layers are only made for an error. On a GPU a panic stays
/// one: what a model does wrong is found before the run, on the host, so that it is rather the device that fails, and
/// another worker takes this one's place.
pub(crate) fn attempt_in_run<T: Trial, R>(
    model: &T,
    device: &Device,
    phase: impl FnOnce() -> String,
    work: impl FnOnce() -> R,
) -> Result<R, Error> {
    if is_gpu(device) {
        return Ok(work());
    }
    quietly(work).map_err(|panicked| panicked.error::<T>(&phase(), &params::list(model)))
}

/// What a panic has said.
struct Panicked {
    text: String,
    place: Option<String>,
}

impl Panicked {
    fn error<T: Trial>(&self, phase: &str, layers: &[ParamInfo]) -> Error {
        let Self { text, place } = self;
        let place = place.as_ref().map(|place| format!(" (at {place})")).unwrap_or_default();
        let reason = format!("{phase}: {}{place}{}", one_line(text), suspects(text, layers));
        Error::model::<T>(reason)
    }
}

fn quietly<R>(work: impl FnOnce() -> R) -> Result<R, Panicked> {
    be_quiet_on_demand();
    let before = QUIET.replace(true);
    let done = panic::catch_unwind(AssertUnwindSafe(work));
    QUIET.set(before);
    done.map_err(|payload| {
        let text = panic_text(&*payload).unwrap_or("it panicked without a message").to_string();
        Panicked { text, place: PLACE.take() }
    })
}

/// Panics of other threads, and of this one at other times, are printed as ever.
fn be_quiet_on_demand() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| match QUIET.get() {
            true => {
                PLACE.set(info.location().map(ToString::to_string).filter(|place| is_own(place)))
            }
            false => before(info),
        }));
    });
}

/// A line within a library tells the user nothing.
fn is_own(place: &str) -> bool {
    !["/.cargo/", "/rustc/", "/rustlib/"].iter().any(|library| place.contains(library))
}

/// The text without the frame that the tensor library puts around it.
fn one_line(text: &str) -> String {
    let lines = text.lines().map(str::trim);
    let told = lines.filter(|line| !line.is_empty() && !line.starts_with("==="));
    told.collect::<Vec<_>>().join(" ")
}

/// The parameters whose shapes are in the text, or that have a dimension which it expects: "expected 3, got 2", or
/// "right: 3" of a product whose right side is a weight.
fn suspects(text: &str, layers: &[ParamInfo]) -> String {
    let without_spaces = |text: &str| text.replace(' ', "");
    let number_after = |word: &str| -> Option<usize> {
        let (_, rest) = text.split_once(word)?;
        rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
    };
    let expected = number_after("expected ").or_else(|| number_after("right: "));
    let text = without_spaces(text);
    let is_meant = |layer: &&ParamInfo| {
        let is_expected = expected.is_some_and(|size| layer.shape.contains(&size));
        let is_shown = || text.contains(&without_spaces(&format!("{:?}", layer.shape)));
        layer.shape.len() > 1 && (is_expected || is_shown())
    };
    let found: Vec<String> = layers
        .iter()
        .filter(is_meant)
        .map(|layer| format!("{} {:?}", layer.path, layer.shape))
        .collect();
    match found.as_slice() {
        [] => String::new(),
        found => format!("; look at {}", found.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_are_found_by_the_shapes_in_a_message() {
        let layer = |path: &str, shape: &[usize]| ParamInfo {
            path: path.to_string(),
            shape: shape.to_vec(),
            trainable: true,
        };
        let layers = [layer("fc1.weight", &[784, 32]), layer("fc2.weight", &[100, 10])];
        let text = "=== Tensor Operation Error ===\n  Operation: 'Matmul'\n  Reason:\n    1. Lhs shape \
                    [1, 32], rhs shape [100,10].\n";
        assert_eq!(suspects(text, &layers), "; look at fc2.weight [100, 10]");
        assert_eq!(suspects("index out of bounds", &layers), "");
        let linear = "axis 1 expected 784, got 2 (dims [1, 2])";
        assert_eq!(suspects(linear, &layers), "; look at fc1.weight [784, 32]");
        let product = "matmul: inner dimensions must match\n  left: 6\n right: 784";
        assert_eq!(suspects(product, &layers), "; look at fc1.weight [784, 32]");
        let expected = "Operation: 'Matmul' Reason: 1. Lhs shape [1, 32], rhs shape [100,10].";
        assert_eq!(one_line(text), expected);
    }

    #[test]
    fn lines_of_libraries_are_not_shown() {
        assert!(is_own("src/model.rs:12:5"));
        assert!(!is_own("../.cargo/registry/src/x/burn/src/lib.rs:1:1"));
    }
}
