//! What a worker can send to a parameter server, and a server to a worker: headers, and bodies of every
//! kind. The first byte says which kind, and whether values are rounded.
#![no_main]

use libfuzzer_sys::fuzz_target;
use salamander_ps::wire::reply::{decode_changed, decode_json, decode_number};
use salamander_ps::wire::request::Received;
use salamander_ps::wire::{Failure, Header, Info, MessageKind, Request, header};

fuzz_target!(|bytes: &[u8]| {
    if let Some(start) = bytes.first_chunk::<{ header::LENGTH }>()
        && let Ok(decoded) = Header::decode(start)
    {
        assert_eq!(decoded.encode(), *start, "a header has one form");
    }
    let Some((&first, bytes)) = bytes.split_first() else { return };
    let kind = MessageKind::ALL[usize::from(first & 0x7f) % MessageKind::ALL.len()];
    let length = bytes.len() as u64;
    let header = Header { kind, bf16: first >= 0x80, tag: 0, number: 0, length };
    // Servers receive bodies into words, so that arrays in them are aligned.
    let mut words = vec![0u64; bytes.len().div_ceil(8)];
    let body = &mut bytemuck::cast_slice_mut::<u64, u8>(&mut words)[..bytes.len()];
    body.copy_from_slice(bytes);
    match Request::decode(&header, body) {
        Ok(Request::Stage { rows, .. } | Request::Push { rows, .. }) => {
            check(&rows, body.len(), header.bf16);
        }
        Ok(Request::Pull { lookups, .. }) => {
            let ids: usize = lookups.iter().map(|lookup| lookup.ids.len()).sum();
            assert!(ids * 8 <= body.len(), "ids lie in the body");
        }
        Ok(_) | Err(_) => {}
    }
    let _ = Failure::decode(body);
    let _ = decode_number(body);
    let _ = decode_json::<Info>(body);
    if let Ok(changed) = decode_changed(body) {
        assert!(changed.ids.len() * 8 + changed.values.len() * 4 <= body.len());
    }
});

/// What was decoded lies in the body, and rows of a table have one width.
fn check(rows: &[Received<'_>], length: usize, bf16: bool) {
    let width = if bf16 { 2 } else { 4 };
    let bytes = |row: &Received<'_>| row.ids.len() * 8 + row.values.len() * width;
    assert!(rows.iter().map(bytes).sum::<usize>() <= length, "rows lie in the body");
    for row in rows {
        let whole = row.values.len().checked_rem(row.ids.len()).unwrap_or(row.values.len());
        assert_eq!(whole, 0, "rows are whole");
    }
}
