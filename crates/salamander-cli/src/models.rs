//! `salamander models`: what can be trained by this program.

use anyhow::Result;
use salamander_core::hparams::SearchRange;
use salamander_search::written;
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
                            "min": hp.range.min, "max": hp.range.max,
                            "search": hp.search.as_ref().map(|range| written(range, hp.is_integer()))})
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
            let range = match (hp.range.min, hp.range.max) {
                (None, None) => String::new(),
                (low, high) => {
                    let bound = |b: Option<f64>| b.map_or("..".to_string(), |b| b.to_string());
                    format!("  [{}, {}]", bound(low), bound(high))
                }
            };
            let search = match hp.search {
                None => String::new(),
                Some(SearchRange::Between { low, high, log }) => {
                    format!("  search {low} to {high}{}", if log { " (log)" } else { "" })
                }
                Some(SearchRange::Choices(values)) => {
                    let values: Vec<String> = values.iter().map(ToString::to_string).collect();
                    format!("  search {}", values.join(", "))
                }
            };
            outln!("  {:<16} {:<8} {default}{range}{search}", hp.name, hp.kind)?;
        }
    }
    Ok(())
}
