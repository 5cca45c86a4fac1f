//! The files of a run at a server: each is sent once, and is not read again for each that follows.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use salamander_core::experiment::Mlflow;
use salamander_track::about::About;
use salamander_track::mlflow::{SendProgress, Sender};

use crate::folder;

/// A server that has the run already and takes whatever it is sent; it lives as long as the process.
fn server() -> (SocketAddr, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let files = Arc::new(Mutex::new(Vec::new()));
    let own = Arc::clone(&files);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            answer(&stream, &own);
        }
    });
    (address, files)
}

/// Takes one request, and notes the name of a file.
fn answer(mut stream: &TcpStream, files: &Mutex<Vec<String>>) {
    let mut reader = BufReader::new(stream);
    let (mut first, mut line, mut length) = (String::new(), String::new(), 0);
    // Nothing comes from whoever thinks better of it.
    let _ = reader.read_line(&mut first);
    while reader.read_line(&mut line).is_ok_and(|read| read > 2) {
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().expect("a length");
        }
        line.clear();
    }
    let mut body = vec![0; length];
    let (true, Some(path)) = (reader.read_exact(&mut body).is_ok(), first.split(' ').nth(1)) else {
        return;
    };
    if first.starts_with("PUT") {
        let name = path.split_once("/artifacts/1/a/artifacts/").expect("of the run").1;
        files.lock().expect("no panic").push(name.to_string());
    }
    let body = match path {
        path if path.contains("get-by-name") => r#"{"experiment":{"experiment_id":"1"}}"#,
        path if path.ends_with("runs/search") => {
            r#"{"runs":[{"info":{"run_id":"a","artifact_uri":"mlflow-artifacts:/1/a/artifacts"}}]}"#
        }
        _ => "{}",
    };
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n", body.len());
    let _ = stream.write_all(format!("{head}Connection: close\r\n\r\n{body}").as_bytes());
}

#[test]
fn a_file_that_was_sent_is_read_again_only_when_it_has_changed() {
    let (address, files) = server();
    let (_parent, run) = folder::run();
    folder::append(&run, 1..=3, 0);
    folder::end(&run);
    let mlflow = Mlflow { uri: format!("http://{address}"), experiment: None, checkpoint: false };
    let mut sender =
        Sender::new(&run, About::read(&run).expect("read"), &mlflow).expect("an address");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime");
    let mut advance = || runtime.block_on(sender.advance(true)).expect("sent");
    let sent = || files.lock().expect("no panic").clone();
    while sent().is_empty() {
        assert_eq!(advance(), SendProgress::Sent);
    }
    assert_eq!(sent(), ["experiment.yaml"]);
    // Other bytes, and nothing that tells so: it is not looked into for each file that follows.
    let path = run.experiment();
    let before = fs::metadata(&path).expect("there").modified().expect("a time");
    let write = |text: String, time: SystemTime| {
        fs::write(&path, text).expect("written");
        let file = File::options().write(true).open(&path).expect("opened");
        file.set_modified(time).expect("set");
    };
    write(folder::EXPERIMENT.replace("net", "ten"), before);
    while advance() == SendProgress::Sent {}
    let all = ["experiment.yaml", "summary.json", "report.json", "confusion.png"];
    assert_eq!(sent(), all);
    // What was written anew is sent anew.
    write(folder::EXPERIMENT.replace("net", "one"), before + Duration::from_secs(1));
    while advance() == SendProgress::Sent {}
    assert_eq!(sent().len(), 5);
    assert_eq!(sent()[4], "experiment.yaml");
}
