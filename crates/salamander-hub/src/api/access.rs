//! Who may do what: everybody on this machine where there is no login, or else the user of a token by their role.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::Error;
use crate::hub::now;
use crate::store::Store;
use crate::store::users::{Role, User};

/// How long a token is believed without being looked at again; argon2 is slow on purpose.
const BELIEVED: Duration = Duration::from_secs(30);
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
}

/// A token that was looked at.
struct Believed {
    since: Instant,
    /// In milliseconds since 1970.
    expires: Option<i64>,
    user: User,
}

impl Believed {
    fn is_good(&self, now: i64) -> bool {
        self.since.elapsed() < BELIEVED && self.expires.is_none_or(|expires| expires > now)
    }
}

impl Guard {
    /// For a store whose users may come in.
    pub fn new(access: Access, store: Store) -> Self {
        Self { access, store, believed: Mutex::default() }
    }

    /// Whose token this is, at a time in milliseconds since 1970.
    fn user(&self, token: &str, now: i64) -> Result<User, Error> {
        let key = *blake3::hash(token.as_bytes()).as_bytes();
        {
            let believed = self.believed.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(known) = believed.get(&key).filter(|known| known.is_good(now)) {
                return Ok(known.user.clone());
            }
        }
        let wrong = || Error::Unauthorized("this token is nobody's, or it has expired".to_string());
        let (user, expires) = self.store.login(token, now)?.ok_or_else(wrong)?;
        let mut believed = self.believed.lock().unwrap_or_else(PoisonError::into_inner);
        if believed.len() >= REMEMBERED {
            believed.clear();
        }
        let known = Believed { since: Instant::now(), expires, user: user.clone() };
        believed.insert(key, known);
        Ok(user)
    }
}

/// Lets a request in, with its user, or answers why not.
pub(super) async fn check(
    State(guard): State<Arc<Guard>>,
    mut request: Request,
    next: Next,
) -> Response {
    let user = match guard.access {
        Access::Open => same_machine(request.headers())
            .map(|()| User { name: String::new(), role: Role::Admin }),
        Access::Tokens => match token(request.headers()) {
            Some(token) => {
                let guard = Arc::clone(&guard);
                let asked = tokio::task::spawn_blocking(move || guard.user(&token, now()));
                asked.await.unwrap_or(Err(Error::Closed))
            }
            None => Err(Error::Unauthorized(
                "log in: send `Authorization: Bearer TOKEN` (`salamander hub token` makes one)"
                    .to_string(),
            )),
        },
    };
    let reads = matches!(*request.method(), Method::GET | Method::HEAD);
    match user {
        Ok(user) if !reads && user.role < Role::Editor => {
            let reason = format!("{} may look, and change nothing", user.name);
            Error::Forbidden(reason).into_response()
        }
        Ok(user) => {
            request.extensions_mut().insert(user);
            next.run(request).await
        }
        Err(error) => error.into_response(),
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

    #[test]
    fn a_token_that_was_believed_is_refused_when_it_expires() {
        let folder = tempfile::tempdir().expect("a folder");
        let store = Store::open(&folder.path().join("hub.sqlite")).expect("made");
        store.set_user("ada", Role::Viewer, 0).expect("made");
        let token = store.new_token("ada", 0, Some(100)).expect("made");
        let guard = Guard::new(Access::Tokens, store);
        for time in [0, 99] {
            assert_eq!(guard.user(&token, time).expect("good").name, "ada");
        }
        assert!(matches!(guard.user(&token, 100), Err(Error::Unauthorized(_))));
    }
}
