//! Runs: made, looked at, ended, deleted; what went into them and came out.

use serde_json::{Value, json};

use super::super::asked::Asked;
use super::super::events::TrackingEvent;
use super::super::refusal::MlflowRefusal;
use super::super::tracked::{Latest, LifecycleStage, MlflowRun};
use super::super::{DEFAULT_EXPERIMENT, Mlflow, artifacts, new_id, ours};
use crate::now;

/// How a run may stand.
const STATUSES: [&str; 5] = ["RUNNING", "SCHEDULED", "FINISHED", "FAILED", "KILLED"];

impl Mlflow {
    /// A run of a client, or one of ours.
    pub(super) fn run(&self, id: &str) -> Result<(MlflowRun, Latest), MlflowRefusal> {
        if let Some(run) = ours::run_id(id) {
            return self.our_run(id, run);
        }
        let run = self.said().run(id)?.clone();
        Ok((run, (*self.latest(id)?).clone()))
    }
}

pub(super) fn create(mlflow: &Mlflow, asked: &Asked) -> Result<Value, MlflowRefusal> {
    let experiment =
        mlflow.experiment(asked.text("experiment_id").unwrap_or(DEFAULT_EXPERIMENT))?;
    if experiment.stage == LifecycleStage::Deleted {
        let reason = format!("The experiment {} must be in the 'active' state", experiment.id);
        return Err(MlflowRefusal::invalid(reason));
    }
    let mut tags = asked.pairs("tags")?;
    let id = new_id()?;
    let (given, tagged) = (asked.text("run_name"), tags.get("mlflow.runName"));
    if let (Some(given), Some(tagged)) = (given, tagged.filter(|tagged| !tagged.is_empty()))
        && given != tagged
    {
        return Err(MlflowRefusal::invalid(format!(
            "Both 'run_name' argument and 'mlflow.runName' tag are specified, but with different values \
             (run_name='{given}', mlflow.runName='{tagged}')."
        )));
    }
    let named = given.or(tagged.map(String::as_str)).filter(|name| !name.is_empty());
    let name = named.map_or_else(|| format!("run-{}", &id[..8]), str::to_string);
    tags.insert("mlflow.runName".to_string(), name.clone());
    let user =
        asked.text("user_id").map(str::to_string).or_else(|| tags.get("mlflow.user").cloned());
    // Ours have no folder for the files of others.
    let place = match experiment.id.parse::<u64>() {
        Ok(number) if mlflow.said().tracked.experiments.contains_key(&number) => {
            experiment.artifacts
        }
        _ => artifacts::location(&experiment.id),
    };
    let run = MlflowRun {
        artifacts: format!("{}/{id}/artifacts", place.trim_end_matches('/')),
        id,
        name,
        experiment: experiment.id,
        user: user.unwrap_or_default(),
        status: "RUNNING".to_string(),
        started: Some(asked.number("start_time")?.unwrap_or_else(now)),
        ended: None,
        stage: LifecycleStage::Active,
        params: Default::default(),
        tags,
        datasets: Vec::new(),
        model_inputs: Vec::new(),
        model_outputs: Vec::new(),
    };
    let (id, answer) = (run.id.clone(), json!({"run": run.to_json(&Latest::new())}));
    mlflow.said().say(vec![TrackingEvent::Run(run)])?;
    mlflow.show(&id, Vec::new());
    Ok(answer)
}

pub(super) fn get(mlflow: &Mlflow, asked: &Asked) -> Result<Value, MlflowRefusal> {
    let (run, latest) = mlflow.run(asked.run()?)?;
    Ok(json!({"run": run.to_json(&latest)}))
}

pub(super) fn update(mlflow: &Mlflow, asked: &Asked) -> Result<Value, MlflowRefusal> {
    let status = match (asked.text("status"), asked.number("status").ok().flatten()) {
        // Clients of before send the number of a status.
        (_, Some(number)) => {
            let wrong = || MlflowRefusal::invalid(format!("{number} is no status"));
            let status = STATUSES.get((number - 1).max(0) as usize).ok_or_else(wrong)?;
            Some((*status).to_string())
        }
        (Some(status), None) if STATUSES.contains(&status) => Some(status.to_string()),
        (Some(status), None) => {
            return Err(MlflowRefusal::invalid(format!("{status:?} is no status")));
        }
        (None, None) => None,
    };
    let name = asked.text("run_name").map(str::to_string);
    let ended = asked.number("end_time")?;
    let (id, info) = {
        let mut said = mlflow.said();
        let id = said.open_run(asked.run()?)?.id.clone();
        said.say(vec![TrackingEvent::RunChanged {
            id: id.clone(),
            name,
            status,
            ended,
            stage: None,
        }])?;
        let info = said.run(&id)?.info();
        (id, info)
    };
    mlflow.show(&id, Vec::new());
    Ok(json!({"run_info": info}))
}

fn set_stage(
    mlflow: &Mlflow,
    asked: &Asked,
    stage: LifecycleStage,
) -> Result<Value, MlflowRefusal> {
    let id = mlflow.said().run(asked.run()?)?.id.clone();
    let changed = TrackingEvent::RunChanged {
        id: id.clone(),
        name: None,
        status: None,
        ended: None,
        stage: Some(stage),
    };
    mlflow.said().say(vec![changed])?;
    mlflow.show(&id, Vec::new());
    Ok(json!({}))
}

pub(super) fn delete(mlflow: &Mlflow, asked: &Asked) -> Result<Value, MlflowRefusal> {
    set_stage(mlflow, asked, LifecycleStage::Deleted)
}

pub(super) fn restore(mlflow: &Mlflow, asked: &Asked) -> Result<Value, MlflowRefusal> {
    set_stage(mlflow, asked, LifecycleStage::Active)
}

/// A list of a request as it was sent.
fn as_sent(asked: &Asked, name: &str) -> Vec<Value> {
    asked.raw(name).and_then(Value::as_array).cloned().unwrap_or_default()
}

pub(super) fn log_inputs(mlflow: &Mlflow, asked: &Asked) -> Result<Value, MlflowRefusal> {
    let mut said = mlflow.said();
    let id = said.open_run(asked.run()?)?.id.clone();
    let (datasets, model_inputs) = (as_sent(asked, "datasets"), as_sent(asked, "models"));
    said.say(vec![TrackingEvent::RunUsed {
        id,
        datasets,
        model_inputs,
        model_outputs: Vec::new(),
    }])?;
    Ok(json!({}))
}

pub(super) fn log_outputs(mlflow: &Mlflow, asked: &Asked) -> Result<Value, MlflowRefusal> {
    let mut said = mlflow.said();
    let id = said.open_run(asked.run()?)?.id.clone();
    let model_outputs = as_sent(asked, "models");
    let (datasets, model_inputs) = (Vec::new(), Vec::new());
    said.say(vec![TrackingEvent::RunUsed { id, datasets, model_inputs, model_outputs }])?;
    Ok(json!({}))
}

/// Clients before version 3 say so what they have logged: a tag that is a list.
pub(super) fn log_model(mlflow: &Mlflow, asked: &Asked) -> Result<Value, MlflowRefusal> {
    const HISTORY: &str = "mlflow.log-model.history";
    let text = asked.required("model_json")?;
    let model: Value = serde_json::from_str(text)
        .map_err(|error| MlflowRefusal::invalid(format!("model_json is no JSON: {error}")))?;
    let mut said = mlflow.said();
    let run = said.open_run(asked.run()?)?;
    let before = run.tags.get(HISTORY).and_then(|text| serde_json::from_str(text).ok());
    let mut history: Vec<Value> = before.unwrap_or_default();
    history.push(model);
    let tags = [(HISTORY.to_string(), Some(Value::Array(history).to_string()))].into();
    let id = run.id.clone();
    said.say(vec![TrackingEvent::RunNoted { id, params: Default::default(), tags }])?;
    Ok(json!({}))
}

pub(super) fn list_artifacts(mlflow: &Mlflow, asked: &Asked) -> Result<Value, MlflowRefusal> {
    let (run, _) = mlflow.run(asked.run()?)?;
    let root = artifacts::root(&run.artifacts)?.to_string();
    let files = mlflow.list(&root, asked.text("path").unwrap_or_default().trim_matches('/'))?;
    Ok(json!({"root_uri": run.artifacts, "files": files}))
}
