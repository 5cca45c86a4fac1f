//! What a seed went through.

use crate::simulation::counts;

counts! {
    masters: "masters",
    master_crashes: "master crashes",
    two_masters: "two masters at once",
    refused_masters: "old masters refused by workers",
    refused_entries: "old masters refused by the journal",
    generations: "generations",
    restores: "restores from a checkpoint",
    dropped_sleepers: "sleepers dropped",
    kills: "kills",
    kills_in_exchange: "kills in mid-exchange",
    late_results: "results that came too late",
    late_promises: "promises that waited for a commit",
    transfers: "states sent",
    checkpoints: "checkpoints journaled",
    late_checkpoints: "checkpoints that came too late",
    interrupted: "runs stopped early",
    resumed: "stopped runs resumed",
    commits: "commits",
}
