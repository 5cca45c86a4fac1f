//! Which step the rows of a server are at in synchronous training: gradients are staged for it, and it is completed
//! once, whoever asks for that and how often.

use super::Fence;

/// A request of another step than the one that the rows are at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("out of step: the server is at version {current}, and the request is for {asked}")]
pub struct OutOfStep {
    /// The version here.
    pub current: u64,
    /// The version asked for.
    pub asked: u64,
}

/// The steps of a server's rows, in their order.
#[derive(Clone, Copy, Debug, Default)]
pub struct StepOrder {
    version: u64,
    has_staged: bool,
    without: Option<Fence>,
}

impl StepOrder {
    /// Rows after so many steps.
    pub fn at(version: u64) -> Self {
        Self { version, ..Self::default() }
    }

    #[doc(hidden)]
    #[must_use]
    pub fn without(self, without: Option<Fence>) -> Self {
        Self { without, ..self }
    }

    /// Steps that were completed, or are being completed.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Whether something is staged for the step after them.
    pub fn has_staged(&self) -> bool {
        self.has_staged
    }

    /// Whether gradients for the step after so many are to be kept. Those of a step that is complete are acknowledged
    /// and ignored.
    pub fn accepts(&self, version: u64) -> Result<bool, OutOfStep> {
        match version > self.version {
            true => Err(OutOfStep { current: self.version, asked: version }),
            false => Ok(version == self.version),
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
    pub fn advance(&mut self, to: u64) -> Result<bool, OutOfStep> {
        let is_fenced = self.without != Some(Fence::Step);
        if to == self.version && is_fenced {
            return Ok(false);
        }
        if to.checked_sub(1) != Some(self.version) && is_fenced {
            return Err(OutOfStep { current: self.version, asked: to });
        }
        (self.version, self.has_staged) = (to, false);
        Ok(true)
    }

    /// Only rows after exactly so many steps will do.
    pub fn must_be(&self, asked: u64) -> Result<(), OutOfStep> {
        match asked == self.version {
            true => Ok(()),
            false => Err(OutOfStep { current: self.version, asked }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_completed_once_and_none_is_left_out() {
        let mut steps = StepOrder::at(4);
        assert_eq!(steps.accepts(4), Ok(true));
        steps.stage();
        assert_eq!(steps.advance(4), Ok(false), "it is there already");
        assert!(steps.has_staged());
        assert_eq!(steps.advance(6), Err(OutOfStep { current: 4, asked: 6 }));
        assert_eq!(steps.advance(3), Err(OutOfStep { current: 4, asked: 3 }));
        assert_eq!(steps.advance(5), Ok(true));
        assert!(!steps.has_staged());
        assert_eq!(steps.advance(5), Ok(false));
        assert_eq!((steps.version(), steps.must_be(5).is_ok()), (5, true));
    }

    #[test]
    fn gradients_of_earlier_steps_are_ignored_and_of_later_ones_refused() {
        let steps = StepOrder::at(4);
        assert_eq!(steps.accepts(3), Ok(false));
        assert_eq!(steps.accepts(5), Err(OutOfStep { current: 4, asked: 5 }));
        assert!(steps.must_be(3).is_err());
    }
}
