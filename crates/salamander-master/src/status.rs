//! Where a run stands, for people and programs.

use salamander_core::elastic::{Coordinator, Ending, Phase};
use salamander_core::status::{
    CheckpointStatus, RestartCounts, ServerStatus, State, Status, WorkerStatus,
};
use salamander_proto::client::Role;

use crate::master::Master;
use crate::mode::Mode;

/// What the master knows.
pub(crate) fn of(master: &Master) -> Status {
    let Master { mode, cluster, .. } = master;
    let run = mode.run();
    let history = run.history();
    let (generation, names, tasks) = match mode {
        Mode::Members(members) => (members.coordinator.generation(), None, None),
        Mode::Leases(leases) => (None, Some(leases.dispatcher.status()), None),
        Mode::Tasks(tasks) => (None, None, Some(tasks.queue.count())),
    };
    let version = match mode {
        Mode::Leases(leases) => cluster.version.max(leases.version),
        Mode::Members(_) | Mode::Tasks(_) => cluster.version,
    };
    let restarts = cluster.processes.restarts();
    Status {
        state: state(mode),
        reason: match run.ending() {
            Some(Ending::Failed(reason)) => Some(reason.clone()),
            _ => None,
        },
        term: run.term(),
        generation,
        generations: history.generations,
        version,
        workers: workers(master),
        wanted: run.wanted().workers,
        servers: servers(master),
        wanted_servers: run.wanted().servers,
        restarts: RestartCounts {
            workers: restarts.workers,
            servers: restarts.servers,
            masters: cluster.master_restarts,
        },
        checkpoint: match mode {
            Mode::Leases(leases) => leases.kept.clone(),
            Mode::Members(_) | Mode::Tasks(_) => {
                history.checkpoint.as_ref().map(|mark| CheckpointStatus {
                    id: mark.id.clone(),
                    version: mark.version,
                    generation: mark.generation,
                })
            }
        },
        names,
        last_report: cluster.events.last_report.clone(),
        tasks,
    }
}

fn state(mode: &Mode) -> State {
    match (mode.run().ending(), mode) {
        (Some(ending), _) => ending.into(),
        (None, Mode::Members(members)) => phase(&members.coordinator),
        (None, Mode::Leases(leases)) if leases.is_leaving() => State::Stopping,
        (None, Mode::Leases(_) | Mode::Tasks(_)) => State::Running,
    }
}

fn phase(coordinator: &Coordinator) -> State {
    match coordinator.phase() {
        Phase::Gathering => State::Gathering,
        Phase::Preparing(_) => State::Regrouping,
        Phase::Running(_) if coordinator.run().history().stopping => State::Stopping,
        Phase::Running(_) => State::Running,
        Phase::Ended(ending) => ending.into(),
    }
}

fn servers(master: &Master) -> Vec<ServerStatus> {
    let server = |(seat, peer): (u32, &salamander_core::elastic::Peer)| {
        let known = master.cluster.workers.get(peer.id);
        ServerStatus {
            seat,
            id: peer.id,
            pid: known.map(|server| server.registration.process),
            endpoint: peer.endpoint.clone(),
            tables: known.map_or_else(Vec::new, |server| server.tables.clone()),
        }
    };
    master.mode.run().servers().map(server).collect()
}

fn workers(master: &Master) -> Vec<WorkerStatus> {
    let members = match &master.mode {
        Mode::Members(members) => members.coordinator.members(),
        _ => Vec::new(),
    };
    let worker = |(id, worker): (_, &crate::workers::Worker)| {
        let member = members.iter().position(|(member, _)| *member == id);
        WorkerStatus {
            id,
            slot: worker.registration.slot,
            pid: worker.registration.process,
            endpoint: worker.registration.endpoint.clone(),
            connected: worker.is_connected(),
            member,
            confirmed: member.is_some_and(|rank| members[rank].1),
            beat: worker.beat,
        }
    };
    let is_worker =
        |(_, worker): &(_, &crate::workers::Worker)| worker.registration.role != Role::Server;
    master.cluster.workers.iter().filter(is_worker).map(worker).collect()
}
