//! Rows on parameter servers, which all workers of a run share.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use salamander_core::asynchronous::Lineage;
use salamander_core::progress::StepCount;
use salamander_net::{Cancel, Keys};
use salamander_ps::client::{self, Client, Sent, WantedRows};
use salamander_ps::wire::{Advance, Before, Code, HistoryStart, Reset};
use salamander_ps::{Read, TableSpec};

use super::{Declared, Finish, RowGradient, RowSource, SharedRows, StagedRows};
use crate::Error;

/// How long a request may take before this member gives its generation up.
const PATIENCE: Duration = Duration::from_secs(10);

/// The servers of a generation: whoever enters one says where they are.
#[derive(Clone, Debug, Default)]
pub(crate) struct Servers(Arc<Mutex<KnownServers>>);

#[derive(Clone, Debug, Default)]
struct KnownServers {
    endpoints: Vec<String>,
    /// Where the rows move to when the generation begins.
    destination: Vec<String>,
    cancel: Cancel,
}

impl Servers {
    /// The servers of the generation that begins, those that the rows move to, and the flag that ends it.
    pub(crate) fn set(&self, endpoints: Vec<String>, destination: Vec<String>, cancel: Cancel) {
        *self.lock() = KnownServers { endpoints, destination, cancel };
    }

    fn get(&self) -> KnownServers {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, KnownServers> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Rows on servers.
pub(crate) struct RemoteRows {
    servers: Servers,
    keys: Keys,
    bf16: bool,
    specs: Vec<TableSpec>,
    lineage: Lineage,
    connection: Option<Connection>,
    /// A step that servers complete before the next thing that they are asked.
    advance: Option<Advance>,
    /// What was staged and not yet acknowledged.
    staged: VecDeque<Sent<'static>>,
    /// Ends the wait for files that servers write. A checkpoint is of a version that all members held, so that it
    /// counts whatever becomes of the generation that asked for it: only another history, or the end of this member,
    /// ends the wait.
    writing: Cancel,
}

/// A connection to servers, and tables on it.
pub(crate) struct Connection {
    pub(crate) client: Client,
    pub(crate) tables: Vec<Declared>,
}

impl Connection {
    /// Declares the tables, in this order.
    pub(crate) fn new<'a>(
        mut client: Client,
        specs: impl IntoIterator<Item = &'a TableSpec>,
    ) -> Result<Self, Error> {
        let mut tables = Vec::new();
        for spec in specs {
            let id = client.declare(spec.clone()).map_err(trouble)?;
            tables.push(Declared { id, dim: spec.dim });
        }
        Ok(Self { client, tables })
    }

    /// The rows of these ids; a step may have to be completed first.
    pub(crate) fn pull(
        &mut self,
        table: usize,
        ids: &[u64],
        read: Read,
        advance: Option<Advance>,
    ) -> Result<Vec<f32>, Error> {
        let table = self.tables[table];
        let mut rows = table.room(ids);
        let mut lookup = [WantedRows { table: table.id, ids, out: &mut rows }];
        self.client.pull_into(read, advance, &mut lookup).map_err(trouble)?;
        Ok(rows)
    }
}

impl RemoteRows {
    /// Rows on the servers that are known when they are first asked.
    pub(crate) fn new(servers: Servers, keys: Keys, bf16: bool) -> Self {
        let (specs, staged, lineage) = (Vec::new(), VecDeque::new(), Lineage::default());
        let (connection, advance, writing) = (None, None, Cancel::new());
        Self { servers, keys, bf16, specs, lineage, connection, advance, staged, writing }
    }

    /// Nothing that servers are writing can count any more.
    fn give_writing_up(&mut self) {
        std::mem::take(&mut self.writing).cancel();
    }

    /// Waits until what was staged is kept, but for so many slices.
    fn keep_staged(&mut self, but: usize) -> Result<(), Error> {
        while self.staged.len() > but
            && let Some(sent) = self.staged.pop_front()
        {
            self.connection()?.client.finish(sent).map_err(trouble)?;
        }
        Ok(())
    }

    /// Has servers complete the last step, if they have not been told with a pull.
    fn complete(&mut self) -> Result<(), Error> {
        if let Some(advance) = self.advance {
            self.connection()?.client.advance(&advance).map_err(trouble)?;
            self.advance = None;
        }
        Ok(())
    }

    fn connection(&mut self) -> Result<&mut Connection, Error> {
        match &mut self.connection {
            Some(connection) => Ok(connection),
            none => {
                let known = self.servers.get();
                let options = options(self.lineage, self.bf16, known.cancel);
                let client = Client::connect(known.endpoints, self.keys.clone(), options);
                Ok(none.insert(Connection::new(client.map_err(trouble)?, &self.specs)?))
            }
        }
    }
}

fn options(lineage: Lineage, bf16: bool, cancel: Cancel) -> client::ClientOptions {
    client::ClientOptions {
        patience: PATIENCE,
        bf16,
        lineage,
        cancel,
        ..client::ClientOptions::default()
    }
}

/// Waits until servers have written their files, and moves those to a folder.
fn collect(mut client: Client, files: &[PathBuf], folder: &Path) -> Result<Vec<PathBuf>, Error> {
    client.written(files).map_err(unwritten)?;
    let mut moved = Vec::new();
    for file in files {
        let to = folder.join(file.file_name().unwrap_or_default());
        // Whoever began anew from an older checkpoint has removed what is of no use any more.
        let gone = |error| Error::Unreachable(format!("{}: {error}", file.display()));
        std::fs::rename(file, &to).map_err(gone)?;
        moved.push(to);
    }
    Ok(moved)
}

/// Another try, in the next generation, helps against everything but a mistake of this program. Who is out of step was
/// held up: the others have gone on without it.
pub(crate) fn trouble(error: client::Error) -> Error {
    let is_mistake = match &error {
        client::Error::Request(_) | client::Error::Answer { .. } => true,
        client::Error::Refused { failure, .. } => matches!(
            failure.code,
            Code::Malformed | Code::TooLarge | Code::Wrong | Code::Undeclared
        ),
        _ => false,
    };
    let text = error.to_string();
    if is_mistake { Error::Invalid(text) } else { Error::Unreachable(text) }
}

/// A server that says that it cannot write says so again.
fn unwritten(error: client::Error) -> Error {
    match error {
        client::Error::Refused { failure, .. } if failure.code == Code::Broken => {
            Error::NotWritten(failure.text)
        }
        error => trouble(error),
    }
}

impl Drop for RemoteRows {
    fn drop(&mut self) {
        self.give_writing_up();
    }
}

impl RowSource for RemoteRows {
    fn declare(&mut self, specs: &[TableSpec]) -> Result<(), Error> {
        self.specs = specs.to_vec();
        Ok(())
    }

    fn pull(&mut self, table: usize, ids: &[u64], read: Read) -> Result<Vec<f32>, Error> {
        let advance = self.advance;
        let rows = self.connection()?.pull(table, ids, read, advance)?;
        self.advance = None;
        Ok(rows)
    }
}

impl StagedRows for RemoteRows {
    /// Servers receive it while this member computes the next slice.
    fn stage(&mut self, after: StepCount, k: u32, rows: &[RowGradient]) -> Result<(), Error> {
        self.complete()?;
        self.keep_staged(1)?;
        let Connection { client, tables } = self.connection()?;
        let rows = Declared::rows(tables, rows);
        let sent = client.begin_stage(after, k, &rows).map_err(trouble)?.into_owned();
        self.staged.push_back(sent);
        Ok(())
    }

    fn settle(&mut self) -> Result<(), Error> {
        // Nothing was pulled where all records were left out.
        self.complete()?;
        self.keep_staged(0)
    }

    /// Servers are told with the next pull, which spares a request.
    fn advance(&mut self, to: StepCount, factor: f64, divisor: f32) -> Result<(), Error> {
        self.advance = Some(Advance { to, factor, scale: divisor });
        Ok(())
    }

    fn save(&mut self, scratch: &Path) -> Result<Finish, Error> {
        self.complete()?;
        std::fs::create_dir_all(scratch).map_err(Error::io(scratch))?;
        let endpoints = self.servers.get().endpoints;
        let servers = endpoints.len();
        let file = |server: usize| scratch.join(format!("tables-{server}-of-{servers}.rows"));
        let files: Vec<PathBuf> = (0..servers).map(file).collect();
        // Training goes on as soon as all servers have their copies; what they write is waited for elsewhere.
        self.connection()?.client.copy(&files).map_err(trouble)?;
        let (scratch, keys) = (scratch.to_path_buf(), self.keys.clone());
        let options = options(Lineage::default(), false, self.writing.clone());
        Ok(Box::new(move |folder: &Path| {
            let client = Client::connect(endpoints, keys, options).map_err(trouble);
            let moved = client.and_then(|client| collect(client, &files, folder));
            // Empty by now, or of no use to anybody.
            let _ = std::fs::remove_dir_all(&scratch);
            moved
        }))
    }

    fn restore(
        &mut self,
        files: &[PathBuf],
        after: StepCount,
        lineage: Lineage,
    ) -> Result<(), Error> {
        self.follow(lineage);
        self.give_writing_up();
        self.connection()?.client.begin(lineage, after, files).map(drop).map_err(trouble)
    }

    fn shared(&mut self) -> Option<&mut dyn SharedRows> {
        Some(self)
    }
}

impl SharedRows for RemoteRows {
    fn follow(&mut self, lineage: Lineage) {
        self.lineage = lineage;
        self.connection = None;
        self.advance = None;
        self.staged.clear();
    }

    fn relocate(&mut self, after: StepCount, lineage: Lineage) -> Result<(), Error> {
        self.complete()?;
        let KnownServers { endpoints: from, destination: to, cancel } = self.servers.get();
        let before = Before::new(self.lineage, from.len(), from.iter().cloned().enumerate());
        let start = HistoryStart {
            servers: to.len(),
            version: after,
            from: Some(before),
            ..HistoryStart::default()
        };
        // Both sit in the same seats.
        let endpoints = if to.len() > from.len() { to } else { from };
        let resets: Vec<Reset> = (0..endpoints.len()).map(|server| start.reset(server)).collect();
        let options = options(self.lineage, false, cancel);
        let mut client = Client::connect(endpoints, self.keys.clone(), options).map_err(trouble)?;
        client.reset_each(lineage, &resets).map_err(trouble)?;
        client.release().map(drop).map_err(trouble)
    }

    fn relocated(&mut self) {
        let mut known = self.servers.lock();
        known.endpoints = std::mem::take(&mut known.destination);
    }
}

#[cfg(test)]
mod tests {
    use salamander_net::Token;
    use salamander_ps::role::{self, Config};
    use salamander_ps::{Engine, EngineOptions, Mode};

    use super::*;

    /// Ends a server, also when a test fails.
    struct Shutdown(Cancel);

    impl Drop for Shutdown {
        fn drop(&mut self) {
            self.0.cancel();
        }
    }

    /// What a test does with a server.
    struct ServedEngine<'a> {
        engine: &'a Engine,
        keys: Keys,
        endpoint: String,
    }

    impl ServedEngine<'_> {
        /// A member's rows, and the flag that ends its generation.
        fn member(&self) -> (RemoteRows, Cancel) {
            let (servers, cancel) = (Servers::default(), Cancel::new());
            servers.set(vec![self.endpoint.clone()], Vec::new(), cancel.clone());
            let mut rows = RemoteRows::new(servers, self.keys.clone(), false);
            rows.declare(&[TableSpec::new("item", 2)]).expect("declared");
            (rows, cancel)
        }
    }

    /// Runs with a server of four slices.
    fn serving(test: impl FnOnce(&ServedEngine<'_>)) {
        let keys = Keys::from(Token::random().expect("randomness"));
        let address = "127.0.0.1:0".parse().expect("an address");
        let (listener, endpoint) = role::bind(address, keys.clone()).expect("a listener");
        let options = EngineOptions { mode: Mode::Staged, slices: 4, ..EngineOptions::default() };
        let config = Config::new(options).expect("a life");
        let engine = Engine::new(config.engine.clone()).expect("an engine");
        let shutdown = Cancel::new();
        std::thread::scope(|scope| {
            let _ends_with_this = Shutdown(shutdown.clone());
            scope.spawn(|| role::serve(&engine, &config, &listener, &shutdown).expect("served"));
            test(&ServedEngine { engine: &engine, keys, endpoint });
        });
    }

    fn gradient() -> RowGradient {
        RowGradient { table: 0, ids: vec![1], values: vec![1.0, 2.0] }
    }

    #[test]
    fn steps_without_pulls_are_completed_and_slices_kept_when_settled() {
        serving(|served| {
            let (mut rows, _) = served.member();
            let before = rows.pull(0, &[1], Read::Train).expect("pulled");
            for k in 0..3 {
                rows.stage(StepCount(0), k, &[gradient()]).expect("staged");
            }
            rows.settle().expect("kept");
            assert!(rows.staged.is_empty());
            rows.advance(StepCount(1), 1.0, 1.0).expect("told later");
            assert_eq!(served.engine.version(), StepCount(0));
            // A step whose records were all left out: nothing is pulled, nothing is staged.
            rows.settle().expect("completed");
            assert_eq!(served.engine.version(), StepCount(1));
            rows.advance(StepCount(2), 1.0, 1.0).expect("told later");
            let after = rows.pull(0, &[1], Read::Train).expect("pulled");
            assert_eq!(served.engine.version(), StepCount(2));
            assert_ne!(before, after);
        });
    }

    /// It met the others, stalled, and comes back when they have done two steps more without it.
    #[test]
    fn a_member_that_stalls_before_its_pull_leaves_the_step_and_comes_back() {
        serving(|served| {
            let ((mut stalled, _), (mut others, _)) = (served.member(), served.member());
            for rows in [&mut stalled, &mut others] {
                rows.pull(0, &[1], Read::Train).expect("pulled");
            }
            stalled.advance(StepCount(1), 1.0, 1.0).expect("told later");
            for step in (0..3).map(StepCount) {
                others.stage(step, 0, &[gradient()]).expect("staged");
                others.advance(step.next(), 1.0, 1.0).expect("told later");
                others.settle().expect("completed");
            }
            let pulled = stalled.pull(0, &[1], Read::Train);
            let error = pulled.expect_err("the others are beyond that step");
            assert!(matches!(error, Error::Unreachable(_)), "{error:?}");
            assert!(!error.is_of_the_run(), "it would end the run for all");
            let staged = stalled.stage(StepCount(1), 0, &[gradient()]);
            assert!(matches!(staged, Err(Error::Unreachable(_))), "{staged:?}");
            // The next generation begins with the state of the others.
            stalled.follow(Lineage::default());
            stalled.advance(StepCount(3), 1.0, 1.0).expect("told later");
            let rows = stalled.pull(0, &[1], Read::Train).expect("it is in step again");
            assert_eq!(rows, others.pull(0, &[1], Read::Train).expect("pulled"));
        });
    }

    #[test]
    fn a_checkpoint_that_servers_write_survives_a_regroup_and_not_another_history() {
        let folder = tempfile::tempdir().expect("a folder");
        serving(|served| {
            let (mut rows, generation) = served.member();
            rows.pull(0, &[1], Read::Train).expect("pulled");
            let finish = rows.save(&folder.path().join("scratch")).expect("copied");
            // The generation is over before anybody has waited for the files.
            generation.cancel();
            rows.servers.set(vec![served.endpoint.clone()], Vec::new(), Cancel::new());
            rows.follow(Lineage::default());
            let files = finish(folder.path()).expect("written all the same");
            assert!(files.len() == 1 && files[0].is_file(), "{files:?}");

            let finish = rows.save(&folder.path().join("given up")).expect("copied");
            rows.restore(&[], StepCount(0), Lineage::default()).expect("begun anew");
            let given_up = finish(folder.path());
            assert!(matches!(given_up, Err(Error::Unreachable(_))), "{given_up:?}");
        });
    }
}
