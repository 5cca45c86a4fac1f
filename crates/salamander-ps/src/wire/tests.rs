//! Requests over plain memory: what was written is read, and any other bytes are an error.

use std::borrow::Cow;
use std::path::PathBuf;

use proptest::prelude::*;
use salamander_core::asynchronous::{Envelope, Lineage};
use salamander_core::elastic::Term;
use salamander_core::plan::MicroBatch;
use salamander_core::progress::StepCount;

use super::cursor::WireWriter;
use super::reply::{changed_head, decode_changed, decode_json, encode_json};
use super::request::{Lookup, Received, WireValues};
use super::*;
use crate::{Changed, LedgerPage, Push, Read, TableSpec};

/// The body of a message as a server has it: in one piece, aligned for words.
fn body(message: &Message<'_>) -> (Header, Vec<u64>) {
    let header = message.header(7, 11);
    let bytes = message.parts().concat();
    assert_eq!(bytes.len() as u64, header.length);
    assert_eq!(bytes.len() % 8, 0);
    (header, words(&bytes))
}

/// Whole words of bytes.
pub(super) fn words(bytes: &[u8]) -> Vec<u64> {
    bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)).collect()
}

#[track_caller]
fn check(message: &Message<'_>, expected: &Request<'_>) {
    let (header, words) = body(message);
    let decoded = Header::decode(&header.encode()).expect("a header");
    assert_eq!(decoded, header);
    let bytes = bytemuck::cast_slice(&words);
    assert_eq!(Request::decode(&header, bytes).as_ref(), Ok(expected));
    // Every shorter body is an error, and so is a longer one.
    for length in (0..bytes.len()).step_by(8) {
        assert!(Request::decode(&header, &bytes[..length]).is_err(), "{length}");
    }
    let mut longer = words.clone();
    longer.push(0);
    assert!(Request::decode(&header, bytemuck::cast_slice(&longer)).is_err());
}

fn blocks(tables: &[(u64, usize, Vec<u64>)], values: &[f32]) -> Vec<RowBlock<'static>> {
    let block = |(key, dim, ids): &(u64, usize, Vec<u64>)| {
        let count = ids.len() * dim;
        let values = values.iter().copied().cycle().take(count).collect::<Vec<f32>>();
        let (ids, values) = (Cow::Owned(ids.clone()), Cow::Owned(values));
        RowBlock { table: TableKey(*key), dim: *dim, ids, values }
    };
    tables.iter().map(block).collect()
}

fn received<'a>(blocks: &'a [RowBlock<'_>]) -> Vec<Received<'a>> {
    let row = |block: &'a RowBlock<'_>| Received {
        table: block.table,
        ids: &block.ids,
        values: WireValues::F32(&block.values),
    };
    blocks.iter().map(row).collect()
}

fn tables() -> impl Strategy<Value = Vec<(u64, usize, Vec<u64>)>> {
    let table = (any::<u64>(), 0usize..5, prop::collection::vec(any::<u64>(), 0..6));
    prop::collection::vec(table, 0..4)
}

proptest! {
    #[test]
    fn rows_arrive_as_they_were(tables in tables(), step: u64, k: u32, factor in -1e9..1e9) {
        let blocks = blocks(&tables, &[1.5, -2.0, 0.25]);
        let rows = received(&blocks);
        let version = StepCount(step);
        check(
            &Message::stage(version, k, blocks.clone(), false),
            &Request::Stage { version, k, rows: rows.clone() },
        );
        let name = MicroBatch { epoch: step, step: 5, k };
        let tally = LedgerPage { applied: 1, skipped: u64::MAX, digest: 3 };
        let seen = (k % 2 == 0).then_some(u64::from(k));
        let push = Push { name, tally, factor, scale: 0.5, seen, rows: &[] };
        check(
            &Message::push(&push, blocks.clone(), false),
            &Request::Push { name, tally, factor, scale: 0.5, seen, rows },
        );
    }

    #[test]
    fn rounded_rows_have_half_the_bytes(tables in tables()) {
        let blocks = blocks(&tables, &[1.5, -2.0, 0.25]);
        let (header, words) = body(&Message::stage(StepCount(1), 2, blocks.clone(), true));
        prop_assert!(header.bf16);
        let request = Request::decode(&header, bytemuck::cast_slice(&words)).expect("a request");
        let Request::Stage { rows, .. } = request else { panic!("another request") };
        for (row, block) in rows.iter().zip(&blocks) {
            let WireValues::Bf16(rounded) = row.values else { panic!("not rounded") };
            let mut widened = vec![0.0; rounded.len()];
            salamander_net::bf16::widen(rounded, &mut widened);
            // These values have few digits.
            prop_assert_eq!(&widened[..], &block.values[..]);
            prop_assert_eq!(row.ids, &block.ids[..]);
        }
    }

    #[test]
    fn lookups_arrive_as_they_were(tables in tables(), to: u64, first: bool) {
        let advance = first.then_some(Advance { to: StepCount(to), factor: 0.5, scale: 2.0 });
        let asked = tables.iter().map(|(key, _, ids)| (TableKey(*key), Cow::from(&ids[..])));
        let lookups = tables.iter().map(|(key, _, ids)| Lookup { table: TableKey(*key), ids });
        check(
            &Message::pull(Read::Evaluate, advance, Some(StepCount(3)), asked.collect(), true),
            &Request::Pull {
                advance,
                version: Some(StepCount(3)),
                read: Read::Evaluate,
                lookups: lookups.collect(),
            },
        );
    }

    #[test]
    fn any_words_end_without_panic(
        at in 0..MessageKind::ALL.len(), bf16: bool,
        words in prop::collection::vec(prop_oneof![0u64..20, any::<u64>()], 0..40),
        cut in 0usize..8,
    ) {
        let bytes: &[u8] = bytemuck::cast_slice(&words);
        let bytes = &bytes[..bytes.len().saturating_sub(cut)];
        let length = bytes.len() as u64;
        let header = Header { kind: MessageKind::ALL[at], bf16, tag: 0, number: 0, length };
        let _ = Request::decode(&header, bytes);
        let _ = Failure::decode(bytes);
        let _ = decode_changed(bytes);
        let _ = decode_json::<Info>(bytes);
    }

    #[test]
    fn changed_rows_arrive_as_they_were(counter: u64, ids: Vec<u64>, values: Vec<f32>) {
        let changed = Changed { counter, ids, values };
        let mut bytes = changed_head(&changed).to_vec();
        bytes.extend_from_slice(bytemuck::cast_slice(&changed.ids));
        bytes.extend_from_slice(bytemuck::cast_slice(&changed.values));
        let mut words = vec![0u64; bytes.len().div_ceil(8)];
        bytemuck::cast_slice_mut(&mut words)[..bytes.len()].copy_from_slice(&bytes);
        let bytes = &bytemuck::cast_slice(&words)[..bytes.len()];
        let decoded = decode_changed(bytes).expect("rows");
        prop_assert_eq!(decoded.counter, counter);
        prop_assert_eq!(decoded.ids, changed.ids);
        prop_assert_eq!(decoded.values.len(), changed.values.len());
    }
}

#[test]
fn small_requests_arrive_as_they_were() {
    let table = TableKey::of("user");
    let spec = TableSpec::new("user", 16);
    check(&Message::declare(&spec), &Request::Declare(Box::new(spec)));
    let advance = Advance { to: StepCount(9), factor: 0.1, scale: 0.5 };
    check(&Message::advance(&advance), &Request::Advance(advance));
    let seen = Moment { counter: 4, incarnation: 5 };
    check(&Message::changed(table, seen), &Request::Changed { table, seen });
    let order = Envelope { term: Term(3), to: u64::MAX };
    check(&Message::prune(order, 6), &Request::Prune { order, below: 6 });
    let files = [PathBuf::from("a/b"), PathBuf::from("ö")];
    let owner = Owner { endpoint: "there".to_string(), partitions: vec![3..9, 12..13] };
    let reset = Reset {
        partitions: vec![0..3, 9..10],
        version: StepCount(2),
        files: files.to_vec(),
        older: vec![vec![files[0].clone()], Vec::new()],
        from: Some(Before { lineage: Lineage(7), owners: vec![owner] }),
    };
    let message = Message::reset(order, &reset);
    check(&message, &Request::Reset { order, reset: Box::new(reset) });
    let save = Request::Save { order, path: files[1].clone() };
    check(&Message::save(order, &files[1]), &save);
    check(&Message::release(order), &Request::Release { order });
    check(&Message::written(&files[1]), &Request::Written { path: files[1].clone() });
    check(&Message::take(1023), &Request::Take { partition: 1023 });
}

#[test]
fn requests_without_a_body_are_their_kind() {
    let requests = [
        (MessageKind::Info, Request::Info),
        (MessageKind::Applied, Request::Applied),
        (MessageKind::KeepAlive, Request::KeepAlive),
    ];
    for (kind, request) in requests {
        let (header, words) = body(&Message::plain(kind));
        assert_eq!(Request::decode(&header, bytemuck::cast_slice(&words)), Ok(request));
    }
    for kind in [MessageKind::Done, MessageKind::Failed] {
        let (header, _) = body(&Message::plain(kind));
        assert_eq!(Request::decode(&header, &[]), Err(Error::Unexpected(kind)));
    }
}

#[test]
fn lies_about_counts_take_no_memory() {
    // More tables, rows and values than any machine has room for.
    for words in [[1, 0, u64::MAX, 0], [1, 0, 1 << 40, 0], [0, 0, 1, u64::MAX]] {
        let header = Message::plain(MessageKind::Stage).header(0, 0);
        assert_eq!(Request::decode(&header, bytemuck::cast_slice(&words)), Err(Error::Short));
    }
    let mut writer = WireWriter::default();
    writer.u64(0).u64(0).u64(1).u64(1).u64(u32::MAX.into()).u64(2).array(&[1u64, 2]);
    let words = words(&writer.into_bytes());
    let header = Message::plain(MessageKind::Stage).header(0, 0);
    assert_eq!(Request::decode(&header, bytemuck::cast_slice(&words)), Err(Error::Short));
}

#[test]
fn answers_arrive_as_they_were() {
    for (detail, code) in [(0, Code::Malformed), (7, Code::Lineage), (u64::MAX, Code::Undeclared)] {
        let failure = Failure { code, detail, text: "no".to_string() };
        let words = words(&failure.encode());
        assert_eq!(Failure::decode(bytemuck::cast_slice(&words)), Ok(failure));
    }
    let partitions = vec![0..7, 9..10];
    let info = Info { incarnation: 2, lineage: Lineage(1), is_placed: true, partitions };
    let words = words(&encode_json(&info));
    assert_eq!(decode_json(bytemuck::cast_slice(&words)), Ok(info));
}
