//! A place in a store that whole files are put into and taken from: what a run keeps. Data is read through `object`.

use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use object_store::path::Path as StorePath;
use object_store::{
    MultipartUpload, ObjectStore, ObjectStoreExt, PutMode, PutPayload, UpdateVersion,
};
use url::Url;

use super::store::{Location, connect, refusal};
use super::{Remote, RequestSettings, shared};
use crate::Error;

/// Bytes that travel in one request.
const PART: u64 = 16 << 20;

/// Shorter than for reading: whoever keeps something in a store tries again by himself, and says so.
const SETTINGS: RequestSettings = RequestSettings {
    timeout: Duration::from_secs(60),
    retries: 2,
    pause: Duration::from_secs(1),
    patience: Duration::from_secs(180),
};

/// What is right under a prefix.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// Names that have more below them.
    pub folders: Vec<String>,
    /// Objects and their sizes.
    pub files: Vec<(String, u64)>,
}

/// A version of an object, as its store tells versions apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectVersion(UpdateVersion);

impl ObjectVersion {
    /// The version that a store of one's own calls so.
    pub fn tagged(tag: impl Into<String>) -> Self {
        Self(UpdateVersion { e_tag: Some(tag.into()), version: None })
    }
}

/// A bucket, or a prefix in one. Credentials come from the environment, as for reading.
///
/// ```no_run
/// let bucket = salamander_data::Bucket::open("s3://models/runs/mnist")?;
/// bucket.put("experiment.yaml", b"entrypoint: mnist_mlp\n".to_vec())?;
/// # Ok::<(), salamander_data::Error>(())
/// ```
#[derive(Debug)]
pub struct Bucket {
    remote: &'static Remote,
    store: Arc<dyn ObjectStore>,
    location: Location,
    url: String,
}

impl Bucket {
    /// A place; nothing is asked of it yet.
    pub fn open(url: &str) -> Result<Bucket, Error> {
        refuse_credentials(url)?;
        let place = Path::new(url);
        let location = Location::parse(place)?;
        if location.is_http() {
            return Err(Error::form(place, "files can be kept in s3://, gs:// and az:// only"));
        }
        let remote = shared(place)?;
        let store = connect(&location, SETTINGS).map_err(refusal).map_err(Error::io(place))?;
        Ok(Bucket { remote, store, location, url: url.trim_end_matches('/').to_owned() })
    }

    /// Where it is.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Makes or replaces an object, in one step.
    pub fn put(&self, name: &str, bytes: Vec<u8>) -> Result<(), Error> {
        let (store, path) = (Arc::clone(&self.store), self.path(name)?);
        let put = async move { store.put(&path, PutPayload::from(bytes)).await };
        self.ask(name, put).map(drop)
    }

    /// Makes or replaces an object with a file's content. A large file travels in parts, and is there when all are.
    pub fn put_file(&self, name: &str, file: &Path) -> Result<(), Error> {
        let mut source = File::open(file).map_err(Error::io(file))?;
        let size = source.metadata().map_err(Error::io(file))?.len();
        if size <= PART {
            let mut bytes = Vec::new();
            source.read_to_end(&mut bytes).map_err(Error::io(file))?;
            return self.put(name, bytes);
        }
        let (store, path) = (Arc::clone(&self.store), self.path(name)?);
        let mut upload = self.ask(name, async move { store.put_multipart(&path).await })?;
        loop {
            let mut part = Vec::new();
            (&mut source).take(PART).read_to_end(&mut part).map_err(Error::io(file))?;
            if part.is_empty() {
                break;
            }
            upload = self.part(name, upload, part)?;
        }
        self.ask(name, async move { upload.complete().await }).map(drop)
    }

    /// The content of a small object, if it is there.
    pub fn get(&self, name: &str) -> Result<Option<Vec<u8>>, Error> {
        Ok(self.get_versioned(name)?.map(|(bytes, _)| bytes))
    }

    /// The content of a small object and which version of it that is, if it is there.
    pub fn get_versioned(&self, name: &str) -> Result<Option<(Vec<u8>, ObjectVersion)>, Error> {
        let (store, path) = (Arc::clone(&self.store), self.path(name)?);
        let found = async move {
            match store.get(&path).await {
                Ok(found) => {
                    let (e_tag, version) = (found.meta.e_tag.clone(), found.meta.version.clone());
                    let bytes = found.bytes().await?.to_vec();
                    Ok(Some((bytes, ObjectVersion(UpdateVersion { e_tag, version }))))
                }
                Err(object_store::Error::NotFound { .. }) => Ok(None),
                Err(error) => Err(error),
            }
        };
        self.ask(name, found)
    }

    /// Puts an object in one request if it is not there, or still the version that was `seen`. None: that is not so,
    /// or it is what an earlier try of this very call has put, whose answer was lost.
    pub fn put_if(
        &self,
        name: &str,
        bytes: Vec<u8>,
        seen: Option<&ObjectVersion>,
    ) -> Result<Option<ObjectVersion>, Error> {
        use object_store::Error as E;
        let (store, path) = (Arc::clone(&self.store), self.path(name)?);
        let mode = seen.map_or(PutMode::Create, |seen| PutMode::Update(seen.0.clone()));
        let put = async move {
            match store.put_opts(&path, PutPayload::from(bytes), mode.into()).await {
                Ok(put) => {
                    let object_store::PutResult { e_tag, version, .. } = put;
                    Ok(Some(ObjectVersion(UpdateVersion { e_tag, version })))
                }
                Err(E::AlreadyExists { .. } | E::Precondition { .. }) => Ok(None),
                // Of an object that was there and is not any more.
                Err(E::NotFound { .. }) => Ok(None),
                Err(error) => Err(error),
            }
        };
        self.ask(name, put)
    }

    /// Writes an object of this size to a file.
    pub fn get_file(&self, name: &str, size: u64, file: &Path) -> Result<(), Error> {
        let mut to = File::create(file).map_err(Error::io(file))?;
        let mut at = 0;
        while at < size {
            let (store, path) = (Arc::clone(&self.store), self.path(name)?);
            let range = at..(at + PART).min(size);
            at = range.end;
            let bytes = self.ask(name, async move { store.get_range(&path, range).await })?;
            to.write_all(&bytes).map_err(Error::io(file))?;
        }
        to.sync_all().map_err(Error::io(file))
    }

    /// What is right under a name; "" is the place itself.
    pub fn list(&self, under: &str) -> Result<Listing, Error> {
        let (store, path) = (Arc::clone(&self.store), self.path(under)?);
        let found = self.ask(under, async move { store.list_with_delimiter(Some(&path)).await })?;
        let last = |path: &StorePath| path.filename().map(str::to_owned);
        let size = |object: &object_store::ObjectMeta| Some((last(&object.location)?, object.size));
        Ok(Listing {
            folders: found.common_prefixes.iter().filter_map(last).collect(),
            files: found.objects.iter().filter_map(size).collect(),
        })
    }

    /// Removes an object; one that is not there is fine.
    pub fn remove(&self, name: &str) -> Result<(), Error> {
        let (store, path) = (Arc::clone(&self.store), self.path(name)?);
        let removed = async move {
            match store.delete(&path).await {
                Err(object_store::Error::NotFound { .. }) => Ok(()),
                other => other,
            }
        };
        self.ask(name, removed)
    }

    fn part(
        &self,
        name: &str,
        mut upload: Box<dyn MultipartUpload>,
        bytes: Vec<u8>,
    ) -> Result<Box<dyn MultipartUpload>, Error> {
        self.ask(name, async move {
            match upload.put_part(PutPayload::from(bytes)).await {
                Ok(()) => Ok(upload),
                Err(error) => {
                    // What cannot be taken back either is left to the bucket's own rules.
                    let _ = upload.abort().await;
                    Err(error)
                }
            }
        })
    }

    fn path(&self, name: &str) -> Result<StorePath, Error> {
        let whole = format!("{}/{name}", self.location.path.as_ref());
        StorePath::parse(whole.trim_matches('/')).map_err(|error| {
            Error::form(self.shown(name), format!("not a name in a store: {error}"))
        })
    }

    fn shown(&self, name: &str) -> String {
        format!("{}/{name}", self.url).trim_end_matches('/').to_owned()
    }

    fn ask<T: Send + 'static>(
        &self,
        name: &str,
        request: impl Future<Output = object_store::Result<T>> + Send + 'static,
    ) -> Result<T, Error> {
        let answer = self.remote.wait(async move { request.await.map_err(refusal) });
        answer.map_err(Error::io(Path::new(&self.shown(name))))
    }
}

/// A url is written into manifests and logs, which is no place for a secret.
fn refuse_credentials(url: &str) -> Result<(), Error> {
    let Ok(parsed) = Url::parse(url) else { return Ok(()) };
    if parsed.username().is_empty() && parsed.password().is_none() {
        return Ok(());
    }
    let shown = format!("{}://***@{}", parsed.scheme(), parsed.host_str().unwrap_or_default());
    Err(Error::form(shown, "keep credentials out of the url: they come from the environment"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_with_credentials_is_refused_and_not_repeated() {
        let error = Bucket::open("s3://id:hunter2@bucket/runs").unwrap_err().to_string();
        assert!(error.contains("keep credentials out of the url"), "{error}");
        assert!(!error.contains("hunter2"), "{error}");
        let error = Bucket::open("https://host/runs").unwrap_err().to_string();
        assert!(error.contains("s3://, gs:// and az:// only"), "{error}");
    }
}
