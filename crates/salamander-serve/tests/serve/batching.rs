//! What is computed together, what waits, and what is refused; each answer is its request's own.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::support::{PANICS, Running, Times, post, registry};
use salamander_serve::{
    Batching, DataType, InferRequest, Input, Refusal, Registry, ServerOptions, Tensor, Values,
};
use tokio::runtime::Runtime;

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

fn request(model: &str, values: Vec<f32>) -> InferRequest {
    let shape = [values.len() as i64, 1];
    let x = Tensor::new("x", DataType::Fp32, &shape, Values::Floats(values)).unwrap();
    InferRequest {
        model: model.to_string(),
        version: None,
        input: Input::Tensors(vec![x]),
        outputs: Vec::new(),
        timeout: None,
    }
}

/// What a request was told: products, and how many records were computed together.
type Asked = Result<(Vec<f32>, Vec<i64>), Refusal>;

async fn ask(registry: &Registry, request: InferRequest) -> Asked {
    let outputs = registry.infer(request).await?.outputs;
    match (&outputs[0].values, &outputs[1].values) {
        (Values::Floats(y), Values::Ints(together)) => Ok((y.clone(), together.clone())),
        other => panic!("{other:?}"),
    }
}

/// Requests while the model is held, in order; returns when all of them wait.
fn held(
    runtime: &Runtime,
    registry: &Registry,
    model: &Times,
    requests: Vec<InferRequest>,
) -> Vec<tokio::task::JoinHandle<Asked>> {
    model.gate.close();
    let spawn = |request| {
        let registry = registry.clone();
        runtime.spawn(async move { ask(&registry, request).await })
    };
    let mut tasks = vec![spawn(self::request("m", vec![0.0]))];
    model.gate.wait_until_held();
    for (number, request) in requests.into_iter().enumerate() {
        tasks.push(spawn(request));
        while registry.waiting("m") < number + 1 && !tasks[number + 1].is_finished() {
            std::thread::yield_now();
        }
    }
    tasks
}

#[test]
fn a_timeout_beyond_all_time_is_none() {
    let (runtime, model) = (runtime(), Times::new(2.0));
    let registry = registry(&[("m", &model)], Batching::default());
    let request = InferRequest { timeout: Some(Duration::MAX), ..request("m", vec![1.0]) };
    let (products, _) = runtime.block_on(ask(&registry, request)).unwrap();
    assert_eq!(products, [2.0]);
}

#[test]
fn what_waits_is_computed_together_and_starts_when_idle() {
    let (runtime, model) = (runtime(), Times::new(2.0));
    let registry = registry(&[("m", &model)], Batching { rows: 4, ..Batching::default() });
    let requests = vec![
        request("m", vec![1.0, 2.0]),
        request("m", vec![3.0, 4.0]),
        request("m", vec![5.0]),
        request("m", vec![6.0; 9]),
    ];
    let tasks = held(&runtime, &registry, &model, requests);
    model.gate.open();
    let answers: Vec<_> =
        tasks.into_iter().map(|task| runtime.block_on(task).unwrap().unwrap()).collect();
    let expected = [
        (vec![0.0], vec![1]),
        (vec![2.0, 4.0], vec![4, 4]),
        (vec![6.0, 8.0], vec![4, 4]),
        (vec![10.0], vec![1]),
        (vec![12.0; 9], vec![9; 9]),
    ];
    assert_eq!(answers, expected);
}

#[test]
fn a_full_queue_refuses_at_once() {
    let (runtime, model) = (runtime(), Times::new(2.0));
    let registry = registry(&[("m", &model)], Batching { queue: 2, ..Batching::default() });
    let requests = (0..3).map(|x| request("m", vec![x as f32])).collect();
    let mut tasks = held(&runtime, &registry, &model, requests);
    let refused = runtime.block_on(tasks.pop().unwrap()).unwrap();
    assert_eq!(refused, Err(Refusal::Busy("2 requests wait already: try again".to_string())));
    let options = ServerOptions { busy_status: 507, ..ServerOptions::default() };
    let server = Running::start(registry, options);
    let answer = post(server.address, "/v2/models/m/infer", "", br#"{"x": 1}"#);
    assert_eq!((answer.status, answer.header("retry-after")), (507, Some("1")));
    model.gate.open();
    for task in tasks {
        assert!(runtime.block_on(task).unwrap().is_ok());
    }
}

#[test]
fn late_and_cancelled_requests_are_not_computed() {
    let (runtime, model) = (runtime(), Times::new(2.0));
    let registry = registry(&[("m", &model)], Batching::default());
    let late = InferRequest { timeout: Some(Duration::from_nanos(1)), ..request("m", vec![1.0]) };
    let requests = vec![late, request("m", vec![2.0]), request("m", vec![3.0])];
    let mut tasks = held(&runtime, &registry, &model, requests);
    tasks[2].abort();
    let cancelled = runtime.block_on(tasks.remove(2));
    assert!(cancelled.unwrap_err().is_cancelled());
    model.gate.open();
    let answers: Vec<_> = tasks.into_iter().map(|task| runtime.block_on(task).unwrap()).collect();
    assert_eq!(answers[1], Err(Refusal::Late));
    assert_eq!(answers[2], Ok((vec![6.0], vec![1])), "it was computed alone");
}

#[test]
fn a_bad_request_does_not_spoil_those_beside_it() {
    let (runtime, model) = (runtime(), Times::new(2.0));
    let registry = registry(&[("m", &model)], Batching::default());
    let requests = [1.0, 13.0, 3.0].map(|x| request("m", vec![x])).into();
    let tasks = held(&runtime, &registry, &model, requests);
    model.gate.open();
    let answers: Vec<_> = tasks.into_iter().map(|task| runtime.block_on(task).unwrap()).collect();
    assert_eq!(answers[1], Ok((vec![2.0], vec![1])));
    assert_eq!(answers[2], Err(Refusal::Invalid("13 brings bad luck".to_string())));
    assert_eq!(answers[3], Ok((vec![6.0], vec![1])));
}

#[test]
fn a_panic_answers_those_who_asked_and_the_model_goes_on() {
    let (runtime, model) = (runtime(), Times::new(2.0));
    let registry = registry(&[("m", &model)], Batching { rows: 2, ..Batching::default() });
    let requests = [1.0, PANICS, 3.0].map(|x| request("m", vec![x])).into();
    let tasks = held(&runtime, &registry, &model, requests);
    model.gate.open();
    let answers: Vec<_> = tasks.into_iter().map(|task| runtime.block_on(task).unwrap()).collect();
    let panicked = Err(Refusal::Failed("the model panicked".to_string()));
    assert_eq!(answers[1], panicked, "it was computed with the one that panicked");
    assert_eq!(answers[2], panicked);
    assert_eq!(answers[3], Ok((vec![6.0], vec![1])));
    // Where each of a batch is tried alone, too.
    let requests = [13.0, PANICS].map(|x| request("m", vec![x])).into();
    let tasks = held(&runtime, &registry, &model, requests);
    model.gate.open();
    let answers: Vec<_> = tasks.into_iter().map(|task| runtime.block_on(task).unwrap()).collect();
    assert_eq!(answers[1], Err(Refusal::Invalid("13 brings bad luck".to_string())));
    assert_eq!(answers[2], panicked);
    assert_eq!(runtime.block_on(ask(&registry, request("m", vec![4.0]))), Ok((vec![8.0], vec![1])));
}

#[test]
fn a_new_version_takes_over_and_the_old_one_answers_what_it_has() {
    let (runtime, model) = (runtime(), Times::new(2.0));
    let registry = registry(&[("m", &model)], Batching::default());
    let tasks = held(&runtime, &registry, &model, vec![request("m", vec![1.0])]);
    model.version.lock().unwrap().0 = "2".to_string();
    assert_eq!(registry.load("m"), Ok("2".to_string()));
    model.gate.open();
    for task in tasks {
        assert!(runtime.block_on(task).unwrap().is_ok());
    }
    let answer = runtime.block_on(registry.infer(request("m", vec![1.0])));
    assert_eq!(answer.unwrap().version, "2");
}

/// Thousands of requests of all sizes to several models at once, some of which are given up: every answer is its
/// request's own.
#[test]
fn every_answer_is_its_requests_own() {
    const TASKS: u64 = 24;
    const EACH: u64 = 400;
    let runtime = runtime();
    let models: Vec<Arc<Times>> = (1..4).map(|factor| Times::new(factor as f32)).collect();
    let names = ["a", "b", "c"];
    let pairs: Vec<(&str, &Arc<Times>)> = names.into_iter().zip(&models).collect();
    let registry = registry(&pairs, Batching { queue: 64, ..Batching::default() });
    let counts: Arc<[AtomicU64; 3]> = Arc::default();
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let (registry, counts) = (registry.clone(), Arc::clone(&counts));
            runtime.spawn(async move {
                for round in 0..EACH {
                    // Whole numbers below 2^24 are exact, and 13 is none of them.
                    let number = (task * EACH + round) as usize;
                    let (which, rows) = (number % 3, 1 + (number * 7) % 64);
                    let values: Vec<f32> =
                        (0..rows).map(|row| (100 + number * 64 + row) as f32).collect();
                    let expected: Vec<f32> =
                        values.iter().map(|x| x * (which + 1) as f32).collect();
                    let asked = ask(&registry, request(names[which], values));
                    let answer = match number % 11 {
                        0 => tokio::select! {
                            biased;
                            answer = asked => Some(answer),
                            () = tokio::task::yield_now() => None,
                        },
                        _ => Some(asked.await),
                    };
                    match answer {
                        Some(Ok((answer, _))) => {
                            assert_eq!(answer, expected, "request {number}");
                            counts[0].fetch_add(1, Ordering::Relaxed);
                        }
                        Some(Err(Refusal::Busy(_))) => {
                            counts[1].fetch_add(1, Ordering::Relaxed);
                        }
                        None => {
                            counts[2].fetch_add(1, Ordering::Relaxed);
                        }
                        Some(Err(other)) => panic!("request {number}: {other}"),
                    }
                }
            })
        })
        .collect();
    for task in tasks {
        runtime.block_on(task).expect("no answer was another's");
    }
    let [answered, refused, given_up] = [0, 1, 2].map(|kind| counts[kind].load(Ordering::Relaxed));
    assert_eq!(answered + refused + given_up, TASKS * EACH);
    assert!(answered > 0 && given_up > 0, "{answered} answered, {given_up} given up");
}
