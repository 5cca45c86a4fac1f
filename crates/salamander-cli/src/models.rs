//! `salamander models`: what can be trained by this program.

use anyhow::Result;
use salamander_train::model::Models;
use serde_json::json;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Print a JSON list instead
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args, models: &Models) -> Result<()> {
    if args.json {
        let list: Vec<_> = models
            .iter()
            .map(|model| {
                let hparams: Vec<_> = model
                    .hparams()
                    .iter()
                    .map(|hp| {
                        json!({"name": hp.name, "type": hp.kind, "default": hp.default,
                            "min": hp.range.0, "max": hp.range.1})
                    })
                    .collect();
                json!({"name": model.name(), "hyperparameters": hparams})
            })
            .collect();
        outln!("{}", serde_json::Value::from(list))?;
        return Ok(());
    }
    for model in models.iter() {
        outln!("{}", model.name())?;
        for hp in model.hparams() {
            let default = hp.default.map_or("required".to_string(), |value| format!("= {value}"));
            let range = match hp.range {
                (None, None) => String::new(),
                (low, high) => {
                    let bound = |b: Option<f64>| b.map_or("..".to_string(), |b| b.to_string());
                    format!("  [{}, {}]", bound(low), bound(high))
                }
            };
            outln!("  {:<16} {:<8} {default}{range}", hp.name, hp.kind)?;
        }
    }
    Ok(())
}
