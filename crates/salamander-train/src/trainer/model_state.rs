//! The model that is trained, with all that moves it: passes, optimizers, tables of rows.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use burn::tensor::TensorData;
use salamander_core::asynchronous::Lineage;
use salamander_core::progress::{RowsMove, StepCount};
use salamander_core::tree::Share;

use super::Prepared;
use super::held::Held;
use crate::checkpoint::OptimizerStates;
use crate::gradients::GradientSum;
use crate::loader::Loaded;
use crate::optimize::{Along, OptimizerState};
use crate::step::{Arithmetic, Destination, Running, Staging, StepSum, compute_share};
use crate::tables::{Finish, Opened, SharedRows, StagedRows, Tables};
use crate::trial::{BatchOf, Pass, Trial};
use crate::{Error, params};

/// A member's part of a step.
#[derive(Clone)]
pub(super) struct OwnPart<'a, B> {
    /// Which leaves of the step it has.
    pub(super) share: Share<'a>,
    /// Their records.
    pub(super) batches: &'a [Loaded<B>],
}

/// Everything of a training that a step changes, apart from its progress.
pub(super) struct ModelState<T> {
    pub(super) model: Held<T>,
    pub(super) passes: Vec<Pass>,
    optimizers: Vec<OptimizerState>,
    pub(super) tables: Tables,
    /// The history of the tables' rows: the generation that last read them from a checkpoint.
    pub(super) lineage: Lineage,
}

impl<T: Trial> ModelState<T> {
    /// A model that was not trained yet; the rows of its tables come from where `rows` says.
    pub(super) fn new(
        prepared: &Prepared,
        rows: impl FnOnce() -> Result<Box<dyn StagedRows>, Error>,
    ) -> Result<Self, Error> {
        let (model, tables) = prepared.setup.fresh::<T>()?;
        let passes = prepared.passes.clone();
        if !tables.is_empty() {
            if passes.len() > 1 {
                return Err(Error::model::<T>("tables move in one pass, and it has several"));
            }
            prepared.open_tables(&tables, Opened::Staged(rows()?))?;
        }
        let optimizers = fresh_optimizers(&passes);
        Ok(Self {
            model: Held::new(model),
            passes,
            optimizers,
            tables,
            lineage: Lineage::default(),
        })
    }

    /// Forgets what was trained; the rows stay where they are.
    pub(super) fn begin_anew(&mut self, prepared: &Prepared) -> Result<(), Error> {
        let (model, tables) = prepared.setup.fresh::<T>()?;
        if let Some(rows) = self.tables.close() {
            prepared.open_tables(&tables, rows)?;
        }
        (self.model, self.tables) = (Held::new(model), tables);
        self.optimizers = fresh_optimizers(&self.passes);
        Ok(())
    }

    /// Takes the state of a checkpoint or of another member.
    pub(super) fn restore(
        &mut self,
        model: HashMap<String, TensorData>,
        optimizers: &OptimizerStates,
    ) -> Result<(), String> {
        let model = params::write(self.model.clone(), model)?;
        let mut restored = fresh_optimizers(&self.passes);
        for (pass, state) in self.passes.iter().zip(&mut restored) {
            for (name, param) in optimizers.get(pass.name).into_iter().flatten() {
                if param.slots.len() != pass.optimizer.slots().len() {
                    return Err(format!("its optimizer state for {name} is of another optimizer"));
                }
                state.insert(name.clone(), param.clone());
            }
        }
        (self.model, self.optimizers) = (Held::new(model), restored);
        Ok(())
    }

    /// What the optimizers keep, for a checkpoint.
    pub(super) fn optimizer_states(&self) -> OptimizerStates {
        let named = self.passes.iter().zip(&self.optimizers);
        named.map(|(pass, state)| (pass.name.to_string(), state.params())).collect()
    }

    /// Parameters that are trained.
    pub(super) fn parameters(&self) -> u64 {
        params::trainable(&*self.model)
    }

    /// The gradients of a pass over a share of the step after so many. Nothing of the state changes.
    pub(super) fn compute(
        &self,
        pass: usize,
        own: &OwnPart<'_, BatchOf<T>>,
        arithmetic: Arithmetic,
        steps: StepCount,
    ) -> Result<Vec<StepSum>, Error> {
        let staging = Staging { tables: &self.tables, to: Destination::Stage(steps) };
        let staging = (!self.tables.is_empty()).then_some(staging);
        let (model, pass, share) = (&*self.model, &self.passes[pass], own.share.clone());
        let sums = compute_share(model, pass, own.batches, arithmetic, staging, share)?;
        // Others may commit the step as soon as they have this member's part of the sum, so its rows must be kept.
        self.tables.with_store(|rows| rows.settle())?;
        Ok(sums)
    }

    /// Moves the parameters of a pass.
    pub(super) fn apply(
        &mut self,
        pass: usize,
        gradient: GradientSum,
        running: Running,
        along: Along,
    ) -> Result<(), Error> {
        if !running.sums.is_empty() {
            let running: HashMap<_, _> = running.means().collect();
            let model =
                params::overwrite(self.model.clone(), running).map_err(Error::model::<T>)?;
            self.model = Held::new(model);
        }
        let optimizer = &mut self.optimizers[pass];
        let gradient = optimizer.placed(gradient)?;
        // Nobody else holds the model now, so that its parameters change in place.
        self.model.change(|model| optimizer.moved(model, gradient, along));
        Ok(())
    }

    /// Whether other processes see the rows of the tables.
    pub(super) fn shares_rows(&self) -> Result<bool, Error> {
        Ok(self.tables.with_shared(|_| Ok(()))?.is_some())
    }

    /// Brings the rows of tables to the state after a step.
    pub(super) fn advance_rows(&self, to: Option<RowsMove>) -> Result<(), Error> {
        if let Some(RowsMove { to, factor, divisor }) = to {
            self.tables.with_store(|rows| rows.advance(to, factor, divisor))?;
        }
        Ok(())
    }

    /// The rows have this history from now on.
    pub(super) fn follow_rows(&mut self, lineage: Lineage) -> Result<(), Error> {
        self.lineage = lineage;
        let follow = |rows: &mut dyn SharedRows| {
            rows.follow(lineage);
            Ok(())
        };
        self.tables.with_shared(follow).map(drop)
    }

    /// Replaces all rows by those of a checkpoint's files, or by none.
    pub(super) fn restore_rows(&self, files: &[PathBuf], steps: StepCount) -> Result<(), Error> {
        self.tables.with_store(|rows| rows.restore(files, steps, self.lineage)).map(drop)
    }

    /// Copies the rows for a checkpoint.
    pub(super) fn save_rows(&self, scratch: &Path) -> Result<Option<Finish>, Error> {
        self.tables.with_store(|rows| rows.save(scratch))
    }
}

fn fresh_optimizers(passes: &[Pass]) -> Vec<OptimizerState> {
    passes.iter().map(OptimizerState::new).collect()
}
