//! The secret of a job. Whoever has it is a member; it proves itself in handshakes and never
//! travels or shows up in a log.

use std::fmt;

use crate::Error;

/// 32 random bytes that all members of a job share.
#[derive(Clone)]
pub struct Token([u8; 32]);

impl Token {
    /// A fresh secret from the system.
    pub fn random() -> Result<Self, Error> {
        Ok(Self(random_bytes()?))
    }

    /// Reads what [`Token::to_hex`] wrote: 64 hexadecimal digits.
    pub fn from_hex(text: &str) -> Result<Self, Error> {
        // The text is not part of the message, because it may be nearly the secret.
        let wrong = |_| Error::Refused("the token is not 64 hexadecimal digits".to_string());
        blake3::Hash::from_hex(text).map(|hash| Self(*hash.as_bytes())).map_err(wrong)
    }

    /// A secret that follows from another one and is good for one use only: what is proven with it is no proof
    /// anywhere else.
    pub fn derived(secret: &str, usage: &str) -> Self {
        Self(blake3::derive_key(usage, secret.as_bytes()))
    }

    /// The secret as text, for a file or a variable that only its owner can read.
    pub fn to_hex(&self) -> String {
        blake3::Hash::from_bytes(self.0).to_hex().to_string()
    }

    /// Proves knowledge of the token for these words, and for no others.
    pub(crate) fn prove(&self, words: &[&[u8]]) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        for word in words {
            // Lengths keep ("ab", "c") and ("a", "bc") apart.
            hasher.update(&(word.len() as u64).to_le_bytes()).update(word);
        }
        hasher.finalize()
    }
}

impl PartialEq for Token {
    fn eq(&self, other: &Self) -> bool {
        // Hashes compare in constant time.
        blake3::Hash::from_bytes(self.0) == blake3::Hash::from_bytes(other.0)
    }
}

impl Eq for Token {}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

/// A number that nobody draws twice, such as the name of a process's life; never zero.
pub fn random_number() -> Result<u64, Error> {
    loop {
        match u64::from_le_bytes(random_bytes()?) {
            0 => {}
            number => return Ok(number),
        }
    }
}

/// Bytes that nobody can guess.
pub(crate) fn random_bytes<const N: usize>() -> Result<[u8; N], Error> {
    let mut bytes = [0; N];
    let mut filled = 0;
    while filled < N {
        let flags = rustix::rand::GetRandomFlags::empty();
        filled += rustix::rand::getrandom(&mut bytes[filled..], flags)?;
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hex_gives_the_token_back() {
        let token = Token::random().expect("randomness");
        assert_eq!(Token::from_hex(&token.to_hex()).expect("its own text"), token);
        assert_ne!(Token::random().expect("randomness"), token);
        for wrong in ["", "00", &"g".repeat(64), &"0".repeat(65)] {
            assert!(Token::from_hex(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_derived_secret_is_good_for_one_use() {
        let derived = Token::derived("c0ffee", "one use");
        assert_eq!(Token::derived("c0ffee", "one use"), derived);
        assert_ne!(Token::derived("c0ffee", "another"), derived);
        assert_ne!(Token::derived("c0ffef", "one use"), derived);
    }

    #[test]
    fn debug_shows_nothing() {
        let token = Token::random().expect("randomness");
        assert_eq!(format!("{token:?}"), "Token(..)");
    }

    #[test]
    fn proofs_depend_on_where_words_end() {
        let token = Token::random().expect("randomness");
        assert_ne!(token.prove(&[b"ab", b"c"]), token.prove(&[b"a", b"bc"]));
    }
}
