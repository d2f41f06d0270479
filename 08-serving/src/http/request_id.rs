//! What a request is called: in the log, and in the header `x-request-id` of its answer.

use crate::api::fresh_id;
use axum::http::{HeaderMap, HeaderName, HeaderValue};

/// The header, of requests and of answers.
pub(super) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Most letters of a name that a client gives.
const MOST: usize = 128;

/// What a client calls its request, if that is short and of letters, digits, `-`, `_`, `.` and `:`; else a new name.
pub(super) fn of_request(headers: &HeaderMap) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte);
    let sent = headers.get(REQUEST_ID).and_then(|sent| sent.to_str().ok());
    let named = sent.filter(|sent| (1..=MOST).contains(&sent.len()) && sent.bytes().all(is_plain));
    named.map_or_else(|| fresh_id("req_"), str::to_owned)
}

/// The header's value of a name.
pub(super) fn value(id: &str) -> HeaderValue {
    HeaderValue::from_str(id).expect("a name has letters and digits")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_given_is_kept_if_it_can_stand_in_a_log() {
        let of = |sent: &[u8]| {
            let sent = HeaderValue::from_bytes(sent).unwrap();
            of_request(&HeaderMap::from_iter([(REQUEST_ID, sent)]))
        };
        let longest = "a".repeat(MOST);
        for name in ["7f3c-2a_B.9:x", "1", &longest] {
            assert_eq!(of(name.as_bytes()), name);
        }
        let too_long = longest.clone() + "a";
        for other in ["", "two words", "a\tb", "id=\"7\"", "\u{fc}", &too_long] {
            let id = of(other.as_bytes());
            assert!(id.starts_with("req_") && id.len() == 36, "{other:?} is called {id}");
        }
        assert_ne!(of_request(&HeaderMap::new()), of_request(&HeaderMap::new()));
        assert_eq!(value("req_7"), "req_7");
    }
}
