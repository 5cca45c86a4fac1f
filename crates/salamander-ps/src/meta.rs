//! What a table knows about a row besides its numbers, in eight bytes: how often it was moved, when
//! it was last used, and whether the clock's hand should spare it.

/// Steps (31 bits), the spare mark (1), the age of the last use (32).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Meta(pub(crate) u64);

const STEP_MASK: u64 = (1 << 31) - 1;
const MARK: u64 = 1 << 31;

impl Meta {
    /// A row that was just created.
    pub(crate) fn new(age: u64) -> Self {
        Self(age << 32)
    }

    /// How often the row was moved.
    pub(crate) fn step(self) -> u64 {
        self.0 & STEP_MASK
    }

    /// Advances or pushes since the last use. Ages wrap round after 2^32 of them; a table that
    /// expires has swept long before, and no other one asks.
    pub(crate) fn idle(self, age: u64) -> u64 {
        u64::from((age as u32).wrapping_sub((self.0 >> 32) as u32))
    }

    pub(crate) fn is_marked(self) -> bool {
        self.0 & MARK != 0
    }

    #[must_use]
    pub(crate) fn without_mark(self) -> Self {
        Self(self.0 & !MARK)
    }

    /// The row was used again.
    #[must_use]
    pub(crate) fn used(self, age: u64) -> Self {
        Self((age << 32) | MARK | self.step())
    }

    /// The row was moved once more.
    #[must_use]
    pub(crate) fn moved(self) -> Self {
        Self(if self.step() == STEP_MASK { self.0 } else { self.0 + 1 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_do_not_touch_each_other() {
        let meta = Meta::new(7).moved().used(9).moved();
        assert_eq!((meta.step(), meta.idle(12), meta.is_marked()), (2, 3, true));
        assert_eq!(meta.without_mark().moved(), Meta(9 << 32 | 3));
    }

    #[test]
    fn steps_stop_and_ages_wrap() {
        let last = Meta(STEP_MASK);
        assert_eq!(last.moved(), last);
        assert_eq!(Meta::new(u64::from(u32::MAX)).idle(1 << 32), 1);
    }
}
