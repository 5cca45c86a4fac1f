//! Data in stores, read from servers that speak the real protocols: moto for S3, Azurite for Azure.

use std::io::{BufRead, BufReader};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use crate::support::{Workplace, digits, python, skip};

/// A server that ends with the test.
pub(crate) struct Server {
    child: Child,
    pub(crate) port: u16,
}

impl Server {
    /// Starts a server on a free port and waits until it accepts connections.
    fn start(command: impl Fn(u16) -> Command) -> Self {
        let mut tries = (0..3).map(|_| free_port());
        tries.find_map(|port| Self::at(port, command(port))).expect("it does not end at once")
    }

    /// None if it ended before that, as when somebody else has taken the port.
    fn at(port: u16, mut command: Command) -> Option<Self> {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().expect("the server starts");
        let deadline = Instant::now() + Duration::from_secs(60);
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            if child.try_wait().expect("a child").is_some() {
                return None;
            }
            assert!(Instant::now() < deadline, "the server does not listen");
            std::thread::sleep(Duration::from_millis(50));
        }
        Some(Server { child, port })
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A port that is free and given once. The system gives greater ones to whoever asks for any, so that this one is
/// still free when its server has begun.
fn free_port() -> u16 {
    static GIVEN: AtomicU16 = AtomicU16::new(0);
    let first = (std::process::id() % 10_000) as u16;
    let next = || 20_000 + (first + GIVEN.fetch_add(1, Ordering::Relaxed)) % 10_000;
    let mut ports = std::iter::repeat_with(next);
    ports.find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok()).expect("one is free")
}

/// A server that speaks S3, and the Python that it runs on.
pub(crate) fn moto(test: &str) -> Option<(PathBuf, Server)> {
    let python = python(test, "boto3, moto.server")?;
    let server = Server::start(|port| {
        let mut command = Command::new(&python);
        command.args(["-m", "moto.server", "-H", "127.0.0.1", "-p", &port.to_string()]);
        command
    });
    Some((python, server))
}

/// How the program finds an S3 server.
pub(crate) fn s3_settings(url: &str) -> [(&str, &str); 5] {
    [
        ("AWS_ENDPOINT", url),
        ("AWS_ALLOW_HTTP", "true"),
        ("AWS_ACCESS_KEY_ID", "id"),
        ("AWS_SECRET_ACCESS_KEY", "secret"),
        ("AWS_REGION", "us-east-1"),
    ]
}

/// Runs a script, which must succeed.
pub(crate) fn script(python: &Path, text: &str, args: &[&str]) {
    let output = Command::new(python).arg("-c").arg(text).args(args).output().expect("python runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// The program with a store's settings; its last line of output as JSON.
fn json(place: &Workplace, settings: &[(&str, &str)], args: &[&str]) -> serde_json::Value {
    let mut command = place.command(args);
    let output = command.envs(settings.iter().copied()).output().expect("the program starts");
    let err = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{args:?} failed:\n{err}");
    let last = BufReader::new(&output.stdout[..]).lines().map_while(Result::ok).last();
    serde_json::from_str(&last.unwrap_or_default()).expect("json")
}

/// Inspects a folder of digits in a store, trains on it, and names what is not there.
fn digits_are_read(place: &Workplace, settings: &[(&str, &str)], folder: &str) {
    let file = format!("{folder}mnist-valid.recordio");
    let found = json(place, settings, &["data", "inspect", &file, "--json"]);
    assert_eq!((&found["format"], &found["records"]), (&"recordio".into(), &2000.into()));

    place.write(
        "remote.yaml",
        &format!(
            "entrypoint: mnist_mlp\n\
             data: {{training: \"{folder}\", validation: \"{file}\"}}\n\
             hyperparameters: {{global_batch_size: 100}}\n\
             searcher: {{max_length: {{batches: 20}}}}\n\
             reproducibility: {{experiment_seed: 3}}\n"
        ),
    );
    let cache = place.path().join("blocks").display().to_string();
    let mut settings = settings.to_vec();
    settings.push(("SALAMANDER_CACHE_DIR", &cache));
    let summary = json(place, &settings, &["train", "--json", "remote.yaml"]);
    assert!(summary["checkpoint"].is_string(), "{summary}");
    assert!(std::fs::read_dir(&cache).expect("the cache").count() > 0, "blocks are kept on disk");

    let missing = format!("{folder}nothing.recordio");
    let mut command = place.command(&["data", "inspect", &missing]);
    let output = command.envs(settings).output().expect("the program starts");
    let err = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && err.contains("nothing.recordio: not found"), "{err}");
}

const CREATE_BUCKET: &str = r#"
import boto3, sys
s3 = boto3.client("s3", endpoint_url=sys.argv[1], aws_access_key_id="id",
                  aws_secret_access_key="secret", region_name="us-east-1")
s3.create_bucket(Bucket="digits")
s3.upload_file(sys.argv[2], "digits", "folder/mnist-valid.recordio")
"#;

#[test]
fn digits_are_read_from_s3() {
    let test = "digits_are_read_from_s3";
    let Some((python, server)) = moto(test) else { return };
    script(&python, CREATE_BUCKET, &[&server.url(), &digits("mnist-valid.recordio")]);
    let url = server.url();
    let settings = s3_settings(&url);
    digits_are_read(&Workplace::new(), &settings, "s3://digits/folder/");
}

/// Signs its requests by hand, so that no package is needed. The key is the well-known one of the emulator.
const CREATE_CONTAINER: &str = r#"
import base64, datetime, hashlib, hmac, os, sys, urllib.request
account = "devstoreaccount1"
key = base64.b64decode("Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==")

def put(path, query, body, extra):
    now = datetime.datetime.now(datetime.timezone.utc).strftime("%a, %d %b %Y %H:%M:%S GMT")
    headers = {"x-ms-date": now, "x-ms-version": "2021-08-06", **extra}
    own = "".join(f"{name}:{headers[name]}\n" for name in sorted(headers))
    resource = f"/{account}/{account}/{path}" + "".join(f"\n{k}:{v}" for k, v in query.items())
    length, kind = (str(len(body)) if body else ""), "application/octet-stream"
    text = f"PUT\n\n\n{length}\n\n{kind}\n\n\n\n\n\n\n{own}{resource}"
    sign = base64.b64encode(hmac.new(key, text.encode(), hashlib.sha256).digest()).decode()
    headers |= {"Authorization": f"SharedKey {account}:{sign}", "Content-Type": kind}
    url = f"{sys.argv[1]}/{account}/{path}" + "".join(f"?{k}={v}" for k, v in query.items())
    urllib.request.urlopen(urllib.request.Request(url, data=body, method="PUT", headers=headers))

container = sys.argv[2]
put(container, {"restype": "container"}, b"", {})
for path in sys.argv[3:]:
    with open(path, "rb") as file:
        name = os.path.basename(path)
        put(f"{container}/folder/{name}", {}, file.read(), {"x-ms-blob-type": "BlockBlob"})
"#;

/// A server that speaks Azure's protocol, with a container that has a folder of these files. Its own files are in a
/// workplace.
pub(crate) fn azurite(
    test: &str,
    place: &Workplace,
    container: &str,
    files: &[&str],
) -> Option<Server> {
    let python = python(test, "hmac")?;
    let Some(azurite) = std::env::var_os("SALAMANDER_AZURITE").map(PathBuf::from) else {
        skip(test, "SALAMANDER_AZURITE names no azurite-blob (npm install azurite)");
        return None;
    };
    let server = Server::start(|port| {
        let mut command = Command::new(&azurite);
        command.args(["--silent", "--skipApiVersionCheck", "--blobHost", "127.0.0.1"]);
        command.args(["--blobPort", &port.to_string()]);
        command.arg("--location").arg(place.path().join("az"));
        command
    });
    script(&python, CREATE_CONTAINER, &[&[server.url().as_str(), container], files].concat());
    Some(server)
}

/// How the program finds it: the emulator's own address is port 10000; another one is told by a variable.
pub(crate) fn azure_settings(url: &str) -> [(&str, &str); 2] {
    [("AZURE_STORAGE_USE_EMULATOR", "true"), ("AZURITE_BLOB_STORAGE_URL", url)]
}

#[test]
fn digits_are_read_from_azure() {
    let place = Workplace::new();
    let (test, file) = ("digits_are_read_from_azure", digits("mnist-valid.recordio"));
    let Some(server) = azurite(test, &place, "digits", &[&file]) else { return };
    digits_are_read(&place, &azure_settings(&server.url()), "az://digits/folder/");
}

#[test]
fn digits_are_read_from_a_server_without_ranges() {
    let test = "digits_are_read_from_a_server_without_ranges";
    let Some(python) = python(test, "http.server") else { return };
    let file = digits("mnist-valid.recordio");
    let folder = Path::new(&file).parent().expect("a folder");
    let server = Server::start(|port| {
        let mut command = Command::new(&python);
        command.args(["-m", "http.server", "--bind", "127.0.0.1", &port.to_string()]);
        command.current_dir(folder);
        command
    });
    let place = Workplace::new();
    let url = format!("{}/mnist-valid.recordio", server.url());
    let found = json(&place, &[], &["data", "inspect", &url, "--json"]);
    assert_eq!(found["records"], 2000);
    let error = place.run(&["data", "inspect", &format!("{}/", server.url())]).err();
    assert!(error.contains("http has no listing: name the files"), "{error}");
}
