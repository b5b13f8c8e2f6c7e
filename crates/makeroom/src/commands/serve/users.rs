//! Checks the credentials of HTTP basic authentication against bcrypt hashes.
//!
//! A check takes as long as the hash was made to take, so checks run one at a time, and the last credentials that passed are
//! remembered: a scraper pays once, and clients that guess passwords cannot use more than one processor. An unknown
//! user takes as long as a wrong password, so that user names cannot be found by timing.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError, RwLock};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bcrypt::HashParts;
use sha2::{Digest as _, Sha256};

/// Longer credentials are wrong. bcrypt itself uses 72 bytes of a password.
const LONGEST_CREDENTIALS: usize = 1024;

/// The users of a server.
pub(super) struct Users {
    hashes: HashMap<String, String>,
    /// Hash to check for unknown users: as expensive as the most expensive one of a known user.
    unknown: String,
    checking: Mutex<()>,
    /// The digest of the last credentials that passed.
    passed: RwLock<Option<[u8; 32]>>,
}

impl Users {
    /// Users by name, with the bcrypt hash of each password.
    pub(super) fn new(hashes: HashMap<String, String>) -> Result<Self, String> {
        let mut dearest: Option<(u32, &String)> = None;
        for (name, hash) in &hashes {
            let parts: HashParts =
                hash.parse().map_err(|_| format!("the password of `{name}` is not a bcrypt hash"))?;
            if dearest.is_none_or(|(cost, _)| parts.get_cost() > cost) {
                dearest = Some((parts.get_cost(), hash));
            }
        }
        let (_, unknown) = dearest.ok_or("`basic_auth_users` has no users")?;
        Ok(Self { unknown: unknown.clone(), hashes, checking: Mutex::default(), passed: RwLock::default() })
    }

    /// Whether the value of an `Authorization` header has the name and password of a user. Blocks while bcrypt runs.
    pub(super) fn admit(&self, credentials: &[u8]) -> bool {
        if credentials.len() > LONGEST_CREDENTIALS {
            return false;
        }
        let digest = <[u8; 32]>::from(Sha256::digest(credentials));
        if self.has_passed(&digest) {
            return true;
        }
        let Some((name, password)) = parse(credentials) else { return false };
        let _alone = self.checking.lock().unwrap_or_else(PoisonError::into_inner);
        // Another request with the same credentials may have been checked since.
        if self.has_passed(&digest) {
            return true;
        }
        let known = self.hashes.get(&name);
        let is_right = bcrypt::verify(password, known.unwrap_or(&self.unknown)).unwrap_or(false);
        let passes = is_right && known.is_some();
        if passes {
            *self.passed.write().unwrap_or_else(PoisonError::into_inner) = Some(digest);
        }
        passes
    }

    fn has_passed(&self, digest: &[u8; 32]) -> bool {
        self.passed.read().unwrap_or_else(PoisonError::into_inner).as_ref() == Some(digest)
    }
}

/// Parses the name and the password from a header.
fn parse(credentials: &[u8]) -> Option<(String, Vec<u8>)> {
    let (scheme, encoded) = credentials.split_at_checked(6)?;
    if !scheme.eq_ignore_ascii_case(b"basic ") {
        return None;
    }
    let decoded = STANDARD.decode(encoded.trim_ascii()).ok()?;
    let colon = decoded.iter().position(|&byte| byte == b':')?;
    let name = String::from_utf8(decoded[..colon].to_vec()).ok()?;
    Some((name, decoded[colon + 1..].to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(name: &str, password: &str) -> Vec<u8> {
        format!("Basic {}", STANDARD.encode(format!("{name}:{password}"))).into_bytes()
    }

    #[test]
    fn only_the_password_of_a_known_user_passes() {
        let hash = bcrypt::hash("rose:bud", 4).unwrap();
        let users = Users::new(HashMap::from([("prometheus".to_owned(), hash)])).unwrap();
        for _ in 0..2 {
            assert!(users.admit(&header("prometheus", "rose:bud")));
            assert!(!users.admit(&header("prometheus", "rosebud")));
            assert!(!users.admit(&header("other", "rose:bud")), "the hash for unknown users admits nobody");
            assert!(!users.admit(&header("", "")));
        }
        assert!(users.admit(&[b"bAsIc ".as_slice(), &header("prometheus", "rose:bud")[6..]].concat()));
        for wrong in ["", "Basic", "Basic !", "Basic cm9zZQ==", "Bearer cHJvbWV0aGV1czpyb3NlOmJ1ZA=="] {
            assert!(!users.admit(wrong.as_bytes()), "{wrong}");
        }
        assert!(!users.admit(&header("prometheus", &"x".repeat(5000))));
    }

    #[test]
    fn what_is_not_a_bcrypt_hash_is_said() {
        let users = |hash: &str| Users::new(HashMap::from([("ann".to_owned(), hash.to_owned())]));
        assert_eq!(users("secret").err().unwrap(), "the password of `ann` is not a bcrypt hash");
        assert_eq!(Users::new(HashMap::new()).err().unwrap(), "`basic_auth_users` has no users");
    }
}
