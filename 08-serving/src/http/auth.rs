//! API keys.

use super::App;
use crate::api::ApiError;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, header};
use axum::middleware::Next;
use axum::response::Response;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use prefix_radix::Salt;
use std::sync::Arc;
use subtle::{Choice, ConstantTimeEq};

/// Keys that let in; with none, everybody is let in.
///
/// Only hashes of them are kept, all of the same length, and all are compared whole: how long an answer takes
/// does not tell how much of a guess was right.
#[derive(Debug, Clone, Default)]
pub struct Keys {
    hashes: Vec<[u8; 32]>,
}

/// Whose request it is: what their cached prompts are kept under.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tenant(Option<[u8; 32]>);

fn hash(key: &str) -> [u8; 32] {
    blake3::derive_key("serving 2026 API key", key.as_bytes())
}

/// A key without white space around it, as a header brings it.
///
/// # Errors
/// If it is empty, or has other than visible characters of ASCII.
pub fn in_header(key: &str) -> naive_decode::Result<&str> {
    // Clients' keys are trimmed too: a file that one is read from ends with a line break.
    let key = key.trim();
    let found = match key {
        "" => "empty",
        key if !key.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic()) => {
            "with characters that no header can bring"
        }
        key => return Ok(key),
    };
    Err(naive_decode::Error::invalid("API key", found, "some characters of ASCII"))
}

impl Keys {
    /// These keys, without white space around them.
    ///
    /// # Errors
    /// If one is empty: it would let in whoever sends nothing. If one has other than visible characters of ASCII: no header can
    /// bring it.
    pub fn new<'k>(keys: impl IntoIterator<Item = &'k str>) -> naive_decode::Result<Self> {
        let one = |key| in_header(key).map(hash);
        Ok(Keys { hashes: keys.into_iter().map(one).collect::<Result<_, _>>()? })
    }

    /// Whether everybody is let in.
    pub fn is_open(&self) -> bool {
        self.hashes.is_empty()
    }

    /// Who sends these headers; none if nobody who is let in.
    pub fn tenant(&self, headers: &HeaderMap) -> Option<Tenant> {
        if self.is_open() {
            return Some(Tenant(None));
        }
        let sent = hash(&sent_key(headers)?);
        let right = self.hashes.iter().map(|known| known.ct_eq(&sent));
        let is_known = right.fold(Choice::from(0), |any, this| any | this);
        bool::from(is_known).then_some(Tenant(Some(sent)))
    }
}

/// The key of `Authorization: Bearer KEY`, or of a browser that asked for it: then it is the password. Anthropic's clients send it as
/// `x-api-key`.
fn sent_key(headers: &HeaderMap) -> Option<String> {
    let Some(sent) = headers.get(header::AUTHORIZATION) else {
        return headers.get("x-api-key")?.to_str().ok().map(|key| key.trim().to_owned());
    };
    let sent = sent.to_str().ok()?;
    let (scheme, rest) = sent.split_once(' ')?;
    if scheme.eq_ignore_ascii_case("bearer") {
        return Some(rest.trim().to_owned());
    }
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let pair = String::from_utf8(BASE64_STANDARD.decode(rest.trim()).ok()?).ok()?;
    pair.split_once(':').map(|(_, password)| password.trim().to_owned())
}

impl Tenant {
    /// What a text is kept under that is read for another server, under whose own salt it is there.
    pub(super) fn salt_of_peer(self, theirs: &[u8; 32]) -> Salt {
        self.of(&[b"=", &theirs[..]].concat())
    }

    /// What is kept under that others with this key have, too.
    fn of(self, which: &[u8]) -> Salt {
        let key = self.0.map_or_else(Vec::new, |key| key.to_vec());
        Salt::of(&[&[key.len() as u8], &key[..], which].concat())
    }

    /// What their texts are kept under. A `cache_salt` parts them further; it never joins them with those of
    /// another key.
    pub fn salt(self, cache_salt: Option<&str>) -> Salt {
        match (self, cache_salt) {
            (Tenant(None), None) => Salt::NONE,
            (tenant, None) => tenant.of(&[]),
            (tenant, Some(salt)) => tenant.of(&[b":", salt.as_bytes()].concat()),
        }
    }
}

/// Paths that say whether the server is alive, and nothing else.
pub(super) const ALIVE: [&str; 2] = ["/health", "/ping"];

/// Lets nobody by without a key, but for those who ask whether the server is alive.
pub(super) async fn check(
    State(app): State<Arc<App>>,
    mut request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    if !ALIVE.contains(&request.uri().path()) {
        let tenant = app.keys.tenant(request.headers()).ok_or_else(ApiError::unauthorised)?;
        request.extensions_mut().insert(tenant);
    }
    Ok(next.run(request).await)
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    fn tenant(keys: &Keys, sent: &str) -> Option<Tenant> {
        let mut headers = HeaderMap::new();
        headers.insert(header::AUTHORIZATION, HeaderValue::from_str(sent).unwrap());
        keys.tenant(&headers)
    }

    #[test]
    fn a_key_lets_in_and_nothing_else_does() {
        let keys = Keys::new(["ada", "bob"]).unwrap();
        assert!(tenant(&keys, "Bearer ada").is_some());
        assert!(tenant(&keys, "bearer bob").is_some());
        assert!(tenant(&keys, "Basic dXNlcjphZGE=").is_some(), "user:ada");
        for wrong in
            ["Bearer ad", "Bearer adaa", "Bearer ", "ada", "Basic ada", "Basic YWRh", "Digest ada"]
        {
            assert_eq!(tenant(&keys, wrong), None, "{wrong}");
        }
        assert_eq!(keys.tenant(&HeaderMap::new()), None);
        assert!(Keys::new([" "]).is_err());
        let keys = Keys::new([" ada\r\n"]).unwrap();
        assert!(tenant(&keys, "Bearer ada").is_some(), "white space is no part of a key");
        assert!(tenant(&keys, "Basic dXNlcjphZGEg").is_some(), "user:ada and a space");
        assert!(Keys::default().tenant(&HeaderMap::new()).is_some());
    }

    #[test]
    fn a_cache_salt_parts_tenants_and_never_joins_them() {
        let keys = Keys::new(["ada", "bob"]).unwrap();
        let [ada, bob] = ["Bearer ada", "Bearer bob"].map(|sent| tenant(&keys, sent).unwrap());
        let anyone = Tenant(None);
        let salts = [
            ada.salt(None),
            ada.salt(Some("")),
            ada.salt(Some("x")),
            bob.salt(None),
            bob.salt(Some("x")),
            anyone.salt(None),
            anyone.salt(Some("x")),
        ];
        for (i, salt) in salts.iter().enumerate() {
            assert!(!salts[..i].contains(salt), "{i}");
        }
        assert_eq!(ada.salt(Some("x")), ada.salt(Some("x")));
        assert_eq!(anyone.salt(None), Salt::NONE);
    }
}
