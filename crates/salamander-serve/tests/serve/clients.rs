//! Clients that people have already: tritonclient over http, grpc and asyncio, unmodified, in `clients.py`.

use std::process::Command;

use crate::support::{Running, Times, registry};
use salamander_serve::{Batching, ServerOptions};

/// A Python that has tritonclient: `SALAMANDER_TRITON_PYTHON`, else `SALAMANDER_PYTHON`.
fn python() -> Option<String> {
    let named = ["SALAMANDER_TRITON_PYTHON", "SALAMANDER_PYTHON"];
    named.into_iter().filter_map(|name| std::env::var(name).ok()).find(|python| {
        let mut import = Command::new(python);
        import.args(["-c", "import tritonclient.http.aio, tritonclient.grpc.aio"]);
        import.output().is_ok_and(|tried| tried.status.success())
    })
}

#[test]
fn unmodified_clients_are_answered() {
    let Some(python) = python() else {
        let reason = "no Python with tritonclient[http,grpc]: set SALAMANDER_TRITON_PYTHON";
        assert!(std::env::var_os("SALAMANDER_NO_SKIPS").is_none(), "{reason}");
        return eprintln!("skipped: {reason}");
    };
    let model = Times::new(2.0);
    let registry = registry(&[("double", &model)], Batching::default());
    let server = Running::start(registry, ServerOptions::default());
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/serve/clients.py");
    let ended = Command::new(python).arg(script).arg(server.address.to_string()).output();
    let ended = ended.expect("Python starts");
    let told = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "{told}");
}
