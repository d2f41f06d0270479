//! The Hugging Face hub, played by a small HTTP server on this machine.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};

/// The commit that `main` is.
pub const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// One that it was before, with files of the same names. None of them is given out.
pub const EARLIER: &str = "fedcba9876543210fedcba9876543210fedcba98";

/// Files of a repository, by name.
pub type Files = BTreeMap<&'static str, Vec<u8>>;

/// What a hub may get wrong when it is asked for the rest of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stumble {
    /// It has too much to do.
    Busy,
    /// It sends the file from its beginning.
    Whole,
    /// It sends one byte, and then nothing, for as long as the client waits.
    Silent,
}

/// A hub with one repository, `owner/name`.
pub struct FakeHub {
    /// Its address, for `HF_ENDPOINT`.
    pub endpoint: String,
    /// What it was asked: path, and first byte that was wanted.
    pub requests: Arc<Mutex<Vec<String>>>,
}

impl FakeHub {
    /// Serves `files` to whoever brings `token`, or to everybody if there is none, until the program ends.
    ///
    /// # Panics
    /// If the system gives no port.
    pub fn serve(files: Files, token: Option<&'static str>) -> FakeHub {
        FakeHub::start(files, token, None)
    }

    /// Serves `files` to everybody, and stumbles once.
    ///
    /// # Panics
    /// If the system gives no port.
    pub fn serve_stumbling(files: Files, stumble: Stumble) -> FakeHub {
        FakeHub::start(files, None, Some(stumble))
    }

    fn start(files: Files, token: Option<&'static str>, mut stumble: Option<Stumble>) -> FakeHub {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address");
        let requests = Arc::new(Mutex::new(Vec::new()));
        let log = requests.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                // Whoever only knocked sends nothing.
                let _ = answer(stream, &files, token, &log, &mut stumble);
            }
        });
        FakeHub { endpoint: format!("http://{address}"), requests }
    }
}

fn answer(
    mut stream: TcpStream,
    files: &Files,
    token: Option<&str>,
    log: &Mutex<Vec<String>>,
    stumble: &mut Option<Stumble>,
) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    let Some(request) = lines.next().transpose()? else { return Ok(()) };
    let (mut from, mut to, mut bearer) = (0, usize::MAX, None);
    for line in lines {
        let line = line?.to_ascii_lowercase();
        if let Some(range) = line.strip_prefix("range: bytes=") {
            let (first, last) = range.split_once('-').unwrap_or((range, ""));
            (from, to) = (first.parse().unwrap_or(0), last.parse().unwrap_or(usize::MAX));
        }
        if let Some(brought) = line.strip_prefix("authorization: bearer ") {
            bearer = Some(brought.to_owned());
        }
        if line.is_empty() {
            break;
        }
    }
    let path = request.split(' ').nth(1).unwrap_or_default().to_owned();
    log.lock().unwrap_or_else(PoisonError::into_inner).push(format!("{path} {from}"));
    let mut reply = |status: &str, headers: &str, body: &[u8]| {
        let length = body.len();
        write!(
            stream,
            "HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n{headers}\r\n"
        )?;
        stream.write_all(body)
    };
    if token.is_some() && bearer.as_deref() != token {
        return reply("401 Unauthorized", "", b"");
    }
    if let Some(revision) = path.strip_prefix("/api/models/owner/name/revision/") {
        let commit = if revision == EARLIER { EARLIER } else { COMMIT };
        let siblings: Vec<_> =
            files.keys().map(|file| format!("{{\"rfilename\": \"{file}\"}}")).collect();
        let siblings = siblings.join(", ");
        let info = format!("{{\"sha\": \"{commit}\", \"siblings\": [{siblings}]}}");
        return reply("200 OK", "Content-Type: application/json\r\n", info.as_bytes());
    }
    let resolved = path.strip_prefix("/owner/name/resolve/").and_then(|rest| rest.split_once('/'));
    let file = resolved.filter(|(revision, _)| ["main", COMMIT].contains(revision));
    let Some(bytes) = file.and_then(|(_, file)| files.get(file)) else {
        return reply("404 Not Found", "", b"");
    };
    if from > 0 {
        match stumble.take() {
            Some(Stumble::Busy) => return reply("503 Service Unavailable", "", b""),
            Some(Stumble::Whole) => from = 0,
            Some(Stumble::Silent) => {
                let (length, tag) =
                    (bytes.len() - from, path.rsplit('/').next().unwrap_or_default());
                write!(
                    stream,
                    "HTTP/1.1 206 Partial Content\r\nContent-Length: {length}\r\nETag: \"tag-of-{tag}\"\r\n\
                     X-Repo-Commit: {COMMIT}\r\n\r\n"
                )?;
                stream.write_all(&bytes[from..=from])?;
                stream.read_to_end(&mut Vec::new())?;
                return Ok(());
            }
            None => {}
        }
    }
    let end = to.saturating_add(1).min(bytes.len());
    let headers = format!(
        "ETag: \"tag-of-{}\"\r\nX-Repo-Commit: {COMMIT}\r\nContent-Range: bytes {from}-{}/{}\r\n",
        path.rsplit('/').next().unwrap_or_default(),
        end - 1,
        bytes.len()
    );
    reply("206 Partial Content", &headers, &bytes[from..end])
}
