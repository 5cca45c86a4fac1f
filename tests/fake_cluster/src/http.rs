//! The scenario API server's port: HTTP/1.1 with list, watch, create, replace, patch and delete, and with
//! faults on demand.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, StreamBody, combinators::BoxBody};
use hyper::body::{Frame, Incoming};
use hyper::http::request::Parts;
use hyper::service::service_fn;
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use crate::access::Wish;
use crate::controllers::Controllers;
use crate::kubelet::Kubelet;
use crate::store::{Change, Key, Refusal, Store, finalizers, is_leaving};

type Body = BoxBody<Bytes, std::io::Error>;

/// Something that goes wrong: for requests with this method and a path that has this in it, so many times.
pub(crate) struct Fault {
    pub(crate) method: &'static str,
    pub(crate) path: &'static str,
    pub(crate) times: usize,
    pub(crate) how: How,
}

/// How it goes wrong.
#[derive(Clone)]
pub enum How {
    /// An answer with this code, reason and message.
    Refuse(u16, &'static str, &'static str),
    /// The connection breaks before the request is done.
    DropBefore,
    /// The connection breaks after the request was done.
    DropAfter,
}

/// What the server knows.
pub struct Server {
    pub(crate) store: Mutex<Store>,
    pub(crate) faults: Mutex<Vec<Fault>>,
    /// The nodes.
    pub kubelet: Kubelet,
    /// The controllers.
    pub controllers: Controllers,
}

impl Server {
    /// All objects.
    pub fn store(&self) -> MutexGuard<'_, Store> {
        self.store.lock().expect("not poisoned")
    }

    pub(crate) async fn serve(self: Arc<Self>, listener: TcpListener) {
        while let Ok((stream, _)) = listener.accept().await {
            let server = self.clone();
            tokio::spawn(async move {
                let service = service_fn(move |request| server.clone().answer(request));
                let http = hyper::server::conn::http1::Builder::new();
                // Faults end connections on purpose.
                let _ = http.serve_connection(TokioIo::new(stream), service).await;
            });
        }
    }

    async fn answer(
        self: Arc<Self>,
        request: Request<Incoming>,
    ) -> Result<Response<Body>, std::io::Error> {
        let broken = || std::io::Error::other("the scenario breaks this connection");
        let (head, body) = request.into_parts();
        let path = head.uri.path().to_string();
        let body = body.collect().await.map_err(|_| broken())?.to_bytes();
        let fault = self.fault(head.method.as_str(), &path);
        if let Some(How::Refuse(code, reason, message)) = fault {
            return Ok(refuse((code, reason, message.to_string())));
        }
        if matches!(fault, Some(How::DropBefore)) {
            return Err(broken());
        }
        let query: BTreeMap<String, String> = parse_query(head.uri.query().unwrap_or_default());
        let patch = head.headers.get("content-type").and_then(|value| value.to_str().ok());
        let call = Call { path, query, patch: patch.unwrap_or_default().to_string(), body };
        let answer = self.permit(&head, &call).and_then(|()| self.route(&head.method, call));
        match fault {
            Some(How::DropAfter) => Err(broken()),
            _ => Ok(answer.unwrap_or_else(refuse)),
        }
    }

    fn fault(&self, method: &str, path: &str) -> Option<How> {
        let mut faults = self.faults.lock().expect("not poisoned");
        let fits = |fault: &&mut Fault| {
            fault.times > 0 && fault.method == method && path.contains(fault.path)
        };
        let fault = faults.iter_mut().find(fits)?;
        fault.times -= 1;
        Some(fault.how.clone())
    }

    /// Whether a request is within the rights of whoever sent it.
    fn permit(&self, head: &Parts, call: &Call) -> Result<(), Refusal> {
        let Some(place) = Place::parse(&call.path) else { return Ok(()) };
        let watches = call.query.get("watch").is_some_and(|watch| watch == "true");
        let verb = match (head.method.as_str(), place.name.is_empty()) {
            ("GET", true) if watches => "watch",
            ("GET", true) => "list",
            ("GET", false) => "get",
            ("POST", _) => "create",
            ("PUT", _) => "update",
            ("PATCH", _) => "patch",
            _ => "delete",
        };
        let key = (place.resource, place.namespace, place.name);
        self.authorize(&head.headers, &Wish { verb, key: &key, part: &place.part })?;
        let applied = call.patch.contains("apply-patch") && place.part.is_empty();
        // What is applied and not there yet is created.
        if applied && self.store().get(&key).is_none() {
            self.authorize(&head.headers, &Wish { verb: "create", key: &key, part: "" })?;
        }
        Ok(())
    }

    fn route(self: &Arc<Self>, method: &Method, call: Call) -> Result<Response<Body>, Refusal> {
        let Some(place) = Place::parse(&call.path) else {
            return Err((404, "NotFound", format!("{} is not a path of this server", call.path)));
        };
        let key = (place.resource.clone(), place.namespace.clone(), place.name.clone());
        let status = place.part == "status";
        let version = place.version.clone();
        let answer = |object: Value| answer(version.convert(object));
        match (method.as_str(), place.name.is_empty()) {
            ("GET", true) if call.query.get("watch").is_some_and(|watch| watch == "true") => {
                Ok(self.watch(place, &call.query))
            }
            ("GET", true) => Ok(self.list(&place, &call.query)),
            ("GET", false) if place.part == "log" => self.log(key, &call.query),
            ("GET", false) => {
                let object = self.store().get(&key).cloned();
                Ok(answer(object.ok_or_else(|| not_found(&key))?))
            }
            ("POST", true) => {
                let object: Value = call.json()?;
                let name = object["metadata"]["name"].as_str().unwrap_or_default().to_string();
                let name = match object["metadata"]["generateName"].as_str() {
                    Some(prefix) if name.is_empty() => format!("{prefix}{}", self.store().version),
                    _ => name,
                };
                let key = (place.resource, place.namespace, name);
                self.admit(&key, &object)?;
                let created = self.store().create(key.clone(), object)?;
                self.kubelet.look(self, &key);
                Ok(answer(created))
            }
            ("PUT", false) => Ok(answer(self.store().replace(key, call.json()?)?)),
            ("PATCH", false) if call.patch.contains("apply-patch") => {
                let manager =
                    call.query.get("fieldManager").map(String::as_str).unwrap_or_default();
                let force = call.query.get("force").is_some_and(|force| force == "true");
                let fresh = !status && self.store().get(&key).is_none();
                if fresh {
                    self.admit(&key, &call.json()?)?;
                }
                Ok(answer(self.store().apply(key, &call.json()?, (manager, force, status))?))
            }
            ("PATCH", false) if call.patch.contains("strategic-merge-patch") => {
                let patch = self.store().strategic(&key, call.json()?);
                Ok(answer(self.store().merge(key, &patch, status)?))
            }
            ("PATCH", false) => Ok(answer(self.store().merge(key, &call.json()?, status)?)),
            ("DELETE", false) => self.delete(key, &call),
            _ => Err((405, "MethodNotAllowed", format!("{method} {}", call.path))),
        }
    }

    fn delete(self: &Arc<Self>, key: Key, call: &Call) -> Result<Response<Body>, Refusal> {
        let Some(object) = self.store().get(&key).cloned() else { return Err(not_found(&key)) };
        let options: Value = serde_json::from_slice(&call.body).unwrap_or_default();
        let grace = options["gracePeriodSeconds"].as_i64();
        let default = object["spec"]["terminationGracePeriodSeconds"].as_i64().unwrap_or(30);
        self.end(&key, grace.unwrap_or(default));
        Ok(answer(object))
    }

    /// Ends an object: a pod that runs gets its time, what somebody holds stays until it is let go, everything else
    /// is gone at once.
    pub(crate) fn end(self: &Arc<Self>, key: &Key, grace: i64) {
        if grace > 0 && self.kubelet.holds(key) {
            // Before it is asked: whoever sees it end looks whether it was to leave.
            self.mark(key, grace);
            if self.kubelet.asks_to_leave(key) {
                return;
            }
        }
        self.kubelet.forget(key);
        self.mark(key, 0);
        self.sweep(key);
    }

    /// From now on an object is leaving.
    fn mark(&self, key: &Key, grace: i64) {
        let leaves = self.store().get(key).is_none_or(is_leaving);
        if !leaves {
            let deadline = Timestamp::now().as_second() + grace;
            let deadline = Timestamp::from_second(deadline).expect("a time").to_string();
            let set =
                |object: &mut Value| object["metadata"]["deletionTimestamp"] = deadline.into();
            self.store().update(key, set);
        }
    }

    /// Removes an object that leaves and that nobody holds.
    pub(crate) fn sweep(&self, key: &Key) {
        let runs = self.kubelet.pid(key).is_some();
        let mut store = self.store();
        let held = |object: &Value| !is_leaving(object) || !finalizers(object).is_empty();
        if !runs && !store.get(key).is_none_or(held) {
            store.remove(key);
        }
    }

    fn list(&self, place: &Place, query: &BTreeMap<String, String>) -> Response<Body> {
        let store = self.store();
        let items = store.list(&place.resource, &place.namespace);
        let items = items.into_iter().map(|(_, object)| object).filter(|o| selected(o, query));
        let items: Vec<Value> = items.map(|object| place.version.convert(object)).collect();
        answer(json!({
            "kind": "List", "apiVersion": "v1",
            "metadata": {"resourceVersion": store.version.to_string()},
            "items": items,
        }))
    }

    fn watch(self: &Arc<Self>, place: Place, query: &BTreeMap<String, String>) -> Response<Body> {
        let (sender, receiver) = mpsc::channel::<Result<Frame<Bytes>, std::io::Error>>(64);
        let server = self.clone();
        let query = query.clone();
        tokio::spawn(async move {
            let _: Option<Infallible> = server.feed(place, query, sender).await;
        });
        stream(receiver, "application/json")
    }

    /// The log of a pod, as it is or as it grows until its container has ended.
    fn log(
        self: &Arc<Self>,
        key: Key,
        query: &BTreeMap<String, String>,
    ) -> Result<Response<Body>, Refusal> {
        let Some(pod) = self.store().get(&key).cloned() else { return Err(not_found(&key)) };
        if pod["status"]["phase"].as_str().is_none_or(|phase| phase == "Pending") {
            let text = format!("container \"salamander\" in pod {:?} is waiting to start", key.2);
            return Err((400, "BadRequest", text));
        }
        let follow = query.get("follow").is_some_and(|follow| follow == "true");
        let (sender, receiver) = mpsc::channel::<Result<Frame<Bytes>, std::io::Error>>(64);
        let server = self.clone();
        tokio::spawn(async move {
            let mut seen = 0;
            loop {
                let runs = server.kubelet.pid(&key).is_some();
                let text = std::fs::read(server.kubelet.log(&key.2)).unwrap_or_default();
                let more = Bytes::copy_from_slice(&text[seen..]);
                seen = text.len();
                if !more.is_empty() && sender.send(Ok(Frame::data(more))).await.is_err() {
                    return;
                }
                if !follow || !runs {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
        Ok(stream(receiver, "text/plain"))
    }

    /// Feeds a watch until whoever watches has gone, or the scenario ends it.
    async fn feed(
        self: Arc<Self>,
        place: Place,
        query: BTreeMap<String, String>,
        out: mpsc::Sender<Result<Frame<Bytes>, std::io::Error>>,
    ) -> Option<Infallible> {
        let mut seen: u64 =
            query.get("resourceVersion").and_then(|text| text.parse().ok()).unwrap_or(0);
        let bookmarks = query.get("allowWatchBookmarks").is_some_and(|wanted| wanted == "true");
        let (mut news, cut) = {
            let store = self.store();
            (store.news.subscribe(), store.cut.0)
        };
        loop {
            let (lines, ended) = {
                let store = self.store();
                let gone = seen < store.forgotten;
                let ended = (store.cut.0 != cut || gone).then_some(gone || store.cut.1);
                let fits = |change: &&Change| {
                    change.version > seen
                        && change.key.0 == place.resource
                        && (place.namespace.is_empty() || change.key.1 == place.namespace)
                        && selected(&change.object, &query)
                };
                let changes = store.changes.iter().filter(fits);
                let mut lines: Vec<Value> = changes
                    .map(|change| {
                        let object = place.version.convert(change.object.clone());
                        json!({"type": change.kind, "object": object})
                    })
                    .collect();
                if bookmarks && store.version > seen && lines.is_empty() {
                    lines.push(bookmark(&place, store.version));
                }
                if ended.is_none() {
                    seen = store.version;
                }
                (lines, ended)
            };
            if let Some(gone) = ended {
                if gone {
                    let status = failure(410, "Expired", "too old resource version");
                    out.send(line(&json!({"type": "ERROR", "object": status}))).await.ok()?;
                } else {
                    out.send(Err(std::io::Error::other("broken by the scenario"))).await.ok()?;
                }
                return None;
            }
            for value in lines {
                out.send(line(&value)).await.ok()?;
            }
            let _ = tokio::time::timeout(Duration::from_millis(500), news.changed()).await;
            if out.is_closed() {
                return None;
            }
        }
    }
}

/// An answer that goes on.
fn stream(
    receiver: mpsc::Receiver<Result<Frame<Bytes>, std::io::Error>>,
    kind: &str,
) -> Response<Body> {
    let stream = futures::stream::unfold(receiver, |mut receiver| async {
        receiver.recv().await.map(|item| (item, receiver))
    });
    let body = BodyExt::boxed(StreamBody::new(stream));
    Response::builder().header("content-type", kind).body(body).expect("a response")
}

struct Call {
    path: String,
    query: BTreeMap<String, String>,
    patch: String,
    body: Bytes,
}

impl Call {
    fn json(&self) -> Result<Value, Refusal> {
        let wrong = |error: serde_json::Error| (400, "BadRequest", error.to_string());
        serde_json::from_slice(&self.body).map_err(wrong)
    }
}

/// The version of the custom resource that was asked for; nothing of other resources.
#[derive(Clone)]
struct AskedVersion(Option<String>);

impl AskedVersion {
    /// With the conversion strategy `None` versions differ by their name alone.
    fn convert(&self, mut object: Value) -> Value {
        if let Some(version) = &self.0 {
            object["apiVersion"] = version.as_str().into();
        }
        object
    }
}

struct Place {
    /// All versions of a custom resource are the same objects.
    version: AskedVersion,
    resource: String,
    namespace: String,
    name: String,
    part: String,
}

impl Place {
    fn parse(path: &str) -> Option<Self> {
        let words: Vec<&str> = path.trim_matches('/').split('/').collect();
        let version = match words.as_slice() {
            ["apis", "salamander.dev", version, ..] => Some(format!("salamander.dev/{version}")),
            _ => None,
        };
        let (prefix, rest) = match words.as_slice() {
            ["apis", "salamander.dev", "v1alpha1" | "v1beta1", rest @ ..] => {
                ("/apis/salamander.dev/v1alpha1".to_string(), rest)
            }
            ["api", version, rest @ ..] => (format!("/api/{version}"), rest),
            ["apis", group, version, rest @ ..] => (format!("/apis/{group}/{version}"), rest),
            _ => return None,
        };
        let (namespace, rest) = match rest {
            ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (*namespace, rest),
            rest => ("", rest),
        };
        let word = |at: usize| rest.get(at).map(|word| word.to_string()).unwrap_or_default();
        Some(Self {
            version: AskedVersion(version),
            resource: format!("{prefix}/{}", rest.first()?),
            namespace: namespace.to_string(),
            name: word(1),
            part: word(2),
        })
    }
}

fn bookmark(place: &Place, version: u64) -> Value {
    let (kind, api) = match &place.version.0 {
        None => ("Pod", "v1"),
        Some(version) => ("TrainingJob", version.as_str()),
    };
    let metadata = json!({"resourceVersion": version.to_string()});
    json!({"type": "BOOKMARK", "object": {"kind": kind, "apiVersion": api, "metadata": metadata}})
}

fn selected(object: &Value, query: &BTreeMap<String, String>) -> bool {
    let selector = query.get("labelSelector").map(String::as_str).unwrap_or_default();
    selector.split(',').filter(|part| !part.is_empty()).all(|part| {
        let labels = &object["metadata"]["labels"];
        match part.split_once('=') {
            Some((name, value)) => labels[name] == value,
            None => labels[part].is_string(),
        }
    })
}

fn parse_query(text: &str) -> BTreeMap<String, String> {
    let decode = |text: &str| {
        let mut bytes = Vec::new();
        let mut rest = text.bytes();
        while let Some(byte) = rest.next() {
            match byte {
                b'%' => {
                    let digits = [rest.next().unwrap_or(b'0'), rest.next().unwrap_or(b'0')];
                    let digits = String::from_utf8_lossy(&digits).into_owned();
                    bytes.push(u8::from_str_radix(&digits, 16).unwrap_or(b'?'));
                }
                b'+' => bytes.push(b' '),
                byte => bytes.push(byte),
            }
        }
        String::from_utf8_lossy(&bytes).into_owned()
    };
    let pairs = text.split('&').filter_map(|pair| pair.split_once('='));
    pairs.map(|(name, value)| (decode(name), decode(value))).collect()
}

fn answer(value: Value) -> Response<Body> {
    respond(200, &value)
}

fn refuse((code, reason, message): Refusal) -> Response<Body> {
    respond(code, &failure(code, reason, &message))
}

fn respond(code: u16, value: &Value) -> Response<Body> {
    let body = Full::new(Bytes::from(value.to_string())).map_err(|never| match never {});
    let response = Response::builder().status(code).header("content-type", "application/json");
    response.body(BodyExt::boxed(body)).expect("a response")
}

fn failure(code: u16, reason: &str, message: &str) -> Value {
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code,
    })
}

fn not_found(key: &Key) -> Refusal {
    (404, "NotFound", format!("{} {:?} not found", key.0, key.2))
}

fn line(value: &Value) -> Result<Frame<Bytes>, std::io::Error> {
    Ok(Frame::data(Bytes::from(format!("{value}\n"))))
}
