//! The table: each type of ours, and the message that it travels as.

use std::ops::Range;

use salamander_core::asynchronous::{self, LeaseAnswer, LeaseAsk, Map};
use salamander_core::elastic::{
    Activation, Beat, CheckpointMark, Count, Ended, Ending, FromMember, Holding, Identity, Lease,
    Order, Peer, StateSource, Task, ToMember, Work,
};
use salamander_core::ledger::Tally;
use salamander_core::metrics::{Measure, Metric};
use salamander_core::note::NoteTopic;
use salamander_core::plan::MicroBatch;
use salamander_core::report::{
    Brief, EndReport, EpochReport, EvaluationPart, Measured, Report, Start, StepReport, TaskResult,
    Timings,
};
use salamander_core::schedule::Plateau;
use salamander_core::status::{
    CheckpointStatus, MicroBatchStatus, RestartCounts, ServerStatus, State, Status, TableStats,
    WorkerStatus,
};

use super::WorkerLeaseAsk;
use super::wire::{FieldName, MessageField, alternatives, message, payload, structs, words};
use super::{
    Error, Finished, FromMaster, FromProcess, Hello, Inventory, Numbered, ProcessEnd, TableReport,
};
use crate::client::{Registration, Role, TrainedOn};
use crate::v1;

// Sessions.
structs! {
    Numbered => ProcessMessage { number, said };
    Hello => Hello { registration, active };
    Registration => Registration { id, endpoint, slot, process, role };
    TrainedOn => TrainedOn {
        records, fingerprint, instructions, blocking, program, probe, settings, optimizer, files, release
    };
    Inventory => Inventory { running, ended };
    ProcessEnd => ProcessEnd { id, slot, pid, how };
    Beat => Beat { work, for_ms, records, compute_ms, exchange_ms, data_ms };
    Identity => Identity { version, generation, lineage };
    Holding => Holding { identity, confirmed };
    CheckpointMark => Checkpoint { id, version, generation };
    Peer => Peer { id, endpoint };
    Activation => Activation { generation, members, source, transfer, servers, rows, destination }
        if has_source;
}
alternatives! {
    FromProcess => process_message::Said {
        Hello(hello), Inventory(inventory), Beat(beat), Member(message),
        Report { version, generation, report } as VersionedReport, Failed(reason), End(end),
        Tables(report),
    }
    FromMaster => master_message::Said in MasterMessage.said {
        Welcome(term), Received(number), Member(message), Order(order),
    }
    Role => role::Kind in Role.kind { Member(data), Tasks(data), Server {} }
    FromMember => from_member::Kind in FromMember.kind {
        Promise(generation, holding) as Promise, Confirmed(generation),
        Broken(generation, accused) as Broken, Wrote(mark),
        Reached(generation, ending) as Reached, Moved(generation), Leave {}, Busy(generation),
        Holds(generation),
    }
    ToMember => to_member::Kind in ToMember.kind {
        Prepare(generation), Activate(activation), Kept(mark), Stop {}, Save {}, Ended(ending),
    }
    StateSource => source::Kind in Source.kind {
        Member { rank, identity } as MemberSource, Checkpoint { rank, mark } as CheckpointSource,
    }
    Ending => ending::Kind in Ending.kind { Completed {}, Interrupted {}, Failed(reason) }
    Ended => ended::Kind in Ended.kind { Finished {}, Killed(by), Crashed(reason), Mistaken(reason) }
    Order => order::Kind in Order.kind { Start(slot), End(slot) }
    NoteTopic => note_topic::Kind in NoteTopic.kind {
        WorkerRefused(worker), WorkerDropped(worker), WorkerReplaced(worker), ProcessReplaced(slot),
        ServerLeaves(seat), WentBack(generation), CheckpointKept(id),
    }
}

// Reports.
structs! {
    Start => Start {
        done, total, total_batches, steps_per_epoch, epochs, records, parameters, workers, leads
    };
    StepReport => Step {
        epoch, step, steps, batches, records, loss, learning_rate, gradient_norm, skipped,
        loss_scale
    };
    EpochReport => Epoch { epoch, complete, steps, training, validation, seconds, best };
    EndReport => End { progress, ranks };
    Timings => Timings { compute, exchange, data, test, wall };
}
alternatives! {
    Report => report::Kind in Report.kind { Start(start), Step(step), Epoch(epoch), End(end) }
    Metric => metric::Kind in Metric.kind {
        Mean { sum, records } as Mean, Sum { value }, Max { value }, Min { value },
        Confusion { classes, counts } as Confusion, Auc { buckets }, PrAuc { buckets },
        RootMean { sum, records } as Mean,
        PerClass { measure, right, predicted, actual } as PerClass,
    }
}

// Tasks, and leases of micro-batches.
structs! {
    Task => Task { id, range, fence, deadline };
    Range<u64> => Range { start, end };
    Finished => FinishRequest { worker, task, fence, outcome };
    TaskResult => TaskResult { file, skipped };
    WorkerLeaseAsk => MicroBatchRequest { worker, ask };
    asynchronous::Report => PushReport { fence, map, names, acks };
    asynchronous::Task => MicroBatchTask { fence, map, names, deadline };
    asynchronous::Process => ServerProcess { server, incarnation };
    Map => ServerMap { number, servers };
    MicroBatch => MicroBatch { epoch, step, k };
    Measured => Measured { tally, loss, metrics, rate, gradient_norm, timings };
    Tally => Tally { applied, skipped, overflowed, digest, positions };
    EvaluationPart => EvaluationPart { loss, metrics, records, skipped };
    Brief => Brief { plateau };
    Plateau => Plateau { factor, best, waited };
}
alternatives! {
    Lease => lease_reply::Lease in LeaseReply.lease { Leased(task), Wait(wait), Done {} }
    Result<TaskResult, String> => finish_request::Outcome { Ok(result), Err(reason) }
    LeaseAsk => micro_batch_request::Ask {
        Work { most }, Pushed { report, measured } as Pushed, GiveBack { fence },
        Validated { task, fence, part } as Validated,
    }
    LeaseAnswer => micro_batch_reply::Told in MicroBatchReply.told {
        Leased { task, servers, brief } as LeasedMicroBatches,
        Validate { task, fence, batches, map, servers } as ValidationTask,
        Wait(wait), Done {}, Heard(heard),
    }
}

// Status.
structs! {
    Status => StatusReply {
        state, reason, term, generation, generations, version, workers, wanted, servers,
        wanted_servers, restarts, checkpoint, names, last_report, tasks
    };
    WorkerStatus => WorkerStatus { id, slot, pid, endpoint, connected, member, confirmed, beat };
    ServerStatus => ServerStatus { seat, id, pid, endpoint, tables };
    TableReport => TableReport { tables };
    TableStats => TableStats { name, rows, bytes, admitted, waiting, expired, evicted, lookups };
    RestartCounts => RestartCounts { workers, servers, masters };
    CheckpointStatus => Checkpoint { id, version, generation };
    MicroBatchStatus => MicroBatchStatus { epochs, left, leased, servers, map };
    Count => TaskCount { left, leased, done };
}
words! {
    State => status_reply::State {
        Gathering, Regrouping, Running, Stopping, Completed, Interrupted, Failed
    };
    Work => beat::Work { Idle, Computing, Exchanging };
    Measure => per_class::Measure { Precision, Recall, F1 };
}

/// The state of a generation comes from one of its members.
fn has_source(activation: &Activation) -> Result<(), Error> {
    let rank = activation.source.rank();
    match rank < activation.members.len() {
        true => Ok(()),
        false => Err(FieldName { message: "Activation", field: "source" }.wrong(rank as i64)),
    }
}
