//! Servers that take their time to give partitions away.

use std::sync::Arc;
use std::time::Duration;

use salamander_core::asynchronous::Lineage;
use salamander_net::{Cancel, Keys, Listener, Patience, Stream};
use salamander_ps::client::ClientOptions;
use salamander_ps::role;
use salamander_ps::wire::{
    Before, Code, Failure, Header, HistoryStart, MessageKind, Request, header,
};
use salamander_ps::{Engine, EngineOptions, Mode, TableRows, TableSpec, server};

use crate::cluster::{Cluster, LONG, Over};

/// A server that says so many times that it is still putting partitions apart.
struct Giver {
    engine: Engine,
    refusals: usize,
    cancel: Cancel,
}

impl Giver {
    /// Serves one connection until the other side has gone.
    fn serve(mut self, listener: &Listener) {
        let stream = listener.accept(&self.cancel).expect("a connection");
        let mut head = [0; header::LENGTH];
        while stream.receive(&mut head, &self.patience()).is_ok() {
            let header = Header::decode(&head).expect("a header");
            let mut body = vec![0u64; (header.length as usize).div_ceil(8)];
            let bytes = &mut bytemuck::cast_slice_mut(&mut body)[..header.length as usize];
            stream.receive(bytes, &self.patience()).expect("a body");
            let request = Request::decode(&header, bytes).expect("a request");
            self.answer(&stream, &header, request);
        }
    }

    fn answer(&mut self, stream: &Stream, header: &Header, request: Request<'_>) {
        let (kind, body) = match request {
            Request::Take { .. } if self.refusals > 0 => {
                self.refusals -= 1;
                (MessageKind::Failed, Failure::new(Code::NotApart, "not yet").encode())
            }
            Request::Take { partition } => {
                (MessageKind::Done, self.engine.take(&[partition]).expect("it is here"))
            }
            _ => (MessageKind::Done, Vec::new()),
        };
        let reply = Header { kind, tag: 7, length: body.len() as u64, ..*header };
        stream.send(&[&reply.encode(), &body], &self.patience()).expect("sent");
    }

    fn patience(&self) -> Patience<'_> {
        Patience::new(&self.cancel, LONG)
    }
}

#[test]
fn a_server_that_lives_is_waited_for_while_it_puts_partitions_apart() {
    // Nobody has time to hear of a move, so that only one that has heard of it is waited for.
    let allowed =
        server::ServerOptions { hearsay: Duration::ZERO, ..server::ServerOptions::default() };
    let cluster = Cluster::with(1, Mode::Immediate, Over::Unix, allowed);
    let keys: Keys = cluster.keys.clone();
    let address = "127.0.0.1:0".parse().expect("an address");
    let (listener, endpoint) = role::bind(address, keys).expect("a listener");
    let options =
        EngineOptions { mode: Mode::Immediate, seed: 11, slices: 4, ..Default::default() };
    let engine = Engine::new(options).expect("an engine");
    let spec = TableSpec::new("item", 1);
    let table = engine.declare(spec.clone()).expect("declared");
    let ids: Vec<u64> = (0..100).collect();
    let values: Vec<f32> = (0..100u8).map(f32::from).collect();
    engine.set(TableRows { table, ids: &ids, values: &values }).expect("set");

    let cancel = Cancel::new();
    let giver = Giver { engine, refusals: 5, cancel: cancel.clone() };
    let listener = Arc::new(listener);
    let serving = std::thread::spawn({
        let listener = Arc::clone(&listener);
        move || giver.serve(&listener)
    });
    let before = Before::new(Lineage(1), 1, [(0, endpoint)]);
    let start = HistoryStart { servers: 1, from: Some(before), ..HistoryStart::default() };
    let mut client = cluster.client(ClientOptions::default());
    let outcome = client.reset_each(Lineage(2), &[start.reset(0)]).expect("moved");
    assert_eq!(outcome[0].fallback, None);
    let table = client.declare(spec).expect("declared");
    assert_eq!(client.pull(&[(table, &ids)]).expect("pulled")[0], values);
    cancel.cancel();
    serving.join().expect("no panic");
}
