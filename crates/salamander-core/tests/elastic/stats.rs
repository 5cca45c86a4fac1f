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
    busy: "promises that had to wait",
    slow_applies: "commits that took longer than a promise may",
    repeated_reports: "reports told again",
    crowds: "runs of six workers or more",
    one_way_cuts: "cuts in one direction",
    slow_links: "workers with slow links",
    handed_over: "workers ended since fewer are wanted",
    failures: "workers that failed",
    transfers: "states sent",
    checkpoints: "checkpoints journaled",
    late_checkpoints: "checkpoints that came too late",
    interrupted: "runs stopped early",
    resumed: "stopped runs resumed",
    commits: "commits",
}
