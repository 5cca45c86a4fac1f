//! The endpoints for probes and metrics: `/healthz`, `/readyz`, `/metrics`. Three fixed paths need no web framework.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use prometheus_client::encoding::text;
use prometheus_client::registry::Registry;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};
use tracing::debug;

/// How long a request may take to arrive.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// The format that the metrics are in.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// The longest request that is read.
const LONGEST: usize = 4_096;

/// All metrics as text.
pub(crate) fn encode(registry: &Registry) -> String {
    let mut page = String::new();
    // Writing to a string does not fail.
    let _ = text::encode(&mut page, registry);
    page
}

/// What the endpoints say.
#[derive(Clone)]
pub struct Health {
    /// What was said of its readiness.
    said: Arc<AtomicBool>,
    ready: Arc<dyn Fn() -> bool + Send + Sync>,
    metrics: Arc<dyn Fn() -> String + Send + Sync>,
}

impl Health {
    /// Not ready yet; metrics come from a function, in the OpenMetrics text format.
    pub fn new(metrics: impl Fn() -> String + Send + Sync + 'static) -> Self {
        let said: Arc<AtomicBool> = Arc::default();
        let known = Arc::clone(&said);
        let ready = Arc::new(move || known.load(Ordering::Relaxed));
        Self { said, ready, metrics: Arc::new(metrics) }
    }

    /// Ready whenever a function says so.
    #[must_use]
    pub fn when(self, ready: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self { ready: Arc::new(ready), ..self }
    }

    /// From now on it is ready, or not.
    pub fn set_ready(&self, ready: bool) {
        self.said.store(ready, Ordering::Relaxed);
    }

    /// Answers on a thread of its own, for programs without async, until the guard is dropped.
    pub fn listen(self, address: SocketAddr) -> std::io::Result<HealthThread> {
        let listener = std::net::TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (stop, stopped) = oneshot::channel::<()>();
        let answer = move || {
            runtime.block_on(async {
                match TcpListener::from_std(listener) {
                    Ok(listener) => tokio::select! {
                        never = self.serve(listener) => match never {},
                        _ = stopped => {}
                    },
                    Err(error) => debug!(%error, "the port for probes cannot be used"),
                }
            });
        };
        let thread = std::thread::Builder::new().name("health".into()).spawn(answer)?;
        Ok(HealthThread { address, stop: Some(stop), thread: Some(thread) })
    }

    /// Answers for as long as the future is polled.
    pub async fn serve(self, listener: TcpListener) -> std::convert::Infallible {
        loop {
            match listener.accept().await {
                Ok((stream, _)) => {
                    let health = self.clone();
                    // It ends by its own deadline.
                    tokio::spawn(async move {
                        if let Err(error) = timeout(REQUEST_TIMEOUT, health.answer(stream)).await {
                            debug!(%error, "a health request was given up");
                        }
                    });
                }
                Err(error) => {
                    debug!(%error, "cannot take a connection");
                    sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }

    async fn answer(&self, mut stream: TcpStream) {
        let mut request = Vec::new();
        let mut buffer = [0; 1024];
        while !request.windows(4).any(|end| end == b"\r\n\r\n") {
            match stream.read(&mut buffer).await {
                Ok(read @ 1..) if request.len() < LONGEST => request.extend(&buffer[..read]),
                _ => return,
            }
        }
        let line = String::from_utf8_lossy(&request);
        let path = line.split_whitespace().nth(1).unwrap_or_default();
        let (status, body) = self.page(path);
        let content_type = if path == "/metrics" { OPEN_METRICS } else { "text/plain" };
        let answer = format!(
            "HTTP/1.1 {status}\r\ncontent-type: {content_type}\r\n\
             content-length: {}\r\nconnection: close\r\n\r\n{body}",
            body.len()
        );
        // Whoever asked may have gone.
        let _ = stream.write_all(answer.as_bytes()).await;
    }

    fn page(&self, path: &str) -> (&'static str, String) {
        match path {
            "/healthz" | "/livez" => ("200 OK", "ok\n".to_string()),
            "/readyz" if (self.ready)() => ("200 OK", "ok\n".to_string()),
            "/readyz" => ("503 Service Unavailable", "not ready\n".to_string()),
            "/metrics" => ("200 OK", (self.metrics)()),
            _ => ("404 Not Found", "there is /healthz, /readyz and /metrics\n".to_string()),
        }
    }
}

impl std::fmt::Debug for Health {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Health").field("said", &self.said).finish_non_exhaustive()
    }
}

/// The endpoints of a process, on a thread that ends with this.
#[derive(Debug)]
pub struct HealthThread {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl HealthThread {
    /// Where they are, with the port that was free.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for HealthThread {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // It has nothing to say but that it panicked.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn ask(address: std::net::SocketAddr, path: &str) -> String {
        let mut stream = TcpStream::connect(address).await.expect("connected");
        let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n");
        stream.write_all(request.as_bytes()).await.expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("answered");
        answer
    }

    #[tokio::test]
    async fn readiness_is_only_told_when_it_is_true() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound");
        let health = Health::new(|| "jobs 3\n".to_string());
        let server = tokio::spawn(health.clone().serve(listener));
        assert!(ask(address, "/healthz").await.starts_with("HTTP/1.1 200"));
        assert!(ask(address, "/readyz").await.starts_with("HTTP/1.1 503"));
        health.set_ready(true);
        assert!(ask(address, "/readyz").await.starts_with("HTTP/1.1 200"));
        let metrics = ask(address, "/metrics").await;
        assert!(metrics.ends_with("\r\n\r\njobs 3\n"), "{metrics}");
        assert!(metrics.contains("content-type: application/openmetrics-text;"), "{metrics}");
        assert!(ask(address, "/etc/passwd").await.starts_with("HTTP/1.1 404"));
        server.abort();
    }

    #[test]
    fn a_program_without_async_answers_until_it_drops_its_endpoints() {
        let ready = Arc::new(AtomicBool::new(false));
        let known = Arc::clone(&ready);
        let health = Health::new(|| "rows 7\n".to_string());
        let health = health.when(move || known.load(Ordering::Relaxed));
        let thread = health.listen(SocketAddr::from(([127, 0, 0, 1], 0))).expect("a port");
        let address = thread.address();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("a runtime");
        let page = |path| runtime.block_on(ask(address, path));
        assert!(page("/readyz").starts_with("HTTP/1.1 503"));
        ready.store(true, Ordering::Relaxed);
        assert!(page("/readyz").starts_with("HTTP/1.1 200"));
        assert!(page("/metrics").ends_with("\r\n\r\nrows 7\n"));
        let taken = Health::new(String::new).listen(address).expect_err("the port is taken");
        assert_eq!(taken.kind(), std::io::ErrorKind::AddrInUse);
        drop(thread);
        std::net::TcpListener::bind(address).expect("the port is free again");
    }
}
