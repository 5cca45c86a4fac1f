//! The description of the REST API against the server itself: schemathesis makes requests from it, right ones and wrong
//! ones, and compares every answer with what it promises.
//!
//! `SALAMANDER_SCHEMATHESIS` names the program (`pip install schemathesis`).

use std::process::Command;
use std::sync::Arc;

use crate::support::{Running, Times, registry};
use salamander_serve::{Batching, Opener, ServerOptions, SourceToServe};

/// Has nothing to open: what is registered is not found.
struct EmptyOpener;

impl Opener for EmptyOpener {
    fn open(&self, _name: Option<&str>, url: &str) -> Result<SourceToServe, String> {
        Err(format!("there is no run \"{url}\""))
    }
}

#[test]
fn answers_are_as_the_description_says() {
    let Ok(program) = std::env::var("SALAMANDER_SCHEMATHESIS") else {
        let reason = "SALAMANDER_SCHEMATHESIS names no schemathesis (pip install schemathesis)";
        assert!(std::env::var_os("SALAMANDER_NO_SKIPS").is_none(), "{reason}");
        return eprintln!("skipped: {reason}");
    };
    let registry = registry(&[("double", &Times::new(2.0))], Batching::default());
    let registry = registry.with_opener(Arc::new(EmptyOpener));
    let server = Running::start(registry, ServerOptions::default());
    let folder = std::env::temp_dir().join(format!("salamander-openapi-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    // The names that there are; what takes the model away would leave nothing to ask.
    std::fs::write(
        folder.join("schemathesis.toml"),
        "[parameters]\n\"path.model\" = \"double\"\n\"path.version\" = \"1\"\n",
    )
    .unwrap();
    let url = format!("http://{}", server.address);
    let mut command = Command::new(program);
    command.current_dir(&folder).args(["run", &format!("{url}/openapi.json"), "--url", &url]);
    command.args([
        "--seed",
        "7",
        "--max-examples",
        "15",
        "--no-color",
        "--suppress-health-check",
        "all",
    ]);
    command.args(["--phases", "examples,coverage,fuzzing", "--generation-database", "none"]);
    command.args([
        "--checks",
        "not_a_server_error,status_code_conformance,content_type_conformance,\
         response_schema_conformance,unsupported_method",
    ]);
    for taken in ["modelUnload", "torchUnregister", "torchUnregisterVersion"] {
        command.args(["--exclude-operation-id", taken]);
    }
    let ended = command.output().expect("schemathesis starts");
    let told = String::from_utf8_lossy(&ended.stdout);
    std::fs::remove_dir_all(&folder).unwrap();
    assert!(ended.status.success(), "{told}{}", String::from_utf8_lossy(&ended.stderr));
}
