//! The objects of the scenario API server: versions, events for watches, field ownership, owners and their
//! dependents. It follows what the real server documents, and has the faults that a real one has.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde_json::{Map, Value, json};
use tokio::sync::watch;

/// Where an object is: resource (as `/api/v1/pods`), namespace, name.
pub type Key = (String, String, String);

/// A change that watches tell.
#[derive(Clone)]
pub(crate) struct Change {
    pub(crate) version: u64,
    pub(crate) kind: &'static str,
    pub(crate) key: Key,
    pub(crate) object: Value,
}

/// An answer that is no success: code, reason, message.
pub(crate) type Refusal = (u16, &'static str, String);

/// Keeps a pod of a Kubernetes job until the Job controller has counted its end.
pub(crate) const TRACKING: &str = "batch.kubernetes.io/job-tracking";

/// All objects.
pub struct Store {
    objects: BTreeMap<Key, Value>,
    owners: BTreeMap<(Key, String), BTreeSet<String>>,
    pub(crate) changes: Vec<Change>,
    pub(crate) version: u64,
    /// Watches from versions before this one are told that they are gone.
    pub(crate) forgotten: u64,
    /// Counts up when all watches are to end, with the way they end.
    pub(crate) cut: (u64, bool),
    pub(crate) news: watch::Sender<u64>,
    uids: u64,
}

impl Store {
    pub(crate) fn new() -> Self {
        Self {
            objects: BTreeMap::new(),
            owners: BTreeMap::new(),
            changes: Vec::new(),
            version: 1,
            forgotten: 0,
            cut: (0, false),
            news: watch::channel(0).0,
            uids: 0,
        }
    }

    /// An object, if it is there.
    pub fn get(&self, key: &Key) -> Option<&Value> {
        self.objects.get(key)
    }

    /// All objects of a resource, of a namespace or of all.
    pub fn list(&self, resource: &str, namespace: &str) -> Vec<(Key, Value)> {
        let wanted = |key: &Key| key.0 == resource && (namespace.is_empty() || key.1 == namespace);
        let found = self.objects.iter().filter(|(key, _)| wanted(key));
        found.map(|(key, object)| (key.clone(), object.clone())).collect()
    }

    /// Makes an object, unless there is one of its name.
    pub fn create(&mut self, key: Key, mut object: Value) -> Result<Value, Refusal> {
        if self.objects.contains_key(&key) {
            return Err((409, "AlreadyExists", format!("{} {:?} already exists", key.0, key.2)));
        }
        self.uids += 1;
        let metadata = &mut object["metadata"];
        metadata["uid"] = format!("uid-{}", self.uids).into();
        metadata["namespace"] = key.1.clone().into();
        metadata["name"] = key.2.clone().into();
        metadata["generation"] = 1.into();
        // Whole seconds, as the server writes them.
        let now = Timestamp::from_second(Timestamp::now().as_second()).expect("a time");
        metadata["creationTimestamp"] = now.to_string().into();
        if let Some(map) = object.as_object_mut().filter(|_| has_status(&key.0)) {
            map.remove("status");
        }
        fill_in(&key, &mut object);
        Ok(self.put("ADDED", key, object))
    }

    /// Every object.
    pub(crate) fn all(&self) -> Vec<(Key, Value)> {
        self.objects.iter().map(|(key, object)| (key.clone(), object.clone())).collect()
    }

    /// Whether an object of this uid is there.
    pub(crate) fn has_uid(&self, uid: &Value) -> bool {
        self.objects.values().any(|object| object["metadata"]["uid"] == *uid)
    }

    /// Whoever waited for an object's end needs it no more.
    pub(crate) fn drop_finalizer(&mut self, key: &Key, name: &str) {
        self.update(key, |object| {
            let mut left = object["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
            left.retain(|finalizer| finalizer != name);
            object["metadata"]["finalizers"] = left.into();
        });
    }

    /// Replaces an object, if it is still the one that was read.
    pub fn replace(&mut self, key: Key, mut object: Value) -> Result<Value, Refusal> {
        let old = self.objects.get(&key).ok_or_else(|| missing(&key))?;
        let read = &object["metadata"]["resourceVersion"];
        if read.is_string() && *read != old["metadata"]["resourceVersion"] {
            let text =
                format!("Operation cannot be fulfilled on {}: the object has been modified", key.2);
            return Err((409, "Conflict", text));
        }
        object["metadata"]["uid"] = old["metadata"]["uid"].clone();
        if has_status(&key.0) {
            object["status"] = old["status"].clone();
        }
        Ok(self.put("MODIFIED", key, object))
    }

    /// Merges a patch into an object, or into one part of it.
    pub(crate) fn merge(
        &mut self,
        key: Key,
        patch: &Value,
        status: bool,
    ) -> Result<Value, Refusal> {
        let mut object = self.objects.get(&key).ok_or_else(|| missing(&key))?.clone();
        let before = object.clone();
        merge(&mut object, patch);
        unchangeable(&key, &before, &object)?;
        self.settle(&key, &before, &mut object, status);
        Ok(if object == before { object } else { self.put("MODIFIED", key, object) })
    }

    /// A strategic patch as a plain one: conditions are merged by their type, as the server does.
    pub(crate) fn strategic(&self, key: &Key, mut patch: Value) -> Value {
        let known = self.objects.get(key).map(|object| object["status"]["conditions"].clone());
        let mut all = known.and_then(|known| known.as_array().cloned()).unwrap_or_default();
        if let Some(new) = patch["status"]["conditions"].as_array() {
            all.retain(|old| !new.iter().any(|new| new["type"] == old["type"]));
            all.extend(new.iter().cloned());
            patch["status"]["conditions"] = all.into();
        }
        if let Some(new) = patch["metadata"]["ownerReferences"].as_array().cloned() {
            let known = self.objects.get(key).map(|o| o["metadata"]["ownerReferences"].clone());
            let mut all = known.and_then(|k| k.as_array().cloned()).unwrap_or_default();
            all.retain(|old| !new.iter().any(|new| new["uid"] == old["uid"]));
            all.extend(new);
            patch["metadata"]["ownerReferences"] = all.into();
        }
        patch
    }

    /// Server-side apply: what another manager has set to something else is a conflict.
    pub fn apply(
        &mut self,
        key: Key,
        patch: &Value,
        (manager, force, status): (&str, bool, bool),
    ) -> Result<Value, Refusal> {
        if !self.objects.contains_key(&key) {
            if status {
                return Err(missing(&key));
            }
            let mut whole = patch.clone();
            if let Some(metadata) = whole["metadata"].as_object_mut() {
                metadata.remove("uid");
            }
            self.create(key.clone(), whole)?;
        }
        let before = self.objects[&key].clone();
        let wanted = &patch["metadata"]["uid"];
        if wanted.is_string() && *wanted != before["metadata"]["uid"] {
            let text = format!("Precondition failed: UID in precondition: {wanted}");
            return Err((409, "Conflict", text));
        }
        let set = leaves(patch, status);
        for ((other, name), owned) in &mut self.owners {
            let theirs = |path: &&String| {
                owned.contains(*path) && before.pointer(path) != patch.pointer(path)
            };
            if *other != key || name == manager {
                continue;
            }
            let conflicts: Vec<String> = set.iter().filter(theirs).cloned().collect();
            if !conflicts.is_empty() && !force {
                let text =
                    format!("Apply failed with 1 conflict: conflict with {name:?}: {conflicts:?}");
                return Err((409, "Conflict", text));
            }
            owned.retain(|path| !conflicts.contains(path));
        }
        let mut object = before.clone();
        let dropped = self.owners.insert((key.clone(), manager.to_string()), set.clone());
        for path in dropped.unwrap_or_default().difference(&set) {
            remove(&mut object, path);
        }
        merge(&mut object, patch);
        unchangeable(&key, &before, &object)?;
        self.settle(&key, &before, &mut object, status);
        Ok(if object == before { object } else { self.put("MODIFIED", key, object) })
    }

    /// What a kubelet does: it may write everything.
    pub fn update(&mut self, key: &Key, change: impl FnOnce(&mut Value)) -> bool {
        let Some(object) = self.objects.get(key) else { return false };
        let mut object = object.clone();
        change(&mut object);
        self.put("MODIFIED", key.clone(), object);
        true
    }

    /// Removes an object; what it owned is the garbage collector's.
    pub(crate) fn remove(&mut self, key: &Key) {
        let Some(object) = self.objects.remove(key) else { return };
        self.owners.retain(|(owned, _), _| owned != key);
        self.tell("DELETED", key.clone(), object);
    }

    /// Ends all watches: with 410 Gone, after which only a list helps, or without a word.
    pub fn cut_watches(&mut self, gone: bool) {
        self.cut = (self.cut.0 + 1, gone);
        if gone {
            self.forgotten = self.version;
        }
        self.news.send_replace(self.version);
    }

    /// Puts back what a writer of this part cannot change, and counts generations.
    fn settle(&self, key: &Key, before: &Value, object: &mut Value, status: bool) {
        if status {
            let new = object["status"].take();
            *object = before.clone();
            object["status"] = new;
        } else if has_status(&key.0) {
            object["status"] = before["status"].clone();
        }
        if object["status"].is_null()
            && let Some(map) = object.as_object_mut()
        {
            map.remove("status");
        }
        for fixed in ["uid", "name", "namespace", "creationTimestamp"] {
            object["metadata"][fixed] = before["metadata"][fixed].clone();
        }
        if object["spec"] != before["spec"] {
            let generation = before["metadata"]["generation"].as_u64().unwrap_or(1);
            object["metadata"]["generation"] = (generation + 1).into();
        }
    }

    fn put(&mut self, kind: &'static str, key: Key, mut object: Value) -> Value {
        let version = self.version + 1;
        object["metadata"]["resourceVersion"] = version.to_string().into();
        self.objects.insert(key.clone(), object.clone());
        self.tell(kind, key, object.clone());
        object
    }

    fn tell(&mut self, kind: &'static str, key: Key, mut object: Value) {
        self.version += 1;
        let version = self.version;
        object["metadata"]["resourceVersion"] = version.to_string().into();
        self.changes.push(Change { version, kind, key, object });
        self.news.send_replace(version);
    }
}

/// Whether an object was deleted, and somebody still needs it.
pub(crate) fn is_leaving(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

/// Who must let an object go before it is removed.
pub(crate) fn finalizers(object: &Value) -> Vec<&str> {
    let all = object["metadata"]["finalizers"].as_array().into_iter().flatten();
    all.filter_map(Value::as_str).collect()
}

/// What the server adds to new objects.
fn fill_in(key: &Key, object: &mut Value) {
    if key.0.ends_with("/persistentvolumeclaims") {
        object["metadata"]["finalizers"] = json!(["kubernetes.io/pvc-protection"]);
    }
    if key.0.ends_with("/batch/v1/jobs") {
        let uid = object["metadata"]["uid"].clone();
        let own = json!({
            "batch.kubernetes.io/controller-uid": uid, "controller-uid": uid,
            "batch.kubernetes.io/job-name": key.2, "job-name": key.2,
        });
        let labels = &mut object["spec"]["template"]["metadata"]["labels"];
        merge(labels, &own);
        let selector = json!({"batch.kubernetes.io/controller-uid": uid});
        object["spec"]["selector"] = json!({"matchLabels": selector});
    }
}

/// What cannot be changed in an object that is there.
fn unchangeable(key: &Key, before: &Value, after: &Value) -> Result<(), Refusal> {
    let fixed: &[&str] = match key.0.as_str() {
        _ if before["immutable"] == true => &["/data", "/stringData", "/immutable"],
        "/apis/batch/v1/jobs" => &["/spec/template", "/spec/selector"],
        "/apis/rbac.authorization.k8s.io/v1/rolebindings" => &["/roleRef"],
        "/api/v1/persistentvolumeclaims" => &["/spec/accessModes", "/spec/storageClassName"],
        _ => &[],
    };
    // What is there and was not before: a server that has just made it.
    match fixed
        .iter()
        .find(|path| before.pointer(path).is_some_and(|old| after.pointer(path) != Some(old)))
    {
        Some(path) => {
            let field = path.trim_start_matches('/').replace('/', ".");
            let text = format!("{} {:?} is invalid: {field}: field is immutable", key.0, key.2);
            Err((422, "Invalid", text))
        }
        None => Ok(()),
    }
}

fn missing(key: &Key) -> Refusal {
    (404, "NotFound", format!("{} {:?} not found", key.0, key.2))
}

fn has_status(resource: &str) -> bool {
    ["/pods", "/trainingjobs", "/batch/v1/jobs"].iter().any(|end| resource.ends_with(end))
}

/// RFC 7386.
fn merge(target: &mut Value, patch: &Value) {
    let Some(patch) = patch.as_object() else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Some(map) = target.as_object_mut() else { return };
    for (name, value) in patch {
        if value.is_null() {
            map.remove(name);
        } else {
            merge(map.entry(name.clone()).or_insert(Value::Null), value);
        }
    }
}

/// The paths of all values; lists count as one.
fn leaves(value: &Value, status: bool) -> BTreeSet<String> {
    fn walk(value: &Value, path: String, found: &mut BTreeSet<String>) {
        match value.as_object() {
            Some(map) => {
                for (name, value) in map {
                    let name = name.replace('~', "~0").replace('/', "~1");
                    walk(value, format!("{path}/{name}"), found);
                }
            }
            None => drop(found.insert(path)),
        }
    }
    let mut found = BTreeSet::new();
    walk(value, String::new(), &mut found);
    let identity = ["/apiVersion", "/kind", "/metadata/name", "/metadata/namespace"];
    found.retain(|path| !identity.contains(&path.as_str()));
    found.retain(|path| path.starts_with("/status") == status);
    found
}

fn remove(object: &mut Value, path: &str) {
    let Some((parent, name)) = path.rsplit_once('/') else { return };
    let name = name.replace("~1", "/").replace("~0", "~");
    if let Some(map) = object.pointer_mut(parent).and_then(Value::as_object_mut) {
        map.remove(&name);
    }
}
