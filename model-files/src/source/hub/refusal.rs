//! What to say when the hub does not give what was asked for: one sentence each.

use super::{Hub, HubName};
use crate::source::is_model;
use hf_hub::api::sync::ApiError;
use naive_decode::Error;

/// How many cached models an error names.
const MOST_NAMED: usize = 8;

impl Hub {
    /// What to say when the hub did not give what was asked for.
    pub(super) fn refusal(&self, name: &HubName, error: &ApiError) -> Error {
        let ApiError::RequestError(request) = error else {
            return Error::file(&name.repository, format!("downloading failed: {error}"));
        };
        let HubName { repository, revision, .. } = name;
        match **request {
            ureq::Error::StatusCode(404) => {
                let problem = format!("is not on {} (revision {revision})", self.endpoint);
                Error::file(repository, problem)
            }
            // A token that has expired is refused even for what everybody may have.
            ureq::Error::StatusCode(401) if self.token.is_some() => {
                let problem = format!(
                    "{} does not take the token that was sent (HF_TOKEN, or `token` in HF_HOME): it may have expired, \
                     expected one that holds, or none for a model that everybody may have",
                    self.endpoint
                );
                Error::file(repository, problem)
            }
            // The hub does not tell strangers which private models exist.
            ureq::Error::StatusCode(401 | 403) => {
                let problem = format!(
                    "{} does not give it out: either there is no such model, or it wants a token \
                     (HF_TOKEN) of somebody who has accepted its terms",
                    self.endpoint
                );
                Error::file(repository, problem)
            }
            ureq::Error::StatusCode(status) => {
                Error::file(repository, format!("{} answers with HTTP {status}", self.endpoint))
            }
            ref other => self.unreachable(name, &other.to_string()),
        }
    }

    /// What to say when nothing comes any more.
    pub(super) fn silent(&self, name: &HubName) -> Error {
        let problem = format!(
            "nothing has come for {:?}, from {} or by way of another program that downloads it; what has come is kept, and the \
             next try goes on there",
            self.patience, self.endpoint
        );
        Error::file(&name.repository, problem)
    }

    /// What to say without a network, in one sentence.
    pub(super) fn unreachable(&self, name: &HubName, reason: &str) -> Error {
        let models = self.cached_models();
        let names: Vec<&str> = models.iter().map(|model| model.name.as_str()).collect();
        // Files of the very model that was asked for: whether its name alone means one of them, only the hub can say.
        let snapshot = self.snapshot(name, &self.commit(name));
        let of_it =
            models.iter().filter(|model| model.path.is_file() && model.path.starts_with(&snapshot));
        let of_it: Vec<&str> = of_it.map(|model| model.name.as_str()).collect();
        let holds = match (&names[..], &of_it[..]) {
            ([], _) => "holds no models".to_owned(),
            (names, []) => format!("holds {}", first(names)),
            (_, of_it) => format!("holds of it {}, to be named in full", first(of_it)),
        };
        let problem = format!(
            "is no path here, {} cannot be reached ({reason}), and the cache {} {holds}",
            self.endpoint,
            self.cache.display()
        );
        Error::file(&name.repository, problem)
    }
}

/// The first few of some names.
fn first(names: &[&str]) -> String {
    let (named, more) = names.split_at(names.len().min(MOST_NAMED));
    match more.len() {
        0 => named.join(", "),
        more => format!("{} and {more} more", named.join(", ")),
    }
}

/// Whether asking once more may help: the connection broke off, the hub has too much to do, or somebody else was first to begin
/// the same file.
pub(super) fn may_pass(error: &ApiError) -> bool {
    match error {
        ApiError::IoError(_) | ApiError::LockAcquisition(_) => true,
        ApiError::RequestError(request) => match **request {
            ureq::Error::StatusCode(status) => matches!(status, 408 | 429 | 500..),
            _ => true,
        },
        _ => false,
    }
}

/// What to say of a repository without a file that is needed.
pub(super) fn lacks(name: &HubName, file: &str, there: &[&str]) -> Error {
    let mut problem = format!("has no {file}");
    let ggufs: Vec<&str> = there.iter().copied().filter(|file| is_model(file)).collect();
    if !ggufs.is_empty() {
        problem += &format!(", but these GGUF files: name one as {}:FILE", name.repository);
        problem += &format!(", where FILE is {}", ggufs.join(", "));
    }
    Error::file(&name.repository, problem)
}
