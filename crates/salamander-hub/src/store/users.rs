//! Users and their tokens. A token is shown once; the store has what argon2 made of it.

use argon2::Argon2;
use serde::{Deserialize, Serialize};

use super::Store;
use super::db::{OptionalExtension, params};
use crate::Error;

/// Bytes of a secret, a salt and a hash.
const BYTES: usize = 32;
/// What every token begins with, so that scanners of secrets know it.
const PREFIX: &str = "slm_";

/// What a user may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum UserRole {
    /// Looks.
    Viewer,
    /// Makes, changes and ends experiments and models.
    Editor,
    /// Makes users and tokens, too.
    Admin,
}

impl UserRole {
    /// In a word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Editor => "editor",
            Self::Admin => "admin",
        }
    }

    /// From a word.
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Viewer, Self::Editor, Self::Admin].into_iter().find(|role| role.as_str() == text)
    }
}

/// A user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    /// The name.
    pub name: String,
    /// What the user may do.
    pub role: UserRole,
}

impl Store {
    /// Makes a user, or gives one another role.
    pub fn set_user(&self, name: &str, role: UserRole, now: i64) -> Result<(), Error> {
        let fits = |c: char| c.is_ascii_alphanumeric() || "-_.@".contains(c);
        if name.is_empty() || name.len() > 64 || !name.chars().all(fits) {
            return Err(Error::Invalid(format!(
                "{name:?} is no user's name: letters, digits, - _ . @"
            )));
        }
        let name = name.to_string();
        self.write(move |tx| {
            let sql = "INSERT INTO users (name, role, created) VALUES (?1, ?2, ?3) \
                       ON CONFLICT (name) DO UPDATE SET role = ?2";
            tx.prepare_cached(sql)?.execute(params![name, role.as_str(), now])?;
            Ok(())
        })
    }

    /// All users.
    pub fn users(&self) -> Result<Vec<User>, Error> {
        self.read(|db| {
            let mut query = db.prepare_cached("SELECT name, role FROM users ORDER BY name")?;
            let rows = query.query_map((), |row| {
                let role: String = row.get(1)?;
                let role = UserRole::parse(&role).unwrap_or(UserRole::Viewer);
                Ok(User { name: row.get(0)?, role })
            })?;
            Ok(rows.collect::<Result<_, _>>()?)
        })
    }

    /// Removes a user with all tokens.
    pub fn remove_user(&self, name: &str) -> Result<(), Error> {
        let name = name.to_string();
        self.write(move |tx| {
            tx.execute("DELETE FROM tokens WHERE \"user\" = ?1", [&name])?;
            match tx.execute("DELETE FROM users WHERE name = ?1", [&name])? {
                0 => Err(Error::NotFound(format!("there is no user {name:?}"))),
                _ => Ok(()),
            }
        })
    }

    /// Makes a token, which is told this once; `expires` is in milliseconds since 1970.
    pub fn new_token(&self, user: &str, now: i64, expires: Option<i64>) -> Result<String, Error> {
        let (id, secret, salt) = (hex(&random()?[..8]), hex(&random()?), random()?);
        let hash = hash(&secret, &salt)?;
        let token = format!("{PREFIX}{id}_{secret}");
        let user = user.to_string();
        self.write(move |tx| {
            let known = tx.prepare_cached("SELECT 1 FROM users WHERE name = ?1")?.exists([&user])?;
            if !known {
                return Err(Error::NotFound(format!("there is no user {user:?}")));
            }
            let sql = "INSERT INTO tokens (id, \"user\", salt, hash, created, expires) VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
            let values = params![id, user, salt.as_slice(), hash.as_slice(), now, expires];
            tx.prepare_cached(sql)?.execute(values)?;
            Ok(())
        })?;
        Ok(token)
    }

    /// Whose token this is, and when it expires; `None`: nobody's, or it has expired.
    pub(crate) fn login(
        &self,
        token: &str,
        now: i64,
    ) -> Result<Option<(User, Option<i64>)>, Error> {
        let Some((id, secret)) = token.strip_prefix(PREFIX).and_then(|rest| rest.split_once('_'))
        else {
            return Ok(None);
        };
        let found = self.read(|db| {
            let sql = "SELECT u.name, u.role, t.salt, t.hash, t.expires FROM tokens t \
                       JOIN users u ON u.name = t.\"user\" WHERE t.id = ?1 AND (t.expires IS NULL OR t.expires > ?2)";
            let row = db.prepare_cached(sql)?.query_row(params![id, now], |row| {
                let role = UserRole::parse(&row.get::<String>(1)?).unwrap_or(UserRole::Viewer);
                let (salt, hash): (Vec<u8>, Vec<u8>) = (row.get(2)?, row.get(3)?);
                Ok((User { name: row.get(0)?, role }, salt, hash, row.get(4)?))
            });
            Ok(row.optional()?)
        })?;
        let Some((user, salt, expected, expires)) = found else { return Ok(None) };
        Ok(same(&hash(secret, &salt)?, &expected).then_some((user, expires)))
    }

    /// Whose token this would be if its secret is right, as somebody has seen before: only its name is looked at.
    pub(crate) fn token_user(&self, token: &str, now: i64) -> Result<Option<User>, Error> {
        let parts = token.strip_prefix(PREFIX).and_then(|rest| rest.split_once('_'));
        let Some((id, _)) = parts else { return Ok(None) };
        self.read(|db| {
            let sql = "SELECT u.name, u.role FROM tokens t JOIN users u ON u.name = t.\"user\" \
                       WHERE t.id = ?1 AND (t.expires IS NULL OR t.expires > ?2)";
            let row = db.prepare_cached(sql)?.query_row(params![id, now], |row| {
                let role = UserRole::parse(&row.get::<String>(1)?).unwrap_or(UserRole::Viewer);
                Ok(User { name: row.get(0)?, role })
            });
            Ok(row.optional()?)
        })
    }

    /// Whether anybody could log in.
    pub fn has_tokens(&self) -> Result<bool, Error> {
        self.read(|db| Ok(db.prepare_cached("SELECT 1 FROM tokens LIMIT 1")?.exists(())?))
    }
}

fn hash(secret: &str, salt: &[u8]) -> Result<[u8; BYTES], Error> {
    let mut out = [0; BYTES];
    let done = Argon2::default().hash_password_into(secret.as_bytes(), salt, &mut out);
    done.map_err(|error| Error::Invalid(format!("argon2: {error}")))?;
    Ok(out)
}

/// Compares in the same time, wherever they differ.
fn same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |sum, (a, b)| sum | (a ^ b)) == 0
}

fn random() -> Result<[u8; BYTES], Error> {
    let mut bytes = [0; BYTES];
    let mut filled = 0;
    while filled < BYTES {
        let flags = rustix::rand::GetRandomFlags::empty();
        let got = rustix::rand::getrandom(&mut bytes[filled..], flags);
        filled += got.map_err(|error| Error::Invalid(format!("no random bytes: {error}")))?;
    }
    Ok(bytes)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::super::testing::for_each_store;
    use super::*;

    #[test]
    fn a_token_is_its_users_until_it_expires_and_nobody_elses() {
        for_each_store(|store, _| {
            assert!(store.new_token("ada", 0, None).is_err(), "no such user");
            store.set_user("ada", UserRole::Editor, 0).expect("made");
            assert!(!store.has_tokens().expect("read"));
            let token = store.new_token("ada", 0, Some(100)).expect("made");
            let ada = User { name: "ada".into(), role: UserRole::Editor };
            assert_eq!(store.login(&token, 99).expect("read"), Some((ada, Some(100))));
            assert_eq!(store.login(&token, 100).expect("read"), None, "expired");
            let (id, _) = token.rsplit_once('_').expect("two parts");
            for forged in
                [format!("{id}_{}", "0".repeat(64)), id.to_string(), "slm__".into(), "".into()]
            {
                assert_eq!(store.login(&forged, 0).expect("read"), None, "{forged}");
            }
            store.remove_user("ada").expect("removed");
            assert_eq!(store.login(&token, 0).expect("read"), None);
            assert!(store.set_user("a b", UserRole::Viewer, 0).is_err());
        });
    }
}
