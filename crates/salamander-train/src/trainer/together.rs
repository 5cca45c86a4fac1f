//! Where the members of a generation meet: the sum of a pass, a validation, a checkpoint's barrier.

use std::time::Instant;

use salamander_core::elastic::Work;
use salamander_core::ledger::Tally;
use salamander_core::metrics::{Metrics, number};
use salamander_core::progress::StepCount;
use salamander_core::tree;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::Trainer;
use super::tree_fold::TreeFold;
use crate::Error;
use crate::bucket::{Layout, digest};
use crate::step::{StepSum, finite};
use crate::trial::Trial;

/// What a member says beside its gradients.
#[derive(Serialize, Deserialize)]
struct PassSide {
    /// Of each of its nodes.
    nodes: Vec<NodeSide>,
    stop: bool,
    /// Whether its clock says that a checkpoint is due; only the first member's counts.
    save: bool,
    /// Whether it was asked for by a parameter server that wants to leave.
    hold: bool,
    /// What moves its parameters.
    mover: String,
    /// A hash of its parameters, when they are compared.
    weights: Option<u64>,
    /// Whether the next pass compares them; only the first member's word counts.
    compare: bool,
}

/// What is said of a node beside its gradients.
#[derive(Serialize, Deserialize)]
struct NodeSide {
    tally: Tally,
    #[serde(with = "number")]
    loss: f64,
    metrics: Metrics,
    used: Vec<bool>,
    running: f64,
    overflow: bool,
}

impl NodeSide {
    fn join(mut self, right: Self) -> Self {
        self.tally.merge(&right.tally);
        self.loss += right.loss;
        self.metrics.merge(&right.metrics);
        self.used.iter_mut().zip(&right.used).for_each(|(any, own)| *any |= own);
        self.running += right.running;
        self.overflow |= right.overflow;
        self
    }
}

/// A pass of all members.
pub(super) struct Reduced {
    pub(super) sum: StepSum,
    /// Of the sum's bits.
    pub(super) digest: u64,
    /// Whether one of them wants the run to end.
    pub(super) stop: bool,
    /// Whether a checkpoint to recover from is due.
    pub(super) save: bool,
    /// Whether it is for a parameter server that wants to leave, for which all wait.
    pub(super) hold: bool,
}

impl<T: Trial> Trainer<T> {
    /// The sum over all members, in the tree of the step's leaves; `own` are the nodes that this member has.
    pub(super) fn reduce(
        &mut self,
        pass: usize,
        leaves: &[u32],
        own: Vec<StepSum>,
    ) -> Result<Reduced, Error> {
        let stop = self.exchange.wants_stop();
        // With a disk that takes longer than the period, others would pile up and hold the steps up.
        let is_due = self.place.leads()
            && self.course.recovery_due(self.started.elapsed())
            && !self.checkpoints.is_writing();
        let hold = self.exchange.wants_save();
        let save = hold || is_due;
        let records = own.iter().map(|sum| sum.tally.applied).sum();
        if self.place.size == 1 {
            self.exchange.working(Work::Computing, records);
            let mut sum = own.into_iter().next().unwrap_or_default();
            // One leaf is as finite as it was found to be.
            let is_sum = leaves.len() > 1 && !sum.overflow;
            sum.overflow |= is_sum && !sum.is_finite()?;
            return Ok(Reduced { sum, digest: 0, stop, save, hold });
        }
        let started = Instant::now();
        self.exchange.working(Work::Exchanging, records);
        let layout = Layout::of(&*self.state.model, &self.state.passes[pass]);
        let as_bf16 = self.prepared.setup.experiment.optimizations.gradient_compression;
        let (mut nodes, mut parts) = (Vec::new(), Vec::new());
        for StepSum { gradient, tally, metrics, loss, running, overflow } in own {
            let gradient = gradient.into_host(as_bf16)?;
            let (used, records) = (layout.used(&gradient), running.records);
            nodes.push(NodeSide { tally, loss, metrics, used, running: records, overflow });
            parts.push((gradient, running));
        }
        let (weights, compare) = (self.due_weights(), self.agreement.proposes());
        let mover = self.mover.clone();
        let side = PassSide { nodes, stop, save, hold, mover, weights, compare };
        let sides: Vec<PassSide> = self.meet(&format!("pass {pass}"), &side)?;
        self.agree(&sides.iter().map(|side| side.weights).collect::<Vec<_>>())?;
        self.agreement.follow(sides.first().is_some_and(|first| first.compare));
        let stop = sides.iter().any(|side| side.stop);
        let save = sides.iter().any(|side| side.save);
        let hold = sides.iter().any(|side| side.hold);
        let same_mover = sides.iter().all(|side| side.mover == self.mover);
        let fold = TreeFold::of(leaves, self.place.size)?;
        let nodes = fold.matched(sides.into_iter().map(|side| side.nodes))?;
        let Some(all) = tree::fold(nodes, &fold.joins, NodeSide::join) else {
            return Err(Error::Invalid("a step without micro-batches".to_string()));
        };
        let mut fill = |part: usize, bucket: &mut [f32]| {
            let (gradient, running) = &parts[part];
            layout.fill(bucket, gradient, running);
        };
        self.exchange.working(Work::Exchanging, 0);
        let sums = self.exchange.sum(layout.len(), &fold.order, &mut fill)?;
        let digest = digest(sums);
        let NodeSide { tally, loss, metrics, used, running, overflow } = all;
        // All members have these bits, so that all of them skip the step or none.
        let overflow = overflow || !finite(sums);
        let (mut gradient, running) = layout.read(sums, &used, running);
        // All members must come to the same bits: different devices may round differently, the host does not.
        if same_mover {
            gradient = gradient.near(&self.prepared.setup.device);
        }
        self.timings.exchange += started.elapsed();
        self.exchange.working(Work::Computing, 0);
        let sum = StepSum { gradient, tally, metrics, loss, running, overflow };
        Ok(Reduced { sum, digest, stop, save, hold })
    }

    /// Everybody's words, in the order of ranks, if all members are at the same point.
    pub(super) fn meet<S: Serialize + DeserializeOwned>(
        &mut self,
        point: &str,
        own: &S,
    ) -> Result<Vec<S>, Error> {
        // Not JSON, whose numbers lose their last bit on the way.
        let steps = self.course.progress().steps;
        let mut bytes = Vec::new();
        ciborium::into_writer(&(point, steps, own), &mut bytes)
            .map_err(|error| Error::Invalid(format!("{point}: {error}")))?;
        // Who comes late is computing, and may hang; who is there waits.
        self.exchange.working(Work::Exchanging, 0);
        let gathered = self.exchange.gather(&bytes)?;
        self.exchange.working(Work::Computing, 0);
        let mut all = Vec::new();
        for (rank, bytes) in gathered.iter().enumerate() {
            let apart = |found: String| {
                let reason = "the workers' callbacks must come to the same decisions";
                Error::Invalid(format!("{} is {found}: {reason}", self.exchange.name(rank)))
            };
            let (theirs, done, value): (String, StepCount, S) =
                ciborium::from_reader(bytes.as_slice())
                    .map_err(|error| apart(format!("not at \"{point}\" ({error})")))?;
            if theirs != point || done != steps {
                let here = format!("this one at \"{point}\" after {steps}");
                return Err(apart(format!("at \"{theirs}\" after {done} steps, {here}")));
            }
            all.push(value);
        }
        Ok(all)
    }

    /// Brings the rows of tables to the state after the last step. Others see them too, so all members must have
    /// committed the step: meeting them at the same version proves it.
    pub(super) fn move_rows(&mut self) -> Result<(), Error> {
        if self.place.size > 1 && self.state.shares_rows()? {
            self.meet("rows", &())?;
        }
        self.state.advance_rows(self.course.progress().rows)
    }
}
