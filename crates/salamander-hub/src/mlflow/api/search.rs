//! Searching runs, clients' and ours together.

use serde_json::{Value, json};

use super::super::Mlflow;
use super::super::asked::Asked;
use super::super::filter::{Filter, Orders, Searchable};
use super::super::refusal::MlflowRefusal;
use super::super::tracked::{Latest, MlflowRun};
use super::experiments::is_viewed;
use super::{listed, page};

/// Runs of a page, at most.
const MOST: usize = 50_000;

pub(super) fn runs(mlflow: &Mlflow, asked: &Asked) -> Result<Value, MlflowRefusal> {
    let filter = Filter::parse(asked.text("filter").unwrap_or_default(), &Searchable::RUNS)?;
    let orders = Orders::parse(&asked.list("order_by"), &Searchable::RUNS)?;
    let wanted = asked.list("experiment_ids");
    let mut all = theirs(mlflow, &wanted)?;
    all.extend(mlflow.our_runs(&wanted)?);
    all.retain(|(run, latest)| {
        is_viewed(asked, "run_view_type", run.stage)
            && filter.matches(|field, key| run.found(latest, field, key))
    });
    all.sort_by(|(one, one_latest), (other, other_latest)| {
        let asked = orders.compare(
            |field, key| one.found(one_latest, field, key),
            |field, key| other.found(other_latest, field, key),
        );
        asked.then(other.started.cmp(&one.started)).then_with(|| one.id.cmp(&other.id))
    });
    let (found, next) = page(all, asked, MOST)?;
    let found = found.iter().map(|(run, latest)| run.to_json(latest)).collect();
    Ok(listed("runs", found, next))
}

/// The runs that clients made in some experiments, with their last values.
fn theirs(
    mlflow: &Mlflow,
    experiments: &[String],
) -> Result<Vec<(MlflowRun, Latest)>, MlflowRefusal> {
    let runs: Vec<MlflowRun> = {
        let said = mlflow.said();
        let ids = experiments.iter().filter_map(|id| said.tracked.of_experiment.get(id)).flatten();
        ids.filter_map(|id| said.tracked.runs.get(id).cloned()).collect()
    };
    let mut found = Vec::with_capacity(runs.len());
    for run in runs {
        let latest = (*mlflow.latest(&run.id)?).clone();
        found.push((run, latest));
    }
    Ok(found)
}

/// Values of one metric as clients read them, a page of them.
pub(super) fn metrics(all: Vec<Value>, asked: &Asked) -> Result<Value, MlflowRefusal> {
    if asked.number("max_results")?.is_none() && asked.text("page_token").is_none() {
        return Ok(json!({"metrics": all}));
    }
    let (found, next) = page(all, asked, 25_000)?;
    Ok(listed("metrics", found, next))
}
