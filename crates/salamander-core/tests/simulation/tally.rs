//! What the seeds went through, so that nobody has to believe that they went through anything.

use std::fmt;

/// Name and count of each kind of thing that happened in one run; always the same kinds in the same order.
pub(crate) type Counts = Vec<(&'static str, u64)>;

/// Defines `Stats`, the counts of one run, each with its name.
macro_rules! counts {
    ($($count:ident: $name:literal,)*) => {
        /// Counts of one run.
        #[derive(Clone, Copy, Debug, Default)]
        pub(crate) struct Stats {
            $(pub(crate) $count: u64,)*
        }

        impl Stats {
            /// Name and count of each.
            pub(crate) fn rows(&self) -> crate::simulation::Counts {
                vec![$(($name, self.$count),)*]
            }
        }
    };
}
pub(crate) use counts;

/// Sums over many runs, and in how many of them something happened at all.
#[derive(Clone, Default)]
pub(crate) struct Tally(Vec<Row>);

#[derive(Clone)]
struct Row {
    name: &'static str,
    sum: u64,
    runs: u64,
}

impl Tally {
    pub(crate) fn add(self, counts: Counts) -> Self {
        let row = |(name, count)| Row { name, sum: count, runs: u64::from(count > 0) };
        self.merge(Self(counts.into_iter().map(row).collect()))
    }

    pub(crate) fn merge(mut self, other: Self) -> Self {
        if self.0.is_empty() {
            return other;
        }
        for (row, other) in self.0.iter_mut().zip(other.0) {
            row.sum += other.sum;
            row.runs += other.runs;
        }
        self
    }

    /// In how many runs each happened.
    pub(crate) fn runs(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.0.iter().map(|row| (row.name, row.runs))
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Row { name, sum, runs } in &self.0 {
            writeln!(f, "{sum:9} {name}, in {runs} runs")?;
        }
        Ok(())
    }
}
