//! Serves the book on this machine, and rebuilds it whenever something that it is made of changes.

use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use anyhow::Context;
use axum::Router;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::routing::get;
use notify::{RecursiveMode, Watcher};
use tokio::sync::broadcast;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::BroadcastStream;
use tower_http::services::ServeDir;

use crate::place::Place;
use crate::render::{Reload, render};

/// Serves until interrupted.
pub(crate) fn serve(place: &Place, output: &Path, port: u16) -> anyhow::Result<()> {
    render(place, output, Reload::OnChange)?;
    let (changed, _) = broadcast::channel(1);
    let _watcher = watch(place.clone(), output.to_path_buf(), changed.clone())?;
    let app = app(output, changed);
    tokio::runtime::Runtime::new()?.block_on(async {
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", port))
            .await
            .with_context(|| format!("cannot listen on port {port}; choose another with --port"))?;
        println!(
            "The book is at http://{}. It reloads when a source changes; stop with Ctrl-C.",
            listener.local_addr()?
        );
        axum::serve(listener, app).await.context("serving the book")
    })
}

fn app(output: &Path, changed: broadcast::Sender<()>) -> Router {
    let events = move || {
        let changes = BroadcastStream::new(changed.subscribe());
        async move {
            Sse::new(
                changes
                    .map(|_| Ok::<_, std::convert::Infallible>(Event::default().data("changed"))),
            )
            .keep_alive(KeepAlive::default())
        }
    };
    Router::new().route("/changes", get(events)).fallback_service(ServeDir::new(output))
}

/// Watches the book and the crates that it shows parts of. The watcher works for as long as it is kept.
fn watch(
    place: Place,
    output: PathBuf,
    changed: broadcast::Sender<()>,
) -> anyhow::Result<impl Watcher> {
    let (sender, receiver) = mpsc::channel();
    let mut watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
        if event.is_ok_and(|event| !event.kind.is_access()) {
            // The receiver lives as long as the process; if it is gone there is nobody left to tell.
            _ = sender.send(());
        }
    })?;
    for entry in std::fs::read_dir(&place.root)? {
        let folder = entry?.path();
        if folder.join("Cargo.toml").is_file() {
            watcher.watch(&folder, RecursiveMode::Recursive)?;
        }
    }
    std::thread::spawn(move || {
        while receiver.recv().is_ok() {
            // Editors write a file in several steps: wait until nothing more comes.
            while receiver.recv_timeout(Duration::from_millis(200)).is_ok() {}
            match render(&place, &output, Reload::OnChange) {
                Ok(()) => _ = changed.send(()),
                Err(e) => eprintln!("The book stays as it was:\n{e:#}"),
            }
        }
    });
    Ok(watcher)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_and_changes_are_served() {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let output = tempfile::tempdir().unwrap();
        std::fs::write(output.path().join("index.html"), "the first page").unwrap();
        let (changed, _) = broadcast::channel(1);
        let app = app(output.path(), changed.clone());
        tokio::runtime::Runtime::new().unwrap().block_on(async {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            tokio::spawn(async move { axum::serve(listener, app).await });
            let ask = async |path: &str| {
                let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
                stream
                    .write_all(
                        format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
                            .as_bytes(),
                    )
                    .await
                    .unwrap();
                stream
            };
            let mut page = String::new();
            ask("/").await.read_to_string(&mut page).await.unwrap();
            assert!(page.contains("text/html") && page.ends_with("the first page"), "{page}");

            let mut events = ask("/changes").await;
            let mut seen = vec![0; 4096];
            let headers = events.read(&mut seen).await.unwrap();
            assert!(String::from_utf8_lossy(&seen[..headers]).contains("text/event-stream"));
            changed.send(()).unwrap();
            let event = events.read(&mut seen).await.unwrap();
            assert!(String::from_utf8_lossy(&seen[..event]).contains("data: changed"));
        });
    }
}
