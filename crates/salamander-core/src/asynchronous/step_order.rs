//! Which step the rows of a server are at in synchronous training: gradients are staged for it, and it is completed
//! once, whoever asks for that and how often.

use super::Fence;
use crate::progress::StepCount;

/// A request of another step than the one that the rows are at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("out of step: the server is after {current} steps, and the request is for {asked}")]
pub struct OutOfStep {
    /// Steps that the rows here are after.
    pub current: StepCount,
    /// Those that were asked for.
    pub asked: StepCount,
}

/// The steps of a server's rows, in their order.
#[derive(Clone, Copy, Debug, Default)]
pub struct StepOrder {
    done: StepCount,
    has_staged: bool,
    without: Option<Fence>,
}

impl StepOrder {
    /// Rows after so many steps.
    pub fn at(done: StepCount) -> Self {
        Self { done, ..Self::default() }
    }

    #[doc(hidden)]
    #[must_use]
    pub fn without(self, without: Option<Fence>) -> Self {
        Self { without, ..self }
    }

    /// Steps that were completed, or are being completed.
    pub fn done(&self) -> StepCount {
        self.done
    }

    /// Whether something is staged for the step after them.
    pub fn has_staged(&self) -> bool {
        self.has_staged
    }

    /// Whether gradients for the step after so many are to be kept. Those of a step that is complete are acknowledged
    /// and ignored.
    pub fn accepts(&self, asked: StepCount) -> Result<bool, OutOfStep> {
        match asked > self.done {
            true => Err(OutOfStep { current: self.done, asked }),
            false => Ok(asked == self.done),
        }
    }

    /// Gradients were staged for the current step.
    pub fn stage(&mut self) {
        self.has_staged = true;
    }

    /// What is staged is dropped: whoever staged it computes the step again.
    pub fn unstage(&mut self) {
        self.has_staged = false;
    }

    /// The rows are wanted as they are after so many steps. Whether what is staged is to be applied for that: only one
    /// step can be completed, and only once.
    pub fn advance(&mut self, to: StepCount) -> Result<bool, OutOfStep> {
        let is_fenced = self.without != Some(Fence::Step);
        if to == self.done && is_fenced {
            return Ok(false);
        }
        if to.0.checked_sub(1) != Some(self.done.0) && is_fenced {
            return Err(OutOfStep { current: self.done, asked: to });
        }
        (self.done, self.has_staged) = (to, false);
        Ok(true)
    }

    /// Only rows after exactly so many steps will do.
    pub fn must_be(&self, asked: StepCount) -> Result<(), OutOfStep> {
        match asked == self.done {
            true => Ok(()),
            false => Err(OutOfStep { current: self.done, asked }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_completed_once_and_none_is_left_out() {
        let mut steps = StepOrder::at(StepCount(4));
        assert_eq!(steps.accepts(StepCount(4)), Ok(true));
        steps.stage();
        assert_eq!(steps.advance(StepCount(4)), Ok(false), "it is there already");
        assert!(steps.has_staged());
        assert_eq!(
            steps.advance(StepCount(6)),
            Err(OutOfStep { current: StepCount(4), asked: StepCount(6) })
        );
        assert_eq!(
            steps.advance(StepCount(3)),
            Err(OutOfStep { current: StepCount(4), asked: StepCount(3) })
        );
        assert_eq!(steps.advance(StepCount(5)), Ok(true));
        assert!(!steps.has_staged());
        assert_eq!(steps.advance(StepCount(5)), Ok(false));
        assert_eq!((steps.done(), steps.must_be(StepCount(5)).is_ok()), (StepCount(5), true));
    }

    #[test]
    fn gradients_of_earlier_steps_are_ignored_and_of_later_ones_refused() {
        let steps = StepOrder::at(StepCount(4));
        assert_eq!(steps.accepts(StepCount(3)), Ok(false));
        assert_eq!(
            steps.accepts(StepCount(5)),
            Err(OutOfStep { current: StepCount(4), asked: StepCount(5) })
        );
        assert!(steps.must_be(StepCount(3)).is_err());
    }
}
