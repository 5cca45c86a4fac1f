//! Who may do what: everybody on this machine where there is no login, or else the user of a token by their role.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::attempts::LoginAttempts;
use crate::Error;
use crate::hub::now;
use crate::mlflow;
use crate::store::Store;
use crate::store::users::{User, UserRole};

/// How long a token's secret is believed without being looked at again; argon2 is slow on purpose.
const BELIEVED: Duration = Duration::from_secs(30);
/// How long somebody who was let in stays in without being looked at again.
const LOOKED: Duration = Duration::from_secs(1);
/// Tokens that are remembered.
const REMEMBERED: usize = 1024;

/// How a hub is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// By anybody on this machine.
    Open,
    /// With a token.
    Tokens,
}

/// Checks requests.
pub struct Guard {
    access: Access,
    store: Store,
    /// By the hash of a token.
    believed: Mutex<HashMap<[u8; 32], Believed>>,
    attempts: LoginAttempts,
    failed: AtomicU64,
}

/// Where a request comes from; behind a proxy, as that says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerAddress(pub IpAddr);

/// By what somebody was let in: what goes on after the answer has begun asks whether that is still good.
#[derive(Clone)]
pub(super) struct Admission {
    guard: Arc<Guard>,
    /// None: no token is asked for.
    token: Option<String>,
    looked: Instant,
}

impl Admission {
    /// Whether it is; looked at once in a while. A store that is away shuts nobody out.
    pub(super) async fn is_good(&mut self) -> bool {
        let Some(token) = self.token.clone() else { return true };
        if self.looked.elapsed() < LOOKED {
            return true;
        }
        self.looked = Instant::now();
        let guard = Arc::clone(&self.guard);
        let asked = tokio::task::spawn_blocking(move || guard.store.token_user(&token, now()));
        !matches!(asked.await, Ok(Ok(None)))
    }
}

/// A token that was looked at.
struct Believed {
    since: Instant,
    /// In milliseconds since 1970.
    expires: Option<i64>,
}

impl Believed {
    fn is_good(&self, now: i64) -> bool {
        self.since.elapsed() < BELIEVED && self.expires.is_none_or(|expires| expires > now)
    }
}

impl Guard {
    /// For a store whose users may come in.
    pub fn new(access: Access, store: Store) -> Self {
        let (believed, attempts) = (Mutex::default(), LoginAttempts::default());
        Self { access, store, believed, attempts, failed: AtomicU64::new(0) }
    }

    /// Wrong tokens so far.
    pub(super) fn failed_logins(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }

    /// Whose token this is, at a time in milliseconds since 1970.
    fn user(&self, token: &str, from: IpAddr, now: i64) -> Result<User, Error> {
        let key = *blake3::hash(token.as_bytes()).as_bytes();
        // That the secret is right is believed; whose it is, and what that user may do, may have changed.
        if self.is_believed(&key, now)
            && let Some(user) = self.store.token_user(token, now)?
        {
            return Ok(user);
        }
        if let Some(wait) = self.attempts.wait(from, now) {
            return Err(Error::TooManyLogins { seconds: wait / 1000 + 1 });
        }
        let Some((user, expires)) = self.store.login(token, now)? else {
            self.attempts.failed(from, now);
            self.failed.fetch_add(1, Ordering::Relaxed);
            let reason = "this token is nobody's, or it has expired".to_string();
            return Err(Error::Unauthorized(reason));
        };
        let mut believed = self.believed.lock().unwrap_or_else(PoisonError::into_inner);
        if believed.len() >= REMEMBERED {
            believed.clear();
        }
        believed.insert(key, Believed { since: Instant::now(), expires });
        Ok(user)
    }

    fn is_believed(&self, key: &[u8; 32], now: i64) -> bool {
        let believed = self.believed.lock().unwrap_or_else(PoisonError::into_inner);
        believed.get(key).is_some_and(|known| known.is_good(now))
    }
}

/// Lets a request in, with its user, or answers why not.
pub(super) async fn check(
    State(guard): State<Arc<Guard>>,
    mut request: Request,
    next: Next,
) -> Response {
    let presented = match guard.access {
        Access::Open => None,
        Access::Tokens => token(request.headers()),
    };
    let user = match guard.access {
        Access::Open => same_machine(request.headers())
            .map(|()| User { name: String::new(), role: UserRole::Admin }),
        Access::Tokens => match presented.clone() {
            Some(token) => {
                let guard = Arc::clone(&guard);
                let from = request.extensions().get::<PeerAddress>();
                let from = from.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |peer| peer.0);
                let asked = tokio::task::spawn_blocking(move || guard.user(&token, from, now()));
                asked.await.unwrap_or(Err(Error::Closed))
            }
            None => Err(Error::Unauthorized(
                "log in: send `Authorization: Bearer TOKEN` (`salamander hub token` makes one)"
                    .to_string(),
            )),
        },
    };
    let path = request.uri().path();
    let refuse: fn(Error) -> Response = match mlflow::is_call(path) {
        true => mlflow::refuse,
        false => Error::into_response,
    };
    match user {
        Ok(user) if !only_looks(request.method(), path) && user.role < UserRole::Editor => {
            refuse(Error::Forbidden(format!("{} may look, and change nothing", user.name)))
        }
        Ok(user) => {
            let admission = Admission { guard, token: presented, looked: Instant::now() };
            request.extensions_mut().insert(user);
            request.extensions_mut().insert(admission);
            next.run(request).await
        }
        Err(error) => refuse(error),
    }
}

/// Searches of MLflow's clients, which come as POST.
const SEARCHES: [&str; 5] = [
    "experiments/search",
    "experiments/search-datasets",
    "runs/search",
    "logged-models/search",
    "registered-models/get-latest-versions",
];

/// Whether a request changes nothing. Whole paths are compared: what is written in another way changes something.
fn only_looks(method: &Method, path: &str) -> bool {
    let is_search =
        |prefix: &str| path.strip_prefix(prefix).is_some_and(|call| SEARCHES.contains(&call));
    match *method {
        Method::GET | Method::HEAD => true,
        Method::POST => is_search("/api/2.0/mlflow/") || is_search("/ajax-api/2.0/mlflow/"),
        _ => false,
    }
}

fn token(headers: &HeaderMap) -> Option<String> {
    let text = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    text.strip_prefix("Bearer ").map(|token| token.trim().to_string())
}

/// Without a login, pages of other sites in a browser of this machine must not get in: neither by their own name for
/// this address, nor by sending forms.
fn same_machine(headers: &HeaderMap) -> Result<(), Error> {
    let text = |name| headers.get(name).and_then(|value: &header::HeaderValue| value.to_str().ok());
    let host = text(header::HOST).unwrap_or_default();
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
    if !matches!(name, "localhost" | "127.0.0.1" | "[::1]") {
        let reason = format!("this hub is localhost's, and {host:?} is another name");
        return Err(Error::Forbidden(reason));
    }
    if let Some(origin) = text(header::ORIGIN)
        && origin.strip_prefix("http://") != Some(host)
    {
        return Err(Error::Forbidden(format!("pages of {origin} may not use this hub")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    #[test]
    fn only_searches_look_among_what_is_posted() {
        let check = |method: Method, path: &str, expected: bool| {
            assert_eq!(only_looks(&method, path), expected, "{method} {path}");
        };
        check(Method::GET, "/api/v1/runs", true);
        check(Method::POST, "/api/2.0/mlflow/runs/search", true);
        check(Method::POST, "/ajax-api/2.0/mlflow/experiments/search", true);
        check(Method::PUT, "/api/2.0/mlflow/runs/search", false);
        for path in [
            "/api/2.0/mlflow/runs/search/",
            "/api/2.0/mlflow//runs/search",
            "/api/2.0/mlflow/runs/create",
            "/api/2.0/mlflow/runs/create/../search",
            "/api/v1/runs/search",
            "runs/search",
        ] {
            check(Method::POST, path, false);
        }
    }

    #[test]
    fn who_guesses_tokens_is_slowed_and_whoever_is_in_stays_in() {
        let folder = tempfile::tempdir().expect("a folder");
        let store = Store::open(&folder.path().join("hub.sqlite")).expect("made");
        store.set_user("ada", UserRole::Viewer, 0).expect("made");
        let token = store.new_token("ada", 0, None).expect("made");
        let guard = Guard::new(Access::Tokens, store);
        guard.user(&token, HERE, 0).expect("good");
        for _ in 0..10 {
            assert!(matches!(guard.user("slm_a_b", HERE, 0), Err(Error::Unauthorized(_))));
        }
        let refused = guard.user("slm_a_b", HERE, 1).expect_err("too many");
        assert_eq!(refused.status(), 429);
        assert!(refused.to_string().contains("try again in 60 s"), "{refused}");
        assert_eq!(guard.user(&token, HERE, 2).expect("known").name, "ada");
        let elsewhere = IpAddr::from([10, 0, 0, 1]);
        assert!(matches!(guard.user("slm_a_b", elsewhere, 3), Err(Error::Unauthorized(_))));
        assert_eq!(guard.failed_logins(), 11);
    }

    #[test]
    fn a_removed_user_is_out_at_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let store = Store::open(&folder.path().join("hub.sqlite")).expect("made");
        store.set_user("ada", UserRole::Admin, 0).expect("made");
        let token = store.new_token("ada", 0, None).expect("made");
        let guard = Guard::new(Access::Tokens, store.clone());
        assert_eq!(guard.user(&token, HERE, 0).expect("good").role, UserRole::Admin);
        store.set_user("ada", UserRole::Viewer, 0).expect("changed");
        assert_eq!(guard.user(&token, HERE, 0).expect("good").role, UserRole::Viewer);
        store.remove_user("ada").expect("removed");
        assert!(matches!(guard.user(&token, HERE, 0), Err(Error::Unauthorized(_))));
        // Another user of this name is another one.
        store.set_user("ada", UserRole::Admin, 0).expect("made");
        assert!(matches!(guard.user(&token, HERE, 0), Err(Error::Unauthorized(_))));
    }

    #[test]
    fn a_token_that_was_believed_is_refused_when_it_expires() {
        let folder = tempfile::tempdir().expect("a folder");
        let store = Store::open(&folder.path().join("hub.sqlite")).expect("made");
        store.set_user("ada", UserRole::Viewer, 0).expect("made");
        let token = store.new_token("ada", 0, Some(100)).expect("made");
        let guard = Guard::new(Access::Tokens, store);
        for time in [0, 99] {
            assert_eq!(guard.user(&token, HERE, time).expect("good").name, "ada");
        }
        assert!(matches!(guard.user(&token, HERE, 100), Err(Error::Unauthorized(_))));
    }
}
