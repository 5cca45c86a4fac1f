//! From the fields of a file to a method that makes sense, or a sentence why it does not.

use salamander_core::experiment::{
    HalvingForm, HalvingMode, Length, ReportOrder, SchedulerName, Searcher, SearcherName,
};
use salamander_core::yaml::{Error, Node};

use crate::scheduler::{
    Adaptive, Bracket, Brackets, Divisor, FlatScheduler, Median, MedianRule, Pasha, Population,
    PopulationRule, Scheduler, TrialCount, brackets, default_rungs, rung_lengths,
};
use crate::space::Space;

/// Determined's defaults.
const CONCURRENT: u64 = 16;
const DIVISOR: f64 = 4.0;
const MAX_RUNGS: u64 = 5;
/// More trials than this are a slip of the pen: a search keeps each of them in memory.
const MOST_TRIALS: u64 = 1_000_000;
/// More rungs than this no length has: it would have to double from each to the next.
const MOST_RUNGS: u64 = 64;

/// What proposes hyperparameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proposals {
    /// One trial.
    Single,
    /// Random draws.
    Random,
    /// All combinations.
    Grid,
    /// The tree-structured Parzen estimator, after so many random draws.
    Tpe {
        /// Random draws before it begins to learn.
        startup: u64,
    },
}

/// How far trials go.
#[derive(Clone, Debug, PartialEq)]
pub enum SchedulerRule {
    /// All go to the end.
    None,
    /// Halving, in one or several brackets.
    Halving {
        /// The form.
        form: HalvingForm,
        /// One of so many goes on.
        divisor: Divisor,
        /// The brackets.
        brackets: Vec<Bracket>,
    },
    /// Progressive halving.
    Pasha {
        /// One of so many goes on.
        divisor: Divisor,
        /// Its rungs and trials.
        bracket: Bracket,
    },
    /// The median rule.
    Median(MedianRule),
    /// Population based training.
    Population(PopulationRule),
}

/// A search that makes sense.
#[derive(Clone, Debug, PartialEq)]
pub struct Method {
    /// What proposes hyperparameters.
    pub proposals: Proposals,
    /// How far trials go.
    pub rule: SchedulerRule,
    /// The unit and the whole length of a trial.
    pub length: Length,
    /// Trials in all.
    pub max_trials: u64,
    /// Trials at a time; 0: no bound.
    pub concurrent: u64,
    /// The metric, as it is called in validation.
    pub metric: String,
    /// Whether less of it is better.
    pub smaller_is_better: bool,
    /// The order in which reports count.
    pub order: ReportOrder,
    /// The search ends when a trial measures this or better.
    pub target: Option<f64>,
    /// What everything is drawn from.
    pub seed: u64,
}

/// The number of a length, whatever it counts.
pub fn units(length: Length) -> u64 {
    match length {
        Length::Batches(n) | Length::Records(n) | Length::Epochs(n) => n,
    }
}

/// So many of the same unit.
pub fn with_units(length: Length, number: u64) -> Length {
    match length {
        Length::Batches(_) => Length::Batches(number),
        Length::Records(_) => Length::Records(number),
        Length::Epochs(_) => Length::Epochs(number),
    }
}

/// What a searcher's name means: what proposes, and which scheduler, if the name says so.
fn meaning(name: SearcherName) -> (SearcherName, Option<SchedulerName>) {
    use SearcherName as N;
    match name {
        N::Single | N::Random | N::Grid | N::Tpe => (name, None),
        N::AsyncHalving => (N::Random, Some(SchedulerName::AsyncHalving)),
        N::AdaptiveAsha => (N::Random, Some(SchedulerName::AdaptiveAsha)),
        N::Pasha => (N::Random, Some(SchedulerName::Pasha)),
        N::Median => (N::Random, Some(SchedulerName::Median)),
        N::Pbt => (N::Random, Some(SchedulerName::Pbt)),
    }
}

impl Method {
    /// Reads the searcher of a file. `place` is where it is written, for messages.
    pub fn new(
        searcher: &Searcher,
        length: Length,
        seed: u64,
        space: &Space,
        place: &Node,
    ) -> Result<Self, Error> {
        let wrong = |field: &str, message: String| {
            let node = place.get(field).unwrap_or(place);
            Error::at(&node.place, message).within(field).within("searcher")
        };
        let (base, named) = meaning(searcher.name);
        if let (Some(named), Some(other)) = (named, searcher.scheduler)
            && named != other
        {
            let message = format!(
                "{} with the scheduler {other}: write what proposes (random, grid or tpe) as the name",
                searcher.name
            );
            return Err(wrong("name", message));
        }
        let scheduler = named.or(searcher.scheduler).unwrap_or(SchedulerName::None);
        fits(base, scheduler).map_err(|message| wrong("scheduler", message))?;
        belongs(searcher, scheduler)
            .map_err(|(field, owners)| wrong(field, format!("only {owners} has a use for it")))?;
        let grid = match base {
            SearcherName::Grid => Some(space.grid()?.len() as u64),
            _ => None,
        };
        let max_trials = match (base, grid, searcher.max_trials) {
            (SearcherName::Single, ..) => 1,
            (_, Some(points), most) => most.map_or(points, |most| most.min(points)),
            (_, None, Some(most)) => most,
            (_, None, None) => {
                return Err(wrong("max_trials", "say how many trials there may be".to_string()));
            }
        };
        if max_trials == 0 {
            return Err(wrong("max_trials", "a search has at least one trial".to_string()));
        }
        if max_trials > MOST_TRIALS {
            let message = format!("a search has at most {MOST_TRIALS} trials");
            return Err(wrong("max_trials", message));
        }
        if units(length) == 0 {
            return Err(wrong("max_length", "a trial has a length of at least 1".to_string()));
        }
        let concurrent = searcher.max_concurrent_trials.unwrap_or(CONCURRENT);
        let sizes = RuleSizes { longest: units(length), max_trials, concurrent, seed };
        let rule = rule(searcher, scheduler, sizes).map_err(|(field, why)| wrong(field, why))?;
        let startup = searcher.startup_trials.unwrap_or(10);
        let proposals = match base {
            SearcherName::Single => Proposals::Single,
            SearcherName::Grid => Proposals::Grid,
            SearcherName::Tpe => Proposals::Tpe { startup },
            _ => Proposals::Random,
        };
        let max_trials = match &rule {
            // Small searches have at least one trial in each bracket.
            SchedulerRule::Halving { brackets, .. } => brackets.iter().map(|b| b.max_trials).sum(),
            _ => max_trials,
        };
        Ok(Self {
            proposals,
            rule,
            length,
            max_trials,
            concurrent,
            metric: searcher.metric.clone(),
            smaller_is_better: searcher.smaller_is_better,
            order: searcher.order,
            target: searcher.target,
            seed,
        })
    }

    /// The whole length of a trial, in its unit.
    pub fn longest(&self) -> u64 {
        units(self.length)
    }

    /// The scheduler's state at the beginning.
    pub(crate) fn scheduler(&self) -> Box<dyn Scheduler> {
        let replaces = self.proposals != Proposals::Grid;
        let count = TrialCount::new(self.max_trials, self.concurrent, replaces);
        match &self.rule {
            SchedulerRule::None => Box::new(FlatScheduler::new(self.longest(), count)),
            SchedulerRule::Halving { form, divisor, brackets } => {
                Box::new(Brackets::new(*form, *divisor, brackets))
            }
            SchedulerRule::Pasha { divisor, bracket } => Box::new(Pasha::new(*divisor, bracket)),
            SchedulerRule::Median(rule) => Box::new(Median::new(*rule, count)),
            SchedulerRule::Population(rule) => Box::new(Population::new(*rule)),
        }
    }
}

/// Pairs that make no sense, and why.
fn fits(base: SearcherName, scheduler: SchedulerName) -> Result<(), String> {
    use SearcherName::{Grid, Single, Tpe};
    match (base, scheduler) {
        (_, SchedulerName::None) => Ok(()),
        (Single, other) => {
            Err(format!("{other} compares trials, and single has only one: write name: random"))
        }
        (Grid, SchedulerName::Pbt) => {
            Err("pbt changes hyperparameters while it trains, and a grid \
             fixes them: write name: random, or another scheduler"
                .to_string())
        }
        (Tpe, SchedulerName::Pbt) => Err("pbt proposes by itself, from its best trials: write \
             name: random, or another scheduler"
            .to_string()),
        _ => Ok(()),
    }
}

/// A field that the scheduler would not read, and which ones do.
fn belongs(
    searcher: &Searcher,
    scheduler: SchedulerName,
) -> Result<(), (&'static str, &'static str)> {
    use SchedulerName::{AdaptiveAsha, AsyncHalving, Median, Pasha, Pbt};
    let fields: [(bool, &str, &[SchedulerName], &str); 11] = [
        (
            searcher.divisor.is_some(),
            "divisor",
            &[AsyncHalving, AdaptiveAsha, Pasha],
            "async_halving, adaptive_asha or pasha",
        ),
        (
            searcher.num_rungs.is_some(),
            "num_rungs",
            &[AsyncHalving, Pasha],
            "async_halving or pasha",
        ),
        (
            searcher.max_rungs.is_some(),
            "max_rungs",
            &[AsyncHalving, AdaptiveAsha, Pasha],
            "async_halving, adaptive_asha or pasha",
        ),
        (searcher.mode.is_some(), "mode", &[AdaptiveAsha], "adaptive_asha"),
        (!searcher.bracket_rungs.is_empty(), "bracket_rungs", &[AdaptiveAsha], "adaptive_asha"),
        (
            searcher.form.is_some(),
            "form",
            &[AsyncHalving, AdaptiveAsha],
            "async_halving or adaptive_asha",
        ),
        (
            searcher.stop_once.is_some(),
            "stop_once",
            &[AsyncHalving, AdaptiveAsha],
            "async_halving or adaptive_asha",
        ),
        (searcher.interval.is_some(), "interval", &[Median, Pbt], "median or pbt"),
        (searcher.grace.is_some(), "grace", &[Median], "median"),
        (searcher.min_samples.is_some(), "min_samples", &[Median], "median"),
        (searcher.quantile.is_some(), "quantile", &[Pbt], "pbt"),
    ];
    let stray = fields.iter().find(|(given, _, owners, _)| *given && !owners.contains(&scheduler));
    match stray {
        Some((_, field, _, names)) => Err((field, names)),
        None => Ok(()),
    }
}

/// What a rule is cut to.
#[derive(Clone, Copy)]
struct RuleSizes {
    longest: u64,
    max_trials: u64,
    concurrent: u64,
    seed: u64,
}

fn rule(
    searcher: &Searcher,
    scheduler: SchedulerName,
    sizes: RuleSizes,
) -> Result<SchedulerRule, (&'static str, String)> {
    let RuleSizes { longest, max_trials, concurrent, seed } = sizes;
    let divisor = Divisor(searcher.divisor.unwrap_or(DIVISOR));
    if !(divisor.0 > 1.0 && divisor.0.is_finite()) {
        return Err(("divisor", "must be above 1".to_string()));
    }
    let max_rungs = searcher.max_rungs.unwrap_or(MAX_RUNGS);
    if max_rungs == 0 || searcher.num_rungs == Some(0) || searcher.bracket_rungs.contains(&0) {
        return Err(("num_rungs", "a bracket has at least one rung".to_string()));
    }
    let rungs = [("num_rungs", searcher.num_rungs), ("max_rungs", searcher.max_rungs)];
    let brackets_rungs = searcher.bracket_rungs.iter().map(|rungs| ("bracket_rungs", Some(*rungs)));
    let too_many = |(_, rungs): &(&str, Option<u64>)| rungs.is_some_and(|rungs| rungs > MOST_RUNGS);
    if let Some((field, _)) = rungs.into_iter().chain(brackets_rungs).find(too_many) {
        return Err((field, format!("a bracket has at most {MOST_RUNGS} rungs")));
    }
    let form = form(searcher)?;
    let one_bracket = |form| {
        let rungs = searcher
            .num_rungs
            .unwrap_or_else(|| default_rungs(max_rungs, divisor, longest, max_trials));
        let rungs = rung_lengths(form, divisor, rungs, longest);
        Bracket { rungs, max_trials, max_concurrent_trials: concurrent }
    };
    let interval = searcher.interval.unwrap_or((longest / 10).max(1));
    if interval == 0 {
        return Err(("interval", "must be at least 1".to_string()));
    }
    Ok(match scheduler {
        SchedulerName::None => SchedulerRule::None,
        SchedulerName::AsyncHalving => {
            SchedulerRule::Halving { form, divisor, brackets: vec![one_bracket(form)] }
        }
        SchedulerName::AdaptiveAsha => {
            let adaptive = Adaptive {
                form,
                divisor,
                mode: searcher.mode.unwrap_or(HalvingMode::Standard),
                max_rungs,
                bracket_rungs: searcher.bracket_rungs.clone(),
                longest,
                max_trials,
                concurrent,
            };
            SchedulerRule::Halving { form, divisor, brackets: brackets(&adaptive) }
        }
        SchedulerName::Pasha => {
            SchedulerRule::Pasha { divisor, bracket: one_bracket(HalvingForm::Stopping) }
        }
        SchedulerName::Median => SchedulerRule::Median(MedianRule {
            length: longest,
            interval,
            grace: searcher.grace.unwrap_or(interval),
            min_samples: searcher.min_samples.unwrap_or(3),
        }),
        SchedulerName::Pbt => {
            let quantile = searcher.quantile.unwrap_or(0.25);
            if !(quantile > 0.0 && quantile <= 0.5) {
                return Err(("quantile", "must lie above 0 and up to 0.5".to_string()));
            }
            let size = max_trials;
            SchedulerRule::Population(PopulationRule {
                length: longest,
                interval,
                quantile,
                size,
                seed,
            })
        }
    })
}

fn form(searcher: &Searcher) -> Result<HalvingForm, (&'static str, String)> {
    let once = searcher.stop_once.map(|once| match once {
        true => HalvingForm::Stopping,
        false => HalvingForm::Promotion,
    });
    match (searcher.form, once) {
        (Some(form), Some(once)) if form != once => {
            Err(("stop_once", "it says another form than \"form\"".to_string()))
        }
        (form, once) => Ok(form.or(once).unwrap_or(HalvingForm::Stopping)),
    }
}
