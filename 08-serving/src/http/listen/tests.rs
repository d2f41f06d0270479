//! Who has a place, and who loses it.

use super::*;
use axum::body::{Body, Bytes};
use axum::routing::{get, post};
use futures_util::stream::{pending, repeat_with};
use std::convert::Infallible;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use tokio::sync::oneshot;
use tokio::time::timeout;

const USUAL: Bounds = Bounds { connections: MOST_CONNECTIONS, waits: WAITS, read_in: READ_IN };

/// Longer than anything here takes.
const AT_MOST: Duration = Duration::from_secs(20);

/// One answer that is short, one that never goes on, one that has no end, and one that does not wait for what it answers;
/// and one where there is no place.
fn answers() -> Answers {
    let endless = || repeat_with(|| Ok::<_, Infallible>(Bytes::from_static(&[b'x'; 1 << 16])));
    let usual = Router::new()
        .route("/short", get(async || "here"))
        .route("/waits", get(async || Body::from_stream(pending::<Result<Bytes, Infallible>>())))
        .route("/refused", post(async || ([(header::CONNECTION, "close")], "no")))
        .route("/endless", get(async move || Body::from_stream(endless())));
    Answers { usual, crowded: Router::new().fallback(async || "no place") }
}

/// A connection on which something has been asked for.
fn ask(address: SocketAddr, path: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(AT_MOST)).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nhost: here\r\nconnection: close\r\n\r\n").unwrap();
    stream
}

/// Accepts within bounds while `client` does what it does with the address on a thread of its own, then ends.
/// Gives what the client had of it.
async fn beside<T: Send + 'static>(
    bounds: Bounds,
    client: impl FnOnce(SocketAddr) -> T + Send + 'static,
) -> T {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (end, ended) = oneshot::channel();
    let client = tokio::task::spawn_blocking(move || {
        let had = client(address);
        end.send(()).unwrap();
        had
    });
    let end = async { ended.await.unwrap() };
    let graceful = GracefulShutdown::new();
    let accepted = accept(listener, answers(), bounds, &graceful, end);
    timeout(AT_MOST, accepted).await.expect("it ends when it is told to");
    client.await.unwrap()
}

#[tokio::test]
async fn it_ends_although_all_places_are_taken() {
    let bounds = Bounds { connections: 2, ..USUAL };
    let kept = beside(bounds, |address| {
        let mut taken = [ask(address, "/waits"), ask(address, "/waits")];
        taken.iter_mut().for_each(|stream| stream.read_exact(&mut [0; 12]).unwrap());
        taken
    });
    let kept = kept.await;
    kept.iter().for_each(|stream| stream.shutdown(Shutdown::Both).unwrap());
}

#[tokio::test]
async fn whoever_does_not_read_loses_his_place() {
    let bounds = Bounds { connections: 1, read_in: Duration::from_millis(50), ..USUAL };
    let answer = beside(bounds, |address| {
        let mut unread = ask(address, "/endless");
        unread.read_exact(&mut [0; 12]).unwrap();
        is_answered_at_last(address)
    });
    assert!(answer.await);
}

/// All that is said to a request on a connection of its own.
fn said(address: SocketAddr, path: &str) -> String {
    let mut said = String::new();
    ask(address, path).read_to_string(&mut said).unwrap();
    said
}

/// Whether there is a place again within a few seconds.
fn is_answered_at_last(address: SocketAddr) -> bool {
    (0..200).any(|_| {
        std::thread::sleep(Duration::from_millis(20));
        said(address, "/short").ends_with("here")
    })
}

/// Whether the server has closed a connection.
fn is_over(read: &std::io::Result<usize>) -> bool {
    match read {
        Ok(bytes) => *bytes == 0,
        Err(error) => error.kind() == ErrorKind::ConnectionReset,
    }
}

#[tokio::test]
async fn whoever_comes_where_all_are_being_answered_is_told_so_at_once() {
    let bounds = Bounds { connections: 2, ..USUAL };
    let (told, then) = beside(bounds, |address| {
        let mut taken = [ask(address, "/waits"), ask(address, "/waits")];
        taken.iter_mut().for_each(|stream| stream.read_exact(&mut [0; 12]).unwrap());
        let told = said(address, "/short");
        drop(taken);
        // The server sees that they have gone a moment later.
        (told, is_answered_at_last(address))
    })
    .await;
    assert!(told.ends_with("no place"), "{told}");
    assert!(then, "a place that was given up is taken again");
}

#[tokio::test]
async fn half_a_request_keeps_nobody_out() {
    let bounds = Bounds { connections: 2, ..USUAL };
    let (took, heard, left) = beside(bounds, |address| {
        let half = || {
            let mut stream = TcpStream::connect(address).unwrap();
            stream.set_read_timeout(Some(AT_MOST)).unwrap();
            stream.write_all(b"GET /short HTTP/1.1\r\nhost:").unwrap();
            stream
        };
        let mut halves = [half(), half()];
        let begun = std::time::Instant::now();
        let heard = is_answered_at_last(address);
        // The one that came first has made room.
        let left = halves[0].read(&mut [0; 1]);
        (begun.elapsed(), heard, left)
    })
    .await;
    assert!(heard);
    assert!(took < HALF, "{took:?}");
    assert!(is_over(&left), "{left:?}");
}

/// Half as long as headers may take.
const HALF: Duration = Duration::from_secs(7);

#[tokio::test]
async fn a_connection_may_be_idle_for_longer_than_headers_may_take() {
    let waits = Waits { idle: AT_MOST, headers: Duration::from_millis(200) };
    let (first, second, half) = beside(Bounds { waits, ..USUAL }, |address| {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(AT_MOST)).unwrap();
        let mut asked = || {
            stream.write_all(b"GET /short HTTP/1.1\r\nhost: here\r\n\r\n").unwrap();
            let mut said = Vec::new();
            while !said.ends_with(b"here") {
                let mut byte = [0];
                if stream.read(&mut byte).unwrap_or(0) == 0 {
                    break;
                }
                said.extend(byte);
            }
            String::from_utf8(said).unwrap()
        };
        let first = asked();
        std::thread::sleep(Duration::from_millis(600));
        let second = asked();
        stream.write_all(b"GET /sh").unwrap();
        (first, second, stream.read(&mut [0; 1]))
    })
    .await;
    assert!(first.ends_with("here") && second.ends_with("here"), "{first} {second}");
    assert!(is_over(&half), "half a request is not waited for: {half:?}");
}

#[tokio::test]
async fn whoever_is_refused_can_send_all_of_the_body_and_then_read_why() {
    let (sent, said) = beside(USUAL, |address| {
        let (mut stream, body) = (TcpStream::connect(address).unwrap(), vec![b'x'; 16 << 20]);
        stream.set_read_timeout(Some(AT_MOST)).unwrap();
        let length = body.len();
        let head =
            format!("POST /refused HTTP/1.1\r\nhost: here\r\ncontent-length: {length}\r\n\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        // The answer is here before any of the body is sent.
        stream.peek(&mut [0; 1]).unwrap();
        let sent = stream.write_all(&body);
        let mut said = String::new();
        (sent, stream.read_to_string(&mut said).map(|_| said))
    })
    .await;
    assert!(sent.is_ok(), "{sent:?}");
    assert!(said.as_ref().is_ok_and(|said| said.ends_with("no")), "{said:?}");
}
