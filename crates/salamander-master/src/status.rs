//! Where a run stands, as JSON for people and programs.

use salamander_core::elastic::{Ending, Phase, Work};
use serde_json::{Value, json};

use crate::master::Master;
use crate::workers::Kind;

/// `{state, reason, epoch, generation, generations, version, workers, servers, wanted,
/// wanted_servers, restarts, checkpoint,
/// names, last_report, tasks}`.
pub(crate) fn json(master: &Master) -> Value {
    let coordinator = &master.coordinator;
    let history = coordinator.history();
    let names = master.names.as_ref();
    let (state, reason) = match coordinator.phase() {
        Phase::Gathering if master.tasks.is_some() => ("running", None),
        Phase::Gathering if names.is_some_and(|names| names.leaving.is_some()) => {
            ("stopping", None)
        }
        Phase::Gathering if names.is_some() => ("running", None),
        Phase::Gathering => ("gathering", None),
        Phase::Preparing(_) => ("regrouping", None),
        Phase::Running(_) if history.stopping => ("stopping", None),
        Phase::Running(_) => ("running", None),
        Phase::Ended(Ending::Completed) => ("completed", None),
        Phase::Ended(Ending::Interrupted) => ("interrupted", None),
        Phase::Ended(Ending::Failed(reason)) => ("failed", Some(reason)),
    };
    let generation = match coordinator.phase() {
        Phase::Preparing(generation) | Phase::Running(generation) => Some(*generation),
        _ => history.activated.as_ref().map(|(generation, _)| *generation),
    };
    json!({
        "state": state,
        "reason": reason,
        "epoch": coordinator.epoch(),
        "generation": generation.map(|generation| generation.to_string()),
        "generations": history.generations,
        "version": master.version,
        "workers": workers(master),
        "wanted": coordinator.wanted(),
        "servers": servers(master),
        "wanted_servers": coordinator.wanted_servers(),
        "restarts": {
            "worker": master.processes.restarts(),
            "ps": master.processes.server_restarts(),
            "master": master.master_restarts,
        },
        "checkpoint": history.checkpoint.as_ref().map(|mark| json!({
            "id": mark.id,
            "version": mark.version,
            "generation": mark.generation.to_string(),
        })),
        "names": names.map(|names| {
            let progress = names.dispatcher.progress();
            json!({
                "epochs": progress.epochs,
                "left": progress.left,
                "leased": progress.leased,
                "servers": progress.servers,
                "map": names.dispatcher.map().number.to_string(),
            })
        }),
        "last_report": master.events.last_report(),
        "tasks": master.tasks.as_ref().map(|tasks| {
            let count = tasks.count();
            json!({ "left": count.left, "leased": count.leased, "done": count.done })
        }),
    })
}

fn servers(master: &Master) -> Vec<Value> {
    let server = |(seat, peer): (u32, &salamander_core::elastic::Peer)| {
        let pid = master.workers.get(peer.id).map(|server| server.pid);
        json!({"seat": seat, "id": peer.id.to_string(), "pid": pid, "endpoint": peer.endpoint})
    };
    master.coordinator.servers().map(server).collect()
}

fn workers(master: &Master) -> Vec<Value> {
    let members = master.coordinator.members();
    let rank = |id| members.iter().position(|(member, _)| *member == id);
    let worker = |(id, worker): (_, &crate::workers::Worker)| {
        let rank = rank(id);
        let beat = worker.beat.map(|beat| {
            json!({
                "work": match beat.work {
                    Work::Idle => "idle",
                    Work::Computing => "computing",
                    Work::Exchanging => "exchanging",
                },
                "for_ms": beat.for_ms,
                "records": beat.records,
                "compute_ms": beat.compute_ms,
            })
        });
        json!({
            "id": id.to_string(),
            "slot": worker.slot,
            "pid": worker.pid,
            "endpoint": worker.endpoint,
            "connected": worker.is_connected(),
            "member": rank,
            "confirmed": rank.is_some_and(|rank| members[rank].1),
            "beat": beat,
        })
    };
    let is_worker = |(_, worker): &(_, &crate::workers::Worker)| worker.kind != Kind::Server;
    master.workers.iter().filter(is_worker).map(worker).collect()
}
