//! What a seed went through.

use crate::simulation::counts;

counts! {
    master_crashes: "master crashes",
    two_masters: "two masters at once",
    refused_entries: "old masters refused by the journal",
    refused_masters: "old masters refused by servers",
    refused_orders: "orders to another life of a server",
    refused_pushes: "pushes of another map refused",
    server_kills: "servers killed",
    usurped: "servers replaced while they lived",
    worker_kills: "workers killed",
    pauses: "processes paused",
    cuts: "networks cut",
    read: "partitions read from a checkpoint",
    moved: "partitions sent to another server",
    moves: "changes of the number of servers",
    checkpoints: "checkpoints kept",
    prunes: "prunes",
    ignored: "pushes of names that were there",
    unacked: "reports with an ack that did not count",
    other_map: "reports of another map",
    expired: "leases expired",
    released: "workers released while they lived",
    ahead: "names acknowledged before the one pushed earlier",
    slow: "slow copies",
    rotted: "parts of checkpoints damaged or lost",
    rotten: "partitions that older checkpoints were read for",
    reopened: "epochs reopened before their end was answered",
    resumed: "stopped runs resumed",
    applied: "names applied to partitions",
}
