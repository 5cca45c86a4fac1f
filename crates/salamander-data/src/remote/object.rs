//! One object as it was when opened: reads are cut into blocks, and an answer about another version of the
//! object is an error, never data.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use object_store::path::Path as StorePath;
use object_store::{GetOptions, GetRange, ObjectMeta, ObjectStore};

use super::store::{Location, refusal};
use super::{AHEAD, BLOCK_BYTES, MEMORY_BYTES, Remote};
use crate::Error;
use crate::blob::{BlobSource, ReadAt};

type Block = Arc<Vec<u8>>;

/// An object as it was when opened.
#[derive(Clone, Debug)]
pub(crate) struct Object(Arc<OpenObject>);

#[derive(Debug)]
struct OpenObject {
    remote: &'static Remote,
    place: PathBuf,
    store: Arc<dyn ObjectStore>,
    path: StorePath,
    meta: ObjectMeta,
    /// The object's number in the cache.
    number: u64,
    /// The block after the last one read; sequential reading is told by it.
    next: AtomicU64,
    /// Set when the server answers a range with everything.
    ignores_ranges: AtomicBool,
    /// Held while everything is fetched.
    whole: tokio::sync::Mutex<()>,
}

impl Object {
    pub(super) fn open(remote: &'static Remote, place: &Path) -> Result<Object, Error> {
        let location = Location::parse(place)?;
        let store = remote.store(&location).map_err(Error::io(place))?;
        let (client, path) = (Arc::clone(&store), location.path.clone());
        let request = async move {
            let options = GetOptions { head: true, ..GetOptions::default() };
            client.get_opts(&path, options).await.map(|found| found.meta).map_err(refusal)
        };
        let meta = remote.wait(request).map_err(Error::io(place))?;
        Ok(Object(Arc::new(OpenObject {
            remote,
            place: place.to_owned(),
            store,
            path: location.path,
            meta,
            number: remote.blocks.next_file(),
            next: AtomicU64::new(u64::MAX),
            ignores_ranges: AtomicBool::new(false),
            whole: tokio::sync::Mutex::default(),
        })))
    }

    /// A block, from memory or fetched.
    fn block(&self, number: u64) -> io::Result<Block> {
        if let Some(block) = self.0.remote.blocks.get((self.0.number, number)) {
            return Ok(block);
        }
        let inner = Arc::clone(&self.0);
        self.0.remote.wait(async move { inner.shared_block(number).await })
    }

    /// Begins to fetch a block, if there is room among those being fetched.
    fn prefetch(&self, number: u64) {
        let remote = self.0.remote;
        let past_the_end = number.saturating_mul(BLOCK_BYTES) >= self.size();
        if past_the_end || remote.blocks.get((self.0.number, number)).is_some() {
            return;
        }
        let Ok(permit) = Arc::clone(&remote.ahead).try_acquire_owned() else { return };
        let inner = Arc::clone(&self.0);
        remote.runtime.spawn(async move {
            // A failure shows when the block is asked for.
            let fetched = inner.shared_block(number);
            let _ = tokio::time::timeout(remote.settings.patience, fetched).await;
            drop(permit);
        });
    }
}

impl BlobSource for Object {
    fn path(&self) -> &Path {
        &self.0.place
    }

    fn size(&self) -> u64 {
        self.0.meta.size
    }

    fn version(&self) -> String {
        let meta = &self.0.meta;
        meta.e_tag.clone().unwrap_or_else(|| meta.last_modified.to_rfc3339())
    }

    /// Every answer to a read tells it.
    fn verify(&self) -> Result<(), Error> {
        Ok(())
    }

    fn open(&self) -> Result<Box<dyn ReadAt>, Error> {
        Ok(Box::new(self.clone()))
    }
}

impl ReadAt for Object {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let end = offset.checked_add(buf.len() as u64).filter(|&end| end <= self.size());
        let end = end.ok_or(io::ErrorKind::UnexpectedEof)?;
        if buf.is_empty() {
            return Ok(());
        }
        let (first, last) = (offset / BLOCK_BYTES, (end - 1) / BLOCK_BYTES);
        let next = self.0.next.swap(last + 1, Ordering::Relaxed);
        let sequential = first == next || first + 1 == next;
        // Nobody asked for the block after the last one, but a sequential reader soon will.
        let wanted = if sequential { last + 1 } else { last };
        let mut filled = 0;
        for number in first..=last {
            for ahead in number + 1..=wanted.min(number + AHEAD as u64 / 2) {
                self.prefetch(ahead);
            }
            let block = self.block(number)?;
            let start = (offset + filled as u64 - number * BLOCK_BYTES) as usize;
            let length = (block.len() - start).min(buf.len() - filled);
            buf[filled..filled + length].copy_from_slice(&block[start..start + length]);
            filled += length;
        }
        Ok(())
    }
}

impl OpenObject {
    /// A block, fetched once however many want it.
    async fn shared_block(&self, number: u64) -> io::Result<Block> {
        let load = async {
            let block = self.load(number).await?;
            let bytes = block.len();
            Ok((block, bytes))
        };
        self.remote.blocks.get_or_await((self.number, number), load).await
    }

    /// A block from the folder on disk, or else from the store.
    async fn load(&self, number: u64) -> io::Result<Block> {
        let Some(disk) = &self.remote.disk else { return self.fetch(number).await };
        let name = self.name(number);
        let length = self.block_range(number).end - self.block_range(number).start;
        let (folder, file) = (Arc::clone(disk), name.clone());
        let kept = tokio::task::spawn_blocking(move || folder.get(&file)).await;
        if let Some(block) = kept?.filter(|block| block.len() as u64 == length) {
            return Ok(Arc::new(block));
        }
        let block = self.fetch(number).await?;
        let (folder, bytes) = (Arc::clone(disk), Arc::clone(&block));
        tokio::task::spawn_blocking(move || folder.put(&name, &bytes)).await?;
        Ok(block)
    }

    async fn fetch(&self, number: u64) -> io::Result<Block> {
        if self.ignores_ranges.load(Ordering::Relaxed) {
            return self.fetch_whole(number).await;
        }
        let range = self.block_range(number);
        match self.get(Some(GetRange::Bounded(range.clone()))).await {
            Err(object_store::Error::NotSupported { .. }) => {
                self.ignores_ranges.store(true, Ordering::Relaxed);
                self.fetch_whole(number).await
            }
            Err(error) => Err(self.refusal(error)),
            Ok((meta, bytes)) => {
                self.compare(&meta)?;
                self.complete(&bytes, range.end - range.start)?;
                Ok(Arc::new(bytes))
            }
        }
    }

    /// Fetches everything from a server that knows no ranges, and keeps it as blocks.
    async fn fetch_whole(&self, number: u64) -> io::Result<Block> {
        let size = self.meta.size;
        if size > MEMORY_BYTES as u64 {
            return Err(io::Error::other(format!(
                "the server ignores ranges, and {size} bytes are too many to fetch at once (at \
                 most {MEMORY_BYTES}): download the file, or serve it with ranges"
            )));
        }
        let _alone = self.whole.lock().await;
        if let Some(block) = self.remote.blocks.get((self.number, number)) {
            return Ok(block);
        }
        let (meta, bytes) = self.get(None).await.map_err(|error| self.refusal(error))?;
        self.compare(&meta)?;
        self.complete(&bytes, size)?;
        let mut wanted = Block::default();
        for (position, part) in bytes.chunks(BLOCK_BYTES as usize).enumerate() {
            let block = Arc::new(part.to_vec());
            if position as u64 == number {
                wanted = Arc::clone(&block);
            }
            let bytes = block.len();
            self.remote.blocks.insert((self.number, position as u64), block, bytes);
        }
        Ok(wanted)
    }

    async fn get(&self, range: Option<GetRange>) -> object_store::Result<(ObjectMeta, Vec<u8>)> {
        // A weak etag never matches by the rules of http; answers are compared in any case.
        let if_match = self.meta.e_tag.clone().filter(|tag| !tag.starts_with("W/"));
        let options = GetOptions { range, if_match, ..GetOptions::default() };
        let found = self.store.get_opts(&self.path, options).await?;
        let meta = found.meta.clone();
        Ok((meta, found.bytes().await?.to_vec()))
    }

    /// Refuses an answer about another version.
    fn compare(&self, found: &ObjectMeta) -> io::Result<()> {
        let same = match (&self.meta.e_tag, &found.e_tag) {
            (Some(then), Some(now)) => then == now,
            _ => self.meta.last_modified == found.last_modified,
        };
        if same && self.meta.size == found.size { Ok(()) } else { Err(self.changed()) }
    }

    fn complete(&self, bytes: &[u8], expected: u64) -> io::Result<()> {
        if bytes.len() as u64 == expected {
            return Ok(());
        }
        let found = bytes.len();
        let message = format!("the server sent {found} bytes where {expected} were asked for");
        Err(io::Error::new(io::ErrorKind::UnexpectedEof, message))
    }

    fn refusal(&self, error: object_store::Error) -> io::Error {
        match error {
            object_store::Error::Precondition { .. } => self.changed(),
            other => refusal(other),
        }
    }

    fn changed(&self) -> io::Error {
        io::Error::other(Error::Changed { path: self.place.clone() })
    }

    fn block_range(&self, number: u64) -> std::ops::Range<u64> {
        let start = number * BLOCK_BYTES;
        start..(start + BLOCK_BYTES).min(self.meta.size)
    }

    /// The block's name on disk, which no block of another object or version has.
    fn name(&self, number: u64) -> String {
        let mut hash = blake3::Hasher::new();
        let meta = &self.meta;
        let version = format!("{:?} {}", meta.e_tag, meta.last_modified.timestamp_micros());
        for part in [self.place.as_os_str().as_encoded_bytes(), version.as_bytes()] {
            hash.update(&(part.len() as u64).to_le_bytes()).update(part);
        }
        hash.update(&meta.size.to_le_bytes()).update(&number.to_le_bytes());
        hash.finalize().to_hex().to_string()
    }
}
