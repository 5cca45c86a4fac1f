//! The thread that owns a version of a model: it computes as soon as something waits, all that fits together.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::loading;
use super::statistics::Statistics;
use super::waiting::{BatchSize, Most, Taken, WaitingRequests};
use crate::model::{Decoded, Decoder, Failed, Loaded, Model};
use crate::refusal::Refusal;
use crate::tensor::Tensor;

/// How requests are computed together.
#[derive(Clone, Copy, Debug)]
pub struct Batching {
    /// The most rows of a batch.
    pub rows: usize,
    /// The most tokens of a batch, for models of texts; a single request may have more.
    pub tokens: usize,
    /// How long a batch waits for more; not at all by default.
    pub delay: Duration,
    /// The most requests that wait.
    pub queue: usize,
    /// The most rows that wait.
    pub queue_rows: usize,
    /// How long a request may wait that says nothing else.
    pub timeout: Option<Duration>,
}

impl Default for Batching {
    fn default() -> Self {
        Self {
            rows: 64,
            tokens: 4096,
            delay: Duration::ZERO,
            queue: 256,
            queue_rows: 4096,
            timeout: None,
        }
    }
}

impl Batching {
    fn most(&self) -> BatchSize {
        BatchSize { rows: self.rows, tokens: self.tokens }
    }
}

/// What was computed for a request.
#[derive(Debug)]
pub(crate) struct ComputedAnswer {
    pub(crate) outputs: Vec<Tensor>,
    /// How long the request waited.
    pub(crate) queued: Duration,
    /// How long its batch was computed.
    pub(crate) computed: Duration,
}

type Reply = Result<ComputedAnswer, Refusal>;

struct InferenceJob {
    input: Decoded,
    since: Instant,
    reply: oneshot::Sender<Reply>,
}

struct OwnerQueue {
    waiting: WaitingRequests<InferenceJob>,
    closing: bool,
}

struct OwnerShared {
    state: Mutex<OwnerQueue>,
    wake: Condvar,
    batching: Batching,
    statistics: Arc<Statistics>,
}

impl OwnerShared {
    fn lock(&self) -> MutexGuard<'_, OwnerQueue> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What others see of a loaded model.
pub(crate) struct LoadedParts {
    pub(crate) decoder: Arc<dyn Decoder>,
    pub(crate) unknown_ids: Option<Arc<AtomicU64>>,
}

/// A thread with a model. It ends when this is dropped and nothing waits any more.
pub(crate) struct Owner {
    shared: Arc<OwnerShared>,
}

impl Owner {
    /// Starts the thread of a model that was loaded.
    pub(crate) fn start(
        Loaded { decoder, model }: Loaded,
        version: &str,
        batching: Batching,
        statistics: Arc<Statistics>,
    ) -> Result<(Self, LoadedParts), String> {
        let most = Most { requests: batching.queue, rows: batching.queue_rows };
        let state = Mutex::new(OwnerQueue { waiting: WaitingRequests::new(most), closing: false });
        let shared = Arc::new(OwnerShared { state, wake: Condvar::new(), batching, statistics });
        let unknown_ids = model.unknown_ids();
        let own = Arc::clone(&shared);
        let owned = Loaded { decoder: Arc::clone(&decoder), model };
        let thread = std::thread::Builder::new().name(format!("model-{version}"));
        thread
            .spawn(move || own_model(owned, &own))
            .map_err(|error| format!("cannot start a thread: {error}"))?;
        Ok((Self { shared }, LoadedParts { decoder, unknown_ids }))
    }

    /// Puts a request before the thread.
    pub(crate) fn submit(
        &self,
        input: Decoded,
        deadline: Option<Instant>,
    ) -> Result<oneshot::Receiver<Reply>, Refusal> {
        let (reply, answer) = oneshot::channel();
        let size = BatchSize { rows: input.rows, tokens: input.tokens };
        let job = InferenceJob { input, since: Instant::now(), reply };
        let mut state = self.shared.lock();
        if state.waiting.push(job, size, deadline).is_err() {
            return Err(busy(&state));
        }
        drop(state);
        self.shared.wake.notify_one();
        Ok(answer)
    }

    /// Refuses where too many wait already, before anything is made of a request: to refuse must cost less than to
    /// answer.
    pub(crate) fn check_room(&self) -> Result<(), Refusal> {
        let state = self.shared.lock();
        if state.waiting.is_full() { Err(busy(&state)) } else { Ok(()) }
    }

    /// Requests that wait.
    pub(crate) fn waiting(&self) -> usize {
        self.shared.lock().waiting.len()
    }
}

fn busy(state: &OwnerQueue) -> Refusal {
    Refusal::Busy(format!("{} requests wait already: try again", state.waiting.len()))
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.shared.lock().closing = true;
        self.shared.wake.notify_one();
    }
}

fn own_model(Loaded { decoder, mut model }: Loaded, shared: &OwnerShared) {
    model.enter();
    while let Some(Taken { batch, late, cancelled }) = next(shared) {
        shared.statistics.cancelled(cancelled);
        for job in late {
            let _ = job.reply.send(Err(Refusal::Late));
        }
        if !batch.is_empty() {
            compute(&mut *model, batch, &shared.statistics);
        }
    }
    // Another version answers meanwhile, and weights and vocabularies take a while to be given back.
    loading::step_back();
    drop((model, decoder));
}

/// Waits for requests; nothing when there will be none.
fn next(shared: &OwnerShared) -> Option<Taken<InferenceJob>> {
    let mut state = shared.lock();
    while state.waiting.is_empty() {
        if state.closing {
            return None;
        }
        state = shared.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
    }
    let until = Instant::now() + shared.batching.delay;
    while state.waiting.size().is_below(shared.batching.most()) && !state.closing {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        let waited = shared.wake.wait_timeout(state, left);
        state = waited.unwrap_or_else(PoisonError::into_inner).0;
    }
    let most = shared.batching.most();
    Some(state.waiting.take(most, Instant::now(), |job| job.reply.is_closed()))
}

fn compute(model: &mut dyn Model, batch: Vec<InferenceJob>, statistics: &Statistics) {
    let begin = Instant::now();
    let (mut inputs, mut askers) = (Vec::new(), Vec::new());
    for InferenceJob { input, since, reply } in batch {
        askers.push(Asker { rows: input.rows, queued: begin.duration_since(since), reply });
        inputs.push(input);
    }
    let rows = askers.iter().map(|asker| asker.rows).sum();
    let computed = infer(model, inputs);
    let took = begin.elapsed();
    statistics.executed(rows, took);
    match computed {
        Ok(outputs) => give(&outputs, askers, took),
        // Each alone: a bad one must not spoil the others.
        Err(Failed { batch, .. }) if batch.len() == askers.len() && batch.len() > 1 => {
            for (input, asker) in batch.into_iter().zip(askers) {
                match infer(model, vec![input]) {
                    Ok(outputs) => give(&outputs, vec![asker], took),
                    Err(failed) => asker.fail(refusal(failed)),
                }
            }
        }
        Err(failed) => {
            let refusal = refusal(failed);
            askers.into_iter().for_each(|asker| asker.fail(refusal.clone()));
        }
    }
}

/// Asks the model. A panic is the failure of those who asked, whose records it took along: the thread goes on, because
/// without it requests would wait for ever before a queue that takes them.
fn infer(model: &mut dyn Model, batch: Vec<Decoded>) -> Result<Vec<Tensor>, Failed> {
    catch_unwind(AssertUnwindSafe(|| model.infer(batch))).unwrap_or_else(|_| {
        let reason = "the model panicked".to_string();
        Err(Failed { reason, mistake: false, batch: Vec::new() })
    })
}

/// Who waits for an answer.
struct Asker {
    rows: usize,
    queued: Duration,
    reply: oneshot::Sender<Reply>,
}

impl Asker {
    fn fail(self, refusal: Refusal) {
        let _ = self.reply.send(Err(refusal));
    }
}

fn refusal(Failed { reason, mistake, .. }: Failed) -> Refusal {
    if mistake { Refusal::Invalid(reason) } else { Refusal::Failed(reason) }
}

/// Cuts outputs into those of each request.
fn give(outputs: &[Tensor], askers: Vec<Asker>, computed: Duration) {
    let rows: usize = askers.iter().map(|asker| asker.rows).sum();
    if let Some(wrong) = outputs.iter().find(|output| output.rows() != rows) {
        let reason =
            format!("output \"{}\" has {} rows for {rows} records", wrong.name, wrong.rows());
        let refusal = Refusal::Failed(reason);
        return askers.into_iter().for_each(|asker| asker.fail(refusal.clone()));
    }
    let mut first = 0;
    for Asker { rows, queued, reply } in askers {
        let own = outputs.iter().map(|output| output.rows_in(first..first + rows)).collect();
        first += rows;
        let _ = reply.send(Ok(ComputedAnswer { outputs: own, queued, computed }));
    }
}
