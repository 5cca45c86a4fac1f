//! `experiment gc`, `checkpoint gc`: removes checkpoints that nobody needs any more.

use anyhow::Result;
use salamander_hub::gc::{CollectRequest, Collection};
use salamander_hub::store::page::ListQuery;
use salamander_hub::{ExperimentId, HubClient};
use serde_json::json;

use super::table::{size, table};

/// Which checkpoints stay.
#[derive(clap::Args)]
pub(crate) struct GcArgs {
    /// Only show what would go
    #[arg(long)]
    dry_run: bool,
    /// The best of all trials that stay [default: as its file says]
    #[arg(long, value_name = "N")]
    save_experiment_best: Option<u64>,
    /// The best of each trial that stay [default: as its file says]
    #[arg(long, value_name = "N")]
    save_trial_best: Option<u64>,
    /// The latest of each trial that stay [default: as its file says]
    #[arg(long, value_name = "N")]
    save_trial_latest: Option<u64>,
}

impl GcArgs {
    fn request(&self) -> CollectRequest {
        CollectRequest {
            dry_run: self.dry_run,
            save_experiment_best: self.save_experiment_best,
            save_trial_best: self.save_trial_best,
            save_trial_latest: self.save_trial_latest,
        }
    }
}

/// Of one experiment.
pub(super) fn one(client: &HubClient, id: ExperimentId, args: &GcArgs, json: bool) -> Result<()> {
    let collection = client.collect(id, &args.request())?;
    match json {
        true => outln!("{}", json!(collection))?,
        false => show(std::slice::from_ref(&collection))?,
    }
    Ok(())
}

/// Of all experiments that are over.
pub(super) fn all(client: &HubClient, args: &GcArgs, json: bool) -> Result<()> {
    let mut query = ListQuery {
        state: Some("completed,failed,canceled,interrupted".to_string()),
        archived: Some(true),
        sort: Some("id".to_string()),
        limit: Some(1000),
        ..ListQuery::default()
    };
    let mut collections = Vec::new();
    loop {
        let page = client.experiments(&query)?;
        for experiment in page.items {
            match client.collect(experiment.id, &args.request()) {
                Ok(collection) => collections.push(collection),
                // One whose folder is gone has none.
                Err(error) => errln!("experiment {}: {error}", experiment.id),
            }
        }
        match page.next {
            Some(next) => query.cursor = Some(next),
            None => break,
        }
    }
    match json {
        true => outln!("{}", json!(collections))?,
        false => show(&collections)?,
    }
    Ok(())
}

fn show(collections: &[Collection]) -> Result<()> {
    let removed = || collections.iter().flat_map(|collection| &collection.removed);
    let rows: Vec<[String; 3]> = removed()
        .map(|one| [one.run.to_string(), one.checkpoint.clone(), size(one.bytes)])
        .collect();
    if !rows.is_empty() {
        for line in table(["trial", "checkpoint", "size"], rows) {
            outln!("{line}")?;
        }
    }
    let is_dry = collections.iter().any(|collection| collection.dry_run);
    let (count, bytes) = (removed().count(), removed().map(|one| one.bytes).sum());
    let kept: usize = collections.iter().map(|collection| collection.kept).sum();
    let verb = if is_dry { "would go" } else { "removed" };
    outln!("{count} {verb} ({}), {kept} stay", size(bytes))?;
    Ok(())
}
