//! Where a run is written down besides its folder: files and servers of the tools that people have.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::environment::HUB_TOKEN;

/// Where a run is written down besides its folder. Nothing here is ever in the way of a step.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Tracking {
    /// Event files for TensorBoard in the run's folder: `tensorboard --logdir runs` shows them.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub tensorboard: bool,
    /// Weights and gradients as histograms for TensorBoard, after every so many steps; 0: never.
    #[serde(skip_serializing_if = "is_never")]
    pub histograms: u64,
    /// An MLflow server that hears of the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mlflow: Option<Mlflow>,
    /// A hub that hears of the run while it trains, where it does not see the run's folder: `http://host:7070`. The
    /// token comes from `SALAMANDER_HUB_TOKEN`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hub: Option<String>,
}

/// An MLflow server. Credentials come from the environment, as for its own client: `MLFLOW_TRACKING_TOKEN`, or
/// `MLFLOW_TRACKING_USERNAME` and `MLFLOW_TRACKING_PASSWORD`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Mlflow {
    /// Its address: `http://host:5000`.
    pub uri: String,
    /// The experiment's name there, which is made if it is not there; the run's name by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub experiment: Option<String>,
    /// Whether the newest checkpoint is sent as well when the run ends, file by file.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub checkpoint: bool,
}

fn is_never(steps: &u64) -> bool {
    *steps == 0
}

impl Tracking {
    /// Whether nothing is said.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// What is wrong with it, if anything is.
    pub(super) fn mistake(&self) -> Option<(&'static str, String)> {
        let secret = "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD";
        let mlflow = self.mlflow.as_ref().and_then(|mlflow| wrong_address(&mlflow.uri, secret));
        let hub = || wrong_address(self.hub.as_ref()?, HUB_TOKEN.name);
        let mlflow = mlflow.map(|reason| ("tracking.mlflow.uri", reason));
        mlflow.or_else(|| hub().map(|reason| ("tracking.hub", reason)))
    }
}

/// What is wrong with a server's address, if anything is; its secret comes from these variables.
fn wrong_address(uri: &str, secret: &str) -> Option<String> {
    let rest = uri.strip_prefix("http://").or_else(|| uri.strip_prefix("https://"));
    let host = rest.unwrap_or_default().split('/').next().unwrap_or_default();
    if host.is_empty() {
        Some(format!("{uri:?} is no address of a server: write http://host:5000, or https://host"))
    } else if host.contains('@') {
        // The experiment in force is kept and shown to everybody.
        Some(format!("leave the password out: it comes from {secret}"))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use crate::experiment::Experiment;

    #[test]
    fn an_address_is_checked_before_anything_runs() {
        let check = |uri: &str, expected: Option<&str>| {
            let text = format!("tracking:\n  mlflow: {{uri: \"{uri}\"}}\n");
            let error = Experiment::parse(&text, &[]).err().map(|error| error.to_string());
            match expected {
                None => assert_eq!(error, None),
                Some(part) => {
                    let error = error.expect("refused");
                    assert!(
                        error.contains(part) && error.contains("tracking.mlflow.uri"),
                        "{error}"
                    );
                }
            }
        };
        check("http://localhost:5000", None);
        check("https://mlflow.example.org/sub", None);
        check("localhost:5000", Some("no address"));
        check("sqlite:///x.db", Some("no address"));
        check("http://", Some("no address"));
        check("http://me:secret@host", Some("leave the password out"));
    }

    #[test]
    fn one_setting_on_the_command_line_is_enough() {
        let sets = ["tracking.mlflow.uri=http://127.0.0.1:5000".to_string()];
        let experiment = Experiment::parse("tracking: {tensorboard: true}\n", &sets).expect("read");
        assert!(experiment.tracking.tensorboard);
        let mlflow = experiment.tracking.mlflow.as_ref().expect("a server");
        assert_eq!(mlflow.uri, "http://127.0.0.1:5000");
        assert!(
            !Experiment::parse("", &[])
                .expect("read")
                .to_yaml(&Default::default())
                .contains("tracking")
        );
    }
}
