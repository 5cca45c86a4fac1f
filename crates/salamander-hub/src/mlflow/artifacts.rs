//! Files of runs and models: put and fetched by clients below one folder, and those of our runs, which are only read.

use std::fs;
use std::path::{Component, Path, PathBuf};

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures::StreamExt;
use salamander_core::layout::{
    ASSETS, CHECKPOINTS, CONFUSION, EXPERIMENT, METRICS, PLAN, REPORT, SUMMARY,
};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;

use super::Mlflow;
use super::asked::{Asked, decoded};
use super::ours::PLACE;
use super::refusal::MlflowRefusal;
use crate::{Error, RunId};

/// What of our run folders clients may read; others have keys in them.
const SHOWN: [&str; 8] =
    [EXPERIMENT, SUMMARY, REPORT, CONFUSION, METRICS, PLAN, CHECKPOINTS, ASSETS];

/// Where the artifacts of an experiment go.
pub(super) fn location(experiment: &str) -> String {
    format!("mlflow-artifacts:/{experiment}")
}

/// A path of an address, if it stays below the folder that it is joined to.
pub(super) fn safe(path: &str) -> Result<PathBuf, MlflowRefusal> {
    let wrong = || MlflowRefusal::invalid(format!("Invalid path: {path:?}"));
    if path.contains(['\0', '\\']) {
        return Err(wrong());
    }
    let plain = Path::new(path);
    let stays = plain.components().all(|part| matches!(part, Component::Normal(_)));
    stays.then(|| plain.to_path_buf()).ok_or_else(wrong)
}

/// A file or a folder as clients name it.
enum ArtifactPlace {
    /// Below the folder of clients.
    Theirs(PathBuf),
    /// Of one of our runs.
    Ours { folder: PathBuf, inside: PathBuf },
}

impl ArtifactPlace {
    fn path(&self) -> PathBuf {
        match self {
            Self::Theirs(path) => path.clone(),
            Self::Ours { folder, inside } => folder.join(inside),
        }
    }

    fn is_shown(&self) -> bool {
        match self {
            Self::Theirs(_) => true,
            Self::Ours { inside, .. } => match inside.components().next() {
                Some(first) => SHOWN.iter().any(|shown| first.as_os_str() == *shown),
                None => true,
            },
        }
    }
}

impl Mlflow {
    fn place(&self, path: &str) -> Result<ArtifactPlace, MlflowRefusal> {
        let plain = safe(path)?;
        let Ok(ours) = plain.strip_prefix(PLACE) else {
            return Ok(ArtifactPlace::Theirs(self.folder().join("artifacts").join(plain)));
        };
        let mut parts = ours.components();
        let run = parts.next().and_then(|run| run.as_os_str().to_str()).unwrap_or_default();
        let run: RunId = run.parse()?;
        let folder = self.hub().store().run_folder(run)?;
        let inside = parts.as_path().to_path_buf();
        let place = ArtifactPlace::Ours { folder: self.hub().runs().join(folder), inside };
        if !place.is_shown() {
            return Err(MlflowRefusal::missing(format!("there is no {path}")));
        }
        Ok(place)
    }

    /// What is in a folder, by paths relative to a root.
    pub(super) fn list(&self, root: &str, path: &str) -> Result<Vec<Value>, MlflowRefusal> {
        let below = safe(path)?;
        let place = self.place(format!("{root}/{path}").trim_matches('/'))?;
        let folder = place.path();
        let entries = match fs::read_dir(&folder) {
            // A client that has put nothing has made no folder.
            Err(_) => return Ok(Vec::new()),
            Ok(entries) => entries,
        };
        let top =
            matches!(&place, ArtifactPlace::Ours { inside, .. } if inside.as_os_str().is_empty());
        let mut files = Vec::new();
        for entry in entries.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let hidden = name.starts_with('.') || (top && !SHOWN.contains(&name.as_str()));
            let Ok(about) = entry.metadata().map_err(drop) else { continue };
            if hidden || !(about.is_dir() || about.is_file()) {
                continue;
            }
            let path = below.join(&name).to_string_lossy().into_owned();
            files.push(match about.is_dir() {
                true => json!({"path": path, "is_dir": true}),
                false => json!({"path": path, "is_dir": false, "file_size": about.len()}),
            });
        }
        files.sort_by(|one, other| one["path"].as_str().cmp(&other["path"].as_str()));
        Ok(files)
    }
}

/// The root of artifacts of an address that clients know.
pub(super) fn root(uri: &str) -> Result<&str, MlflowRefusal> {
    let wrong = || MlflowRefusal::invalid(format!("{uri}: these artifacts are kept elsewhere"));
    uri.strip_prefix("mlflow-artifacts:/")
        .map(|root| root.trim_start_matches('/'))
        .ok_or_else(wrong)
}

/// Everything below `/mlflow-artifacts/artifacts`.
pub(super) async fn handle(State(mlflow): State<Mlflow>, request: Request) -> Response {
    let path = path_of(request.uri().path());
    let method = request.method().as_str().to_string();
    let answered = match (method.as_str(), path.is_empty()) {
        ("GET", true) => {
            let asked = Asked::from_query(request.uri().query().unwrap_or_default());
            let root = asked.text("path").unwrap_or_default().trim_matches('/').to_string();
            let listed = tokio::task::spawn_blocking(move || mlflow.list(&root, "")).await;
            let listed = listed.unwrap_or_else(|_| Err(Error::Closed.into()));
            listed.map(|files| axum::Json(json!({"files": files})).into_response())
        }
        ("GET", false) => fetch(&mlflow, &path).await,
        ("PUT", false) => put(&mlflow, &path, request.into_body()).await,
        ("DELETE", false) => remove(&mlflow, &path).await,
        _ => Err(MlflowRefusal::no_endpoint(&path)),
    };
    answered.unwrap_or_else(IntoResponse::into_response)
}

/// The path that an address names. A plus and an ampersand are what they are there.
fn path_of(address: &str) -> String {
    let path = address.split_once("/artifacts").map_or("", |(_, path)| path).trim_matches('/');
    decoded(&path.replace('+', "%2B"))
}

/// Where a path is, asked on a thread where waiting for the store is allowed.
async fn find(mlflow: &Mlflow, path: &str) -> Result<ArtifactPlace, MlflowRefusal> {
    let (mlflow, path) = (mlflow.clone(), path.to_string());
    let place = tokio::task::spawn_blocking(move || mlflow.place(&path)).await;
    place.unwrap_or_else(|_| Err(Error::Closed.into()))
}

async fn fetch(mlflow: &Mlflow, path: &str) -> Result<Response, MlflowRefusal> {
    let file = find(mlflow, path).await?.path();
    let missing = || MlflowRefusal::missing(format!("there is no file {path}"));
    if !file.is_file() {
        return Err(missing());
    }
    let open = tokio::fs::File::open(&file).await.map_err(|_| missing())?;
    let length = open.metadata().await.map_err(|_| missing())?.len();
    let pieces = futures::stream::unfold(open, |mut open| async move {
        let mut piece = vec![0; 64 << 10];
        match tokio::io::AsyncReadExt::read(&mut open, &mut piece).await {
            Ok(0) => None,
            Ok(read) => {
                piece.truncate(read);
                Some((Ok(piece), open))
            }
            Err(error) => Some((Err(error), open)),
        }
    });
    let mut response = Body::from_stream(pieces).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
    // Whatever it is, no browser is to run it.
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::CONTENT_DISPOSITION, HeaderValue::from_static("attachment"));
    Ok(response)
}

/// Puts a file, which appears when all of it is there.
async fn put(mlflow: &Mlflow, path: &str, body: Body) -> Result<Response, MlflowRefusal> {
    let file = match find(mlflow, path).await? {
        ArtifactPlace::Theirs(file) => file,
        ArtifactPlace::Ours { .. } => {
            return Err(MlflowRefusal::state(format!("{path} is of a run of Salamander's own")));
        }
    };
    let folder = file.parent().unwrap_or(mlflow.folder()).to_path_buf();
    let cannot = |error: std::io::Error| MlflowRefusal::from(Error::io(&file)(error));
    tokio::fs::create_dir_all(&folder).await.map_err(cannot)?;
    let beside = folder.join(format!(".new-{}", super::new_id()?));
    let written = async {
        let mut new = tokio::fs::File::create(&beside).await.map_err(cannot)?;
        let mut pieces = body.into_data_stream();
        while let Some(piece) = pieces.next().await {
            let piece =
                piece.map_err(|error| MlflowRefusal::invalid(format!("{path}: {error}")))?;
            new.write_all(&piece).await.map_err(cannot)?;
        }
        new.sync_data().await.map_err(cannot)?;
        tokio::fs::rename(&beside, &file).await.map_err(cannot)
    };
    if let Err(refusal) = written.await {
        let _ = tokio::fs::remove_file(&beside).await;
        return Err(refusal);
    }
    Ok((StatusCode::OK, axum::Json(json!({}))).into_response())
}

async fn remove(mlflow: &Mlflow, path: &str) -> Result<Response, MlflowRefusal> {
    let ArtifactPlace::Theirs(file) = find(mlflow, path).await? else {
        return Err(MlflowRefusal::state(format!("{path} is of a run of Salamander's own")));
    };
    let removed = match file.is_dir() {
        true => tokio::fs::remove_dir_all(&file).await,
        false => tokio::fs::remove_file(&file).await,
    };
    match removed {
        // What is not there is as gone as clients want it.
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(Error::io(&file)(error).into())
        }
        _ => Ok(axum::Json(json!({})).into_response()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_what_the_address_says() {
        let check = |address: &str, path: &str| {
            let address = format!("/api/2.0/mlflow-artifacts/artifacts{address}");
            assert_eq!(path_of(&address), path, "{address}");
        };
        check("", "");
        check("/", "");
        check("/0/r/artifacts/a%20b+c%26&d=e.txt", "0/r/artifacts/a b+c&&d=e.txt");
        check("/%C3%A9%2F..", "\u{e9}/..");
    }

    #[test]
    fn paths_stay_below_their_folder() {
        for path in ["a/b.txt", "1/2/artifacts/model/MLmodel", "", "a b/\u{e9}"] {
            assert!(safe(path).is_ok(), "{path}");
        }
        for path in ["../a", "a/../../b", "/etc/passwd", "a/./../b", "a\\..\\b", "a\0b"] {
            assert!(safe(path).is_err(), "{path}");
        }
    }
}
