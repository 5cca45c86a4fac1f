//! Folders as runs leave them, and a hub on them.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

use salamander_hub::api::{Access, Api, Guard, guarded, router};
use salamander_hub::ingest::Ingester;
use salamander_hub::mlflow::{self, Mlflow};
use salamander_hub::server::{Listen, bind, serve};
use salamander_hub::{Hub, HubClient, Programs};
use tokio::sync::watch;

use crate::place::open;

pub(crate) const EXPERIMENT: &str = "name: my model\nentrypoint: net\nsearcher: {metric: accuracy, \
    smaller_is_better: false}\nhyperparameters: {learning_rate: 0.1, global_batch_size: 8}\n";

/// Writes the folder of a run that has ended.
pub(crate) fn write_run(runs: &Path, name: &str, steps: u64) -> PathBuf {
    let folder = runs.join(name);
    fs::create_dir_all(folder.join("logs")).expect("made");
    fs::write(folder.join("experiment.yaml"), EXPERIMENT).expect("written");
    fs::write(folder.join("run.lock"), "1\n").expect("written");
    fs::write(
        folder.join("plan.json"),
        format!(
            "{{\"done\":0,\"total\":{steps},\"steps_per_epoch\":10,\"epochs\":2,\"parameters\":7}}"
        ),
    )
    .expect("written");
    write_metrics(&folder, steps);
    fs::write(folder.join("summary.json"), "{\"state\":\"completed\",\"error\":null}")
        .expect("written");
    fs::write(
        folder.join("logs/worker-0.log"),
        "2026-11-18T06:57:34Z  INFO starts\n2026-11-18T06:57:35Z  WARN lease expired\n",
    )
    .expect("written");
    let checkpoint = folder.join(format!("checkpoints/step-{steps:08}"));
    fs::create_dir_all(&checkpoint).expect("made");
    fs::write(
        checkpoint.join("manifest.json"),
        format!(
            "{{\"format\":1,\"id\":\"step-{steps:08}\",\"steps\":{steps},\"epoch\":1,\"watched\":-0.75,\
             \"validation\":{{\"accuracy\":0.75}},\
             \"files\":{{\"model.safetensors\":{{\"bytes\":12,\"blake3\":\"x\"}}}}}}"
        ),
    )
    .expect("written");
    folder
}

/// Writes the metrics of so many steps and a validation at their end.
pub(crate) fn write_metrics(folder: &Path, steps: u64) {
    let step = |n: u64| {
        let loss = 1.0 / n as f64;
        format!(
            "{{\"kind\":\"step\",\"steps\":{n},\"epoch\":0,\"loss\":{loss},\"learning_rate\":0.1}}\n"
        )
    };
    let mut lines: String = (1..=steps).map(step).collect();
    lines += &format!(
        "{{\"kind\":\"epoch\",\"steps\":{steps},\"epoch\":0,\"complete\":true,\"training\":{{\"accuracy\":0.5}},\
         \"validation\":{{\"accuracy\":0.75}},\"seconds\":1.5,\"best\":true}}\n"
    );
    // Replaced as a whole, as a resumed run does.
    let beside = folder.join("metrics.tmp");
    fs::write(&beside, lines).expect("written");
    fs::rename(beside, folder.join("metrics.jsonl")).expect("renamed");
}

/// A hub that serves on a port of its own until it is dropped.
pub(crate) struct Serving {
    pub(crate) hub: Hub,
    pub(crate) address: SocketAddr,
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

impl Serving {
    pub(crate) fn start(runs: &Path, access: Access) -> Self {
        let hub = open(runs).expect("opened");
        Ingester::new(hub.clone()).look_at_all().expect("read");
        let programs = Arc::new(Programs::new(vec![std::env::current_exe().expect("a program")]));
        let api = Api::new(hub.clone(), Guard::new(access, hub.store().clone()), programs);
        let mlflow = mlflow::routes(Mlflow::open(&hub).expect("opened"));
        let (stop, stopped) = watch::channel(false);
        let (sender, receiver) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
            runtime.expect("a runtime").block_on(async move {
                let address = "127.0.0.1:0".parse().expect("an address");
                let listener = bind(address).await.expect("bound");
                sender.send(listener.local_addr().expect("an address")).expect("sent");
                let listen = Listen { address, tls: None, proxy: None, login: false };
                let routes = router(&api).merge(guarded(&api, mlflow));
                serve(listener, &listen, routes, stopped).await.expect("served");
            });
        });
        let address = receiver.recv().expect("bound");
        Self { hub, address, stop, thread: Some(thread) }
    }

    pub(crate) fn client(&self) -> HubClient {
        self.client_with(None)
    }

    pub(crate) fn client_with(&self, token: Option<String>) -> HubClient {
        HubClient::new(&format!("http://{}", self.address), token).expect("an address")
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.stop.send(true);
        if let Some(thread) = self.thread.take() {
            thread.join().expect("ended");
        }
    }
}
