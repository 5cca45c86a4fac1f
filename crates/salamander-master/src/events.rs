//! What is told outside: reports once each, notes, the end; to the program's files and to whoever watches.

use std::collections::VecDeque;

use salamander_core::elastic::{Ending, GenerationChain, ReportPlace, Term, Version};
use salamander_core::note::{Note, NoteTopic};
use salamander_core::report::{Report, TaskResult};
use salamander_proto::v1;
use salamander_proto::v1::event::Event as Kind;
use tokio::sync::mpsc::error::TrySendError;
use tracing::info;

use crate::config::Sink;
use crate::sent_reports::SentReports;
use crate::session::Out;

/// So many are kept for watchers that come late.
const KEPT: usize = 10_000;

struct Watcher {
    out: Out<v1::Event>,
    seen: u64,
}

/// Numbered from 1 in the life of a master.
pub(crate) struct Events {
    term: Term,
    newest: u64,
    kept: VecDeque<v1::Event>,
    watchers: Vec<Watcher>,
    /// The newest (version, part) that was told.
    told: SentReports,
    pub(crate) last_report: Option<Report>,
    /// Where the program keeps what it is told.
    pub(crate) sink: Box<dyn Sink>,
}

impl Events {
    pub(crate) fn new(term: Term, told: SentReports, sink: Box<dyn Sink>) -> Self {
        Self {
            term,
            newest: 0,
            kept: VecDeque::new(),
            watchers: Vec::new(),
            told,
            last_report: None,
            sink,
        }
    }

    /// Takes a report, if nothing as new was taken before: whoever becomes the one that reports may
    /// repeat what another has told already.
    pub(crate) fn report(
        &mut self,
        line: GenerationChain,
        version: Version,
        report: Report,
    ) -> bool {
        let mut taken = self.told.taken();
        let place = ReportPlace { version, part: report.part() };
        if !taken.take(line, place) {
            return false;
        }
        self.sink.report(version, &report);
        self.told.set(taken);
        self.push(Kind::Report(report.clone().into()));
        self.last_report = Some(report);
        true
    }

    /// The run goes on from a checkpoint of this version: what comes after it is told anew.
    pub(crate) fn restored(&mut self, version: Version) {
        let mut taken = self.told.taken();
        taken.restored(version);
        self.told.set(taken);
    }

    /// Takes the result of a task.
    pub(crate) fn result(&mut self, task: u64, result: TaskResult) {
        self.sink.result(task, &result);
        self.push(Kind::Result(v1::FinishedTask { task, result: Some(result.into()) }));
    }

    pub(crate) fn note(&mut self, note: impl Into<Note>) {
        let Note { text, topic } = note.into();
        info!("{text}");
        self.sink.note(&text);
        self.push_about(Kind::Note(text), topic);
    }

    pub(crate) fn ended(&mut self, ending: Ending) {
        self.push(Kind::Ended(ending.into()));
    }

    pub(crate) fn watch(&mut self, request: v1::WatchRequest, out: Out<v1::Event>) {
        // Numbers of another master say nothing about this one's.
        let same = request.term == 0 || request.term == self.term.0;
        let seen = if same { request.after.min(self.newest) } else { 0 };
        self.watchers.push(Watcher { out, seen });
    }

    /// Hands watchers what they have room for.
    pub(crate) fn pump(&mut self) {
        let (kept, term) = (&self.kept, self.term);
        self.watchers.retain_mut(|watcher| feed(watcher, kept, term));
    }

    /// Whether everybody who watches has seen everything.
    pub(crate) fn all_seen(&self) -> bool {
        self.watchers.is_empty()
    }

    fn push(&mut self, event: Kind) {
        self.push_about(event, None);
    }

    fn push_about(&mut self, event: Kind, topic: Option<NoteTopic>) {
        self.newest += 1;
        if self.kept.len() == KEPT {
            self.kept.pop_front();
        }
        self.kept.push_back(v1::Event {
            number: self.newest,
            term: self.term.0,
            event: Some(event),
            topic: topic.map(Into::into),
        });
    }
}

/// Whether the watcher stays.
fn feed(watcher: &mut Watcher, kept: &VecDeque<v1::Event>, term: Term) -> bool {
    let oldest = kept.front().map_or(1, |event| event.number);
    let missed = (watcher.seen + 1 < oldest).then(|| {
        let missed = oldest - 1 - watcher.seen;
        let text = format!("{missed} events were missed: they are not kept for so long");
        let event = Some(Kind::Note(text));
        v1::Event { number: oldest - 1, term: term.0, event, topic: None }
    });
    let next = (watcher.seen + 1).saturating_sub(oldest) as usize;
    for event in missed.iter().chain(kept.iter().skip(next)) {
        match watcher.out.try_send(Ok(event.clone())) {
            Ok(()) => watcher.seen = event.number,
            Err(error) => return matches!(error, TrySendError::Full(_)),
        }
        if matches!(event.event, Some(Kind::Ended(_))) {
            return false;
        }
    }
    !watcher.out.is_closed()
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use salamander_core::elastic::TakenReports;
    use salamander_core::report::{EpochReport, Start, StepReport};
    use tokio::sync::mpsc;

    use super::*;

    #[derive(Clone, Default)]
    struct ReportedVersions(Arc<Mutex<Vec<u64>>>);

    impl Sink for ReportedVersions {
        fn report(&mut self, version: Version, _report: &Report) {
            self.0.lock().expect("not poisoned").push(version.0);
        }
        fn note(&mut self, _text: &str) {}
    }

    fn events(term: u32, told: Option<(u64, u32)>, sink: impl Sink + 'static) -> Events {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let mut sent_reports = SentReports::open(file.path()).expect("new");
        let newest = told.map(|(version, part)| ReportPlace { version: Version(version), part });
        sent_reports.set(TakenReports { newest, ..TakenReports::default() });
        Events::new(Term(term), sent_reports, Box::new(sink))
    }

    fn of_part(part: u32) -> Report {
        match part {
            0 => Report::Start(Start::default()),
            1 => Report::Step(StepReport::default()),
            2 => Report::Epoch(EpochReport::default()),
            _ => Report::End(Box::default()),
        }
    }

    #[test]
    fn a_report_is_told_once() {
        let told = ReportedVersions::default();
        let mut events = events(1, Some((1, 0)), told.clone());
        let places = [(1, 0), (2, 0), (2, 0), (1, 9), (2, 1), (5, 0), (3, 0)];
        let line = GenerationChain::default();
        let mut report = |version, part| events.report(line, Version(version), of_part(part));
        let taken = places.map(|(version, part)| report(version, part));
        assert_eq!(taken, [false, true, false, false, true, true, false]);
        assert_eq!(*told.0.lock().expect("not poisoned"), [2, 2, 5]);
    }

    fn numbers(seen: &mut mpsc::Receiver<Result<v1::Event, tonic::Status>>) -> Vec<u64> {
        let next = || seen.try_recv().ok().map(|event| event.expect("no error").number);
        std::iter::from_fn(next).collect()
    }

    #[test]
    fn a_watcher_goes_on_where_it_was() {
        let mut events = events(2, None, ());
        (0..5).for_each(|n| events.note(n.to_string()));
        for (after, term, first) in [(0, 0, 1), (3, 2, 4), (3, 1, 1), (99, 2, 6)] {
            let (out, mut seen) = mpsc::channel(64);
            events.watch(v1::WatchRequest { after, term }, out);
            events.pump();
            let expected: Vec<u64> = (first..=5).collect();
            assert_eq!(numbers(&mut seen), expected, "after {after} of {term}");
        }
    }

    #[test]
    fn a_slow_watcher_is_told_what_it_missed() {
        let mut events = events(1, None, ());
        let (out, mut seen) = mpsc::channel(2);
        events.watch(v1::WatchRequest::default(), out);
        (0..KEPT + 7).for_each(|n| events.note(n.to_string()));
        events.pump();
        let first = seen.try_recv().expect("there").expect("no error");
        let Some(Kind::Note(text)) = first.event else { panic!("a note") };
        assert!(text.starts_with("7 events were missed"), "{text}");
        assert_eq!(numbers(&mut seen), [8]);
        events.pump();
        assert_eq!(numbers(&mut seen), [9, 10]);
    }

    #[test]
    fn a_watcher_leaves_after_the_end() {
        let mut events = events(1, None, ());
        let (out, mut seen) = mpsc::channel(8);
        events.watch(v1::WatchRequest::default(), out);
        events.ended(Ending::Completed);
        events.pump();
        assert_eq!(numbers(&mut seen), [1]);
        assert!(events.all_seen());
    }
}
