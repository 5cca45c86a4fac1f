//! Rows on parameter servers, which all workers of a run share.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use salamander_net::{Cancel, Token};
use salamander_ps::client::Lookup;
use salamander_ps::client::{self, Client, Directory, Scope};
use salamander_ps::wire::{Advance, Code, Failure};
use salamander_ps::{Read, Rows, TableId, TableSpec};

use super::{Finish, RowGradient, RowStore, Shared};
use crate::Error;

/// How long a request may take before this member gives its generation up.
const PATIENCE: Duration = Duration::from_secs(10);

/// The servers of a generation: whoever enters one says where they are.
#[derive(Clone, Debug, Default)]
pub struct Servers(Arc<Mutex<Known>>);

#[derive(Clone, Debug, Default)]
struct Known {
    endpoints: Vec<String>,
    cancel: Cancel,
}

impl Servers {
    /// The servers of the generation that begins, and the flag that ends it.
    pub fn set(&self, endpoints: Vec<String>, cancel: Cancel) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Known { endpoints, cancel };
    }

    fn get(&self) -> Known {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Rows on servers.
pub struct RemoteRows {
    servers: Servers,
    token: Token,
    bf16: bool,
    specs: Vec<TableSpec>,
    lineage: u64,
    client: Option<(Client, Vec<TableId>)>,
}

impl RemoteRows {
    /// Rows on the servers that are known when they are first asked.
    pub fn new(servers: Servers, token: Token, bf16: bool) -> Self {
        Self { servers, token, bf16, specs: Vec::new(), lineage: 0, client: None }
    }

    fn client(&mut self) -> Result<&mut (Client, Vec<TableId>), Error> {
        match &mut self.client {
            Some(client) => Ok(client),
            none => {
                let Known { endpoints, cancel } = self.servers.get();
                let options = client::Options {
                    patience: PATIENCE,
                    bf16: self.bf16,
                    lineage: self.lineage,
                    cancel,
                    ..client::Options::default()
                };
                let directory = Directory::new(endpoints);
                let mut client =
                    Client::connect(directory, self.token.clone(), options).map_err(trouble)?;
                let declared = self.specs.iter().map(|spec| client.declare(spec.clone()));
                let tables = declared.collect::<Result<_, _>>().map_err(trouble)?;
                Ok(none.insert((client, tables)))
            }
        }
    }
}

/// Another try, in the next generation, helps against everything but a mistake of this program.
pub(crate) fn trouble(error: client::Error) -> Error {
    match error {
        client::Error::Request(_) | client::Error::Answer { .. } => {
            Error::Invalid(error.to_string())
        }
        client::Error::Refused { ref failure, .. } if is_mistake(failure) => {
            Error::Invalid(error.to_string())
        }
        error => Error::Unreachable(error.to_string()),
    }
}

fn is_mistake(failure: &Failure) -> bool {
    matches!(
        failure.code,
        Code::Malformed | Code::TooLarge | Code::OutOfStep | Code::Wrong | Code::Undeclared
    )
}

impl RowStore for RemoteRows {
    fn declare(&mut self, specs: &[TableSpec]) -> Result<(), Error> {
        self.specs = specs.to_vec();
        Ok(())
    }

    fn shared(&self) -> Shared {
        Shared::Yes
    }

    fn follow(&mut self, lineage: u64) {
        self.lineage = lineage;
        self.client = None;
    }

    fn pull(&mut self, table: usize, ids: &[u64], training: bool) -> Result<Vec<f32>, Error> {
        let mut rows = vec![0.0; ids.len() * self.specs[table].dim];
        let read = if training { Read::Train } else { Read::Evaluate };
        let (client, tables) = self.client()?;
        let mut lookup = [Lookup { table: tables[table], ids, out: &mut rows }];
        client.pull_into(read, None, &mut lookup).map_err(trouble)?;
        Ok(rows)
    }

    fn stage(&mut self, version: u64, k: u32, rows: &[RowGradient]) -> Result<(), Error> {
        let (client, tables) = self.client()?;
        let rows: Vec<Rows<'_>> = rows
            .iter()
            .map(|row| Rows { table: tables[row.table], ids: &row.ids, values: &row.values })
            .collect();
        client.stage(version, k, &rows).map(drop).map_err(trouble)
    }

    fn advance(&mut self, to: u64, factor: f64, divisor: f32) -> Result<(), Error> {
        let advance = Advance { to, factor, scale: divisor };
        self.client()?.0.advance(&advance).map(drop).map_err(trouble)
    }

    fn save(&mut self, scratch: &Path) -> Result<Finish, Error> {
        std::fs::create_dir_all(scratch).map_err(Error::io(scratch))?;
        let servers = self.servers.get().endpoints.len();
        let file = |server: usize| scratch.join(format!("tables-{server}-of-{servers}.rows"));
        let files: Vec<PathBuf> = (0..servers).map(file).collect();
        self.client()?.0.save(&files).map_err(trouble)?;
        let scratch = scratch.to_path_buf();
        Ok(Box::new(move |folder: &Path| {
            let mut moved = Vec::new();
            for file in files {
                let to = folder.join(file.file_name().unwrap_or_default());
                std::fs::rename(&file, &to).map_err(Error::io(&file))?;
                moved.push(to);
            }
            // Empty by now; what a killed worker left in it is of no use to anybody.
            let _ = std::fs::remove_dir_all(&scratch);
            Ok(moved)
        }))
    }

    fn restore(&mut self, files: &[PathBuf], version: u64, lineage: u64) -> Result<(), Error> {
        self.follow(lineage);
        let (client, _) = self.client()?;
        client.reset(Scope::All, lineage, version, files).map(drop).map_err(trouble)
    }
}
