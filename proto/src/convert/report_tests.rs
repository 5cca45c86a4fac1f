//! Reports, statuses and talk about leases come back as they were, through bytes; numbers that are none too.

use std::time::Duration;

use salamander_core::asynchronous::{self, LeaseAnswer, LeaseAsk};
use salamander_core::elastic::{Beat, Count, Generation, Term, Version, WorkerId};
use salamander_core::ledger::Tally;
use salamander_core::metrics::{Measure, Metric, Metrics};
use salamander_core::note::NoteTopic;
use salamander_core::plan::MicroBatch;
use salamander_core::progress::{Progress, StepCount};
use salamander_core::report::{
    Brief, EndReport, EpochReport, EvaluationPart, Measured, Report, Start, StepReport, Timings,
};
use salamander_core::status::{
    CheckpointStatus, MicroBatchStatus, RestartCounts, ServerStatus, State, Status, TableStats,
    WorkerStatus,
};

use super::WorkerLeaseAsk;
use crate::v1;

/// Over the wire and back.
fn sent<M: prost::Message + Default>(message: M) -> M {
    M::decode(message.encode_to_vec().as_slice()).expect("decoded")
}

fn metrics() -> Metrics {
    Metrics::new()
        .with("loss", Metric::mean(f64::INFINITY, 2.0))
        .with("least", Metric::Min { value: -0.5 })
        .with("accuracy", Metric::Confusion { classes: 2, counts: vec![3, 1, 2, 4] })
        .with("auc", Metric::auc([(0.3, false), (0.7, true), (0.2, true)]))
        .with("pr_auc", Metric::pr_auc([(0.3, false), (0.7, true)]))
        .with("rmse", Metric::RootMean { sum: 8.0, records: 2.0 })
        .with(
            "recall",
            Metric::PerClass {
                measure: Measure::Recall,
                right: vec![1, 2],
                predicted: vec![2, 3],
                actual: vec![2, 3],
            },
        )
}

#[test]
fn reports_come_back_as_they_were() {
    let progress = Progress {
        steps: StepCount(7),
        training: metrics(),
        callbacks: [("own".to_string(), serde_json::json!({"list": [1, -2, 0.5, null, true]}))]
            .into(),
        ..Progress::default()
    };
    let ranks = vec![Timings { wall: Duration::from_millis(5), ..Timings::default() }];
    let validation = Some(metrics());
    let reports = [
        Report::Start(Start { total: StepCount(40), leads: true, ..Start::default() }),
        Report::Step(StepReport {
            loss: f64::INFINITY,
            gradient_norm: Some(0.0),
            ..Default::default()
        }),
        Report::Epoch(EpochReport { training: metrics(), validation, ..Default::default() }),
        Report::End(Box::new(EndReport { progress, ranks })),
    ];
    for report in reports {
        assert_eq!(Report::try_from(sent(v1::Report::from(report.clone()))), Ok(report));
    }
    let lost = StepReport { loss: f64::NAN, ..StepReport::default() };
    let wire = sent(v1::Report::from(Report::Step(lost)));
    assert!(matches!(Report::try_from(wire), Ok(Report::Step(step)) if step.loss.is_nan()));
    assert!(Report::try_from(v1::Report::default()).is_err());
}

#[test]
fn what_a_note_is_about_comes_back_as_it_was() {
    let topics = [
        NoteTopic::WorkerRefused(WorkerId(7)),
        NoteTopic::WorkerDropped(WorkerId(u64::MAX)),
        NoteTopic::WorkerReplaced(WorkerId(0)),
        NoteTopic::ProcessReplaced(3),
        NoteTopic::ServerLeaves(1),
        NoteTopic::WentBack(Generation { term: Term(2), number: 3 }),
        NoteTopic::CheckpointKept("step-1".into()),
    ];
    for topic in topics {
        let wire = sent(v1::NoteTopic::from(topic.clone()));
        assert_eq!(NoteTopic::try_from(wire), Ok(topic));
    }
    assert!(NoteTopic::try_from(v1::NoteTopic::default()).is_err());
}

#[test]
fn a_status_comes_back_as_it_was() {
    let generation = Generation { term: Term(2), number: 3 };
    let status = Status {
        state: State::Stopping,
        reason: Some("why".into()),
        term: Term(2),
        generation: Some(generation),
        version: Version(8),
        workers: vec![WorkerStatus {
            id: WorkerId(u64::MAX),
            slot: 1,
            pid: 2,
            endpoint: "a".into(),
            connected: true,
            member: Some(0),
            confirmed: false,
            beat: Some(Beat { records: 5, ..Beat::default() }),
        }],
        wanted: 3,
        servers: vec![ServerStatus {
            seat: 1,
            id: WorkerId(4),
            pid: None,
            endpoint: "b".into(),
            tables: vec![TableStats { name: "item".into(), evicted: 7, ..TableStats::default() }],
        }],
        wanted_servers: 2,
        restarts: RestartCounts { workers: 1, servers: 2, masters: 3 },
        checkpoint: Some(CheckpointStatus { id: "step-1".into(), version: Version(1), generation }),
        names: Some(MicroBatchStatus {
            left: 6,
            map: asynchronous::MapVersion(generation),
            ..MicroBatchStatus::default()
        }),
        last_report: Some(Report::Step(StepReport {
            steps: StepCount(7),
            ..StepReport::default()
        })),
        tasks: Some(Count { left: 1, leased: 2, done: 3 }),
        ..Status::default()
    };
    assert_eq!(Status::try_from(sent(v1::StatusReply::from(status.clone()))), Ok(status));
    let unknown = v1::StatusReply { state: 99, ..v1::StatusReply::from(Status::default()) };
    assert!(Status::try_from(unknown).is_err());
}

#[test]
fn talk_about_leased_names_comes_back_as_it_was() {
    let map = asynchronous::Map {
        number: asynchronous::MapVersion(Generation { term: Term(1), number: 4 }),
        servers: 2,
    };
    let names = vec![MicroBatch { epoch: 1, step: 2, k: 3 }];
    let tally =
        Tally { applied: 4, digest: u64::MAX, positions: vec![0..4, 9..12], ..Tally::default() };
    let measured =
        vec![Measured { tally, loss: f64::INFINITY, metrics: metrics(), ..Default::default() }];
    let acks = [asynchronous::Process { server: 1, incarnation: u64::MAX }].into();
    let report = asynchronous::Report { fence: 5, map, names: names.clone(), acks };
    let part = EvaluationPart { records: 3, metrics: metrics(), ..EvaluationPart::default() };
    let asks = [
        LeaseAsk::Work { most: 8 },
        LeaseAsk::Pushed { report, measured },
        LeaseAsk::GiveBack { fence: 0 },
        LeaseAsk::Validated { task: 1, fence: 2, part },
    ];
    for ask in asks {
        let ask = WorkerLeaseAsk { worker: WorkerId(9), ask };
        assert_eq!(
            WorkerLeaseAsk::try_from(sent(v1::MicroBatchRequest::from(ask.clone()))),
            Ok(ask)
        );
    }
    let task = asynchronous::Task { fence: 1, map, names, deadline: 77 };
    let (servers, brief) = (vec!["a".to_string()], Brief::default());
    let all = [
        LeaseAnswer::Leased { task, servers: servers.clone(), brief },
        LeaseAnswer::Validate { task: 1, fence: 2, batches: 3..5, map, servers },
        LeaseAnswer::Wait(0),
        LeaseAnswer::Done,
        LeaseAnswer::Heard(false),
    ];
    for told in all {
        assert_eq!(LeaseAnswer::try_from(sent(v1::MicroBatchReply::from(told.clone()))), Ok(told));
    }
}
