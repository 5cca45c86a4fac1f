//! Models without tensors, and clients without libraries.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use salamander_serve::{
    Batching, DataType, Decoded, Decoder, Failed, Input, Loaded, Metadata, Model, Registry, Server,
    ServerOptions, Source, Tensor, TensorInfo, Values,
};

/// Lets a model go on, or holds it.
#[derive(Default)]
pub(crate) struct Gate {
    closed: Mutex<bool>,
    opened: Condvar,
    /// Set while the model waits here.
    pub(crate) held: AtomicBool,
}

impl Gate {
    pub(crate) fn close(&self) {
        *self.closed.lock().unwrap() = true;
    }

    pub(crate) fn open(&self) {
        *self.closed.lock().unwrap() = false;
        self.opened.notify_all();
    }

    pub(crate) fn pass(&self) {
        let mut closed = self.closed.lock().unwrap();
        while *closed {
            self.held.store(true, Ordering::SeqCst);
            closed = self.opened.wait(closed).unwrap();
        }
        self.held.store(false, Ordering::SeqCst);
    }

    pub(crate) fn wait_until_held(&self) {
        while !self.held.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
    }
}

/// A record that makes [`Times`] panic.
pub(crate) const PANICS: f32 = -666.0;

/// Gives `factor * x` for each record; 13 is more than it can take.
pub(crate) struct Times {
    pub(crate) factor: f32,
    pub(crate) gate: Arc<Gate>,
    /// The version, and a reason why it cannot be loaded.
    pub(crate) version: Mutex<(String, Option<String>)>,
}

impl Times {
    pub(crate) fn new(factor: f32) -> Arc<Self> {
        let version = Mutex::new(("1".to_string(), None));
        Arc::new(Self { factor, gate: Arc::default(), version })
    }
}

struct TimesDecoder(Metadata);

impl Decoder for TimesDecoder {
    fn metadata(&self) -> &Metadata {
        &self.0
    }

    fn decode(&self, input: &Input) -> Result<Decoded, String> {
        let mut values: Vec<f32> = Vec::new();
        input.each(&mut |row| {
            let x = row.floats("x").map(|floats| floats[0]);
            let x = x.or_else(|_| row.ints("x").map(|ints| ints[0] as f32));
            // Forms have nothing but text.
            let x = x.or_else(|error| {
                row.text("x").ok().and_then(|text| text.parse().ok()).ok_or(error)
            });
            values.push(x.map_err(|error| error.to_string())?);
            Ok(())
        })?;
        Ok(Decoded { rows: values.len(), tokens: 0, value: Box::new(values) })
    }
}

struct TimesModel(f32, Arc<Gate>);

impl Model for TimesModel {
    fn infer(&mut self, batch: Vec<Decoded>) -> Result<Vec<Tensor>, Failed> {
        self.1.pass();
        let all: Vec<f32> = batch
            .iter()
            .flat_map(|own| own.value.downcast_ref::<Vec<f32>>().unwrap().clone())
            .collect();
        if all.contains(&13.0) {
            return Err(Failed { reason: "13 brings bad luck".into(), mistake: true, batch });
        }
        assert!(!all.contains(&PANICS), "a model that a test made panic");
        let rows = all.len() as i64;
        let products = Values::Floats(all.iter().map(|x| x * self.0).collect());
        let sizes = Values::Ints(vec![rows; all.len()]);
        Ok(vec![
            Tensor::new("y", DataType::Fp32, &[rows, 1], products).unwrap(),
            Tensor::new("together", DataType::Int64, &[rows], sizes).unwrap(),
        ])
    }
}

impl Source for Times {
    fn newest(&self) -> Result<String, String> {
        Ok(self.version.lock().unwrap().0.clone())
    }

    fn load(&self, _version: &str) -> Result<Loaded, String> {
        if let Some(reason) = &self.version.lock().unwrap().1 {
            return Err(reason.clone());
        }
        let info = |name: &str, datatype, shape| TensorInfo {
            name: name.to_string(),
            datatype,
            shape,
            optional: false,
        };
        let metadata = Metadata {
            platform: "times".to_string(),
            inputs: vec![info("x", DataType::Fp32, vec![1])],
            outputs: vec![
                info("y", DataType::Fp32, vec![1]),
                info("together", DataType::Int64, vec![]),
            ],
        };
        let model = Box::new(TimesModel(self.factor, Arc::clone(&self.gate)));
        Ok(Loaded { decoder: Arc::new(TimesDecoder(metadata)), model })
    }
}

/// Loaded models.
pub(crate) fn registry(models: &[(&str, &Arc<Times>)], batching: Batching) -> Registry {
    let sources = models
        .iter()
        .map(|(name, model)| (name.to_string(), Arc::clone(*model) as Arc<dyn Source>));
    let registry = Registry::new(sources, batching);
    models.iter().for_each(|(name, _)| drop(registry.load(name).expect("loads")));
    registry
}

/// A server on a thread of its own, until it is dropped.
pub(crate) struct Running {
    pub(crate) address: SocketAddr,
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Running {
    pub(crate) fn start(registry: Registry, options: ServerOptions) -> Self {
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let (told, address) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_multi_thread()
                .worker_threads(2)
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async move {
                let any = "127.0.0.1:0".parse().unwrap();
                let server = Server::bind(any, registry, options).await.expect("listens");
                told.send(server.address().unwrap()).unwrap();
                server
                    .run(async {
                        let _ = stopped.await;
                    })
                    .await;
            });
        });
        Self { address: address.recv().unwrap(), stop: Some(stop), thread: Some(thread) }
    }

    /// Asks it to end; returns its thread.
    pub(crate) fn stop(&mut self) -> std::thread::JoinHandle<()> {
        drop(self.stop.take());
        self.thread.take().expect("runs")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// An answer over HTTP/1.1.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&self.body)))
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

pub(crate) fn get(address: SocketAddr, path: &str) -> Answer {
    ask(address, &format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"), b"")
}

pub(crate) fn post(address: SocketAddr, path: &str, headers: &str, body: &[u8]) -> Answer {
    let length = body.len();
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {length}\r\n{headers}\r\n"
    );
    ask(address, &head, body)
}

pub(crate) fn ask(address: SocketAddr, head: &str, body: &[u8]) -> Answer {
    let mut stream = TcpStream::connect(address).expect("connects");
    stream.write_all(head.as_bytes()).expect("sent");
    // A server may refuse by the head alone.
    let _ = stream.write_all(body);
    read_answer(&mut BufReader::new(stream))
}

pub(crate) fn read_answer(from: &mut impl BufRead) -> Answer {
    let mut line = String::new();
    from.read_line(&mut line).expect("a status");
    let status = line.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        from.read_line(&mut line).expect("a header");
        match line.trim_end().split_once(": ") {
            Some((name, value)) => headers.push((name.to_lowercase(), value.to_string())),
            None => break,
        }
    }
    let length = headers.iter().find(|(name, _)| name == "content-length");
    let length = length.map_or(0, |(_, length)| length.parse().expect("a number"));
    let mut body = vec![0; length];
    from.read_exact(&mut body).expect("a body");
    Answer { status, headers, body }
}
