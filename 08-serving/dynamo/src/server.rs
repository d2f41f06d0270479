//! The server that a worker speaks for, over HTTP.

use anyhow::{Context, Result, bail};
use eventsource_stream::Eventsource;
use futures::{Stream, StreamExt, stream};
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use reqwest::{Client, Response, StatusCode};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::io::{Error, ErrorKind};
use std::time::Duration;
use tokio::time::timeout;

/// How long a server may take to accept a connection, and how long it may be silent in a stream: it says at least that it is
/// there, every fifteen seconds. Before an answer's first token there is no stream, and that token may wait for as long as others
/// and its own prompt take.
const CONNECTED_IN: Duration = Duration::from_secs(5);
const HEARD_IN: Duration = Duration::from_secs(60);

/// A running `ladder serve`.
#[derive(Debug, Clone)]
pub(crate) struct Server {
    url: String,
    client: Client,
}

/// What it serves.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Served {
    /// The model's name.
    pub(crate) id: String,
    /// Tokens of a text, at most.
    pub(crate) max_model_len: u32,
}

/// Why a request was not answered.
#[derive(Debug)]
pub(crate) enum Refused {
    /// Nobody was there.
    Unreachable(String),
    /// It has too much to do, or is about to end.
    Busy(String),
    /// It is not as it should be.
    Wrong(String),
    /// The server has failed, or does not let its own worker in.
    Failed(String),
}

impl Server {
    /// The one at a URL such as `http://127.0.0.1:8000`.
    pub(crate) fn new(url: &str, key: Option<&str>) -> Result<Self> {
        let mut headers = HeaderMap::new();
        if let Some(key) = key {
            let mut value = HeaderValue::from_str(&format!("Bearer {key}"))
                .context("the API key has characters that no header can bring")?;
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        // It is near, and nobody else's business: no proxy.
        let client = Client::builder().default_headers(headers).no_proxy();
        let client = client.connect_timeout(CONNECTED_IN);
        Ok(Server { url: url.trim_end_matches('/').to_owned(), client: client.build()? })
    }

    /// What it serves.
    pub(crate) async fn served(&self) -> Result<Served> {
        #[derive(Deserialize)]
        struct Models {
            data: Vec<Served>,
        }
        let response = self.get("/v1/models").await?;
        let models: Models = response.json().await.context("this is no list of models")?;
        models.data.into_iter().next().context("the server has no model")
    }

    /// Its KV events.
    pub(crate) async fn kv_events<T: DeserializeOwned>(
        &self,
    ) -> Result<impl Stream<Item = Result<T>> + use<T>> {
        let response = self.get("/kv-events").await.context("does it run with --kv-events?")?;
        Ok(events(response))
    }

    async fn get(&self, path: &str) -> Result<Response> {
        let url = format!("{}{path}", self.url);
        let sent = timeout(HEARD_IN, self.client.get(&url).send()).await.map_err(Error::from);
        let response = sent.and_then(|sent| sent.map_err(Error::other));
        let response = response.with_context(|| format!("{url} does not answer"))?;
        let status = response.status();
        if !status.is_success() {
            bail!("{url} answers {status}: {}", message(response).await);
        }
        Ok(response)
    }

    /// Asks for a completion, and gives its events. Whoever drops them cancels it.
    pub(crate) async fn complete(
        &self,
        body: &Value,
    ) -> Result<impl Stream<Item = Result<Value>> + use<>, Refused> {
        let url = format!("{}/v1/completions", self.url);
        let sent = self.client.post(&url).json(body).send().await;
        let response =
            sent.map_err(|e| Refused::Unreachable(format!("{url} does not answer: {e}")))?;
        match response.status() {
            status if status.is_success() => Ok(events(response)),
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
                Err(Refused::Busy(message(response).await))
            }
            StatusCode::BAD_REQUEST
            | StatusCode::NOT_FOUND
            | StatusCode::PAYLOAD_TOO_LARGE
            | StatusCode::UNPROCESSABLE_ENTITY => Err(Refused::Wrong(message(response).await)),
            _ => Err(Refused::Failed(message(response).await)),
        }
    }
}

/// Whether nobody listens there, or not yet.
pub(crate) fn is_unreachable(why: &anyhow::Error) -> bool {
    let of_connection = |e: &reqwest::Error| e.is_connect();
    why.chain().any(|cause| cause.downcast_ref::<reqwest::Error>().is_some_and(of_connection))
}

/// What an answer says is wrong.
async fn message(response: Response) -> String {
    let text = response.text().await.unwrap_or_default();
    let said = serde_json::from_str::<Value>(&text).ok();
    let said = said.as_ref().and_then(|said| said["error"]["message"].as_str());
    said.map_or(text.clone(), str::to_owned)
}

/// Server-sent events, each a JSON value, up to `[DONE]` or where the connection ends.
fn events<T: DeserializeOwned>(response: Response) -> impl Stream<Item = Result<T>> + use<T> {
    let pieces = stream::unfold(Box::pin(response.bytes_stream()), async |mut pieces| {
        let piece = match timeout(HEARD_IN, pieces.next()).await {
            Ok(piece) => piece?.map_err(Error::other),
            Err(_) => Err(Error::new(ErrorKind::TimedOut, "the server has fallen silent")),
        };
        Some((piece, pieces))
    });
    let events = pieces.eventsource();
    let until_done = events.take_while(|event| {
        std::future::ready(!event.as_ref().is_ok_and(|event| event.data == "[DONE]"))
    });
    until_done.map(|event| Ok(serde_json::from_str(&event?.data)?))
}
