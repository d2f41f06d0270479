//! The server's KV events as Dynamo's.
//!
//! The server has names of its own for blocks, and Dynamo takes them as they are; it asks besides for a hash of each
//! block's tokens, by which the frontend finds a request's beginning.

use crate::server::Server;
use anyhow::{Context, Result, bail, ensure};
use dynamo_kv_router::protocols::{
    BlockHashOptions, ExternalSequenceBlockHash, KvCacheEvent, KvCacheEventData, KvCacheRemoveData,
    KvCacheStoreData, KvCacheStoredBlockData, compute_block_hash_for_seq,
};
use dynamo_llm::kv_router::publisher::KvEventPublisher;
use dynamo_runtime::component::Endpoint;
use futures::StreamExt;
use serde::Deserialize;
use std::future::Future;
use std::time::{Duration, Instant};

/// Between two attempts to reach a server.
pub(crate) const PAUSE: Duration = Duration::from_secs(1);

/// How long a server may be away: as long as one takes that is started again. A connection counts that has lasted for a while.
pub(crate) const GONE_FOR: Duration = Duration::from_secs(60);
const A_WHILE: Duration = Duration::from_secs(5);

/// What the server tells.
#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Event {
    Begin(Size),
    Stored { parent: Option<String>, blocks: Vec<String>, tokens: Vec<u32> },
    Removed { blocks: Vec<String> },
}

/// How the server's pool is cut up.
#[derive(Debug, Clone, Copy, Deserialize)]
pub(crate) struct Size {
    /// Tokens of a block.
    pub(crate) block_tokens: u32,
    /// Blocks.
    pub(crate) blocks: u64,
}

/// How a server's pool is cut up.
pub(crate) async fn size(server: &Server) -> Result<Size> {
    let mut events = Box::pin(server.kv_events::<Event>().await?);
    match events.next().await.context("the server tells no KV events")?? {
        Event::Begin(size) => Ok(size),
        other => bail!("a server's first KV event is {other:?}, expected how its pool is cut up"),
    }
}

/// Passes a server's KV events on, until the server is gone for good.
pub(crate) fn relay(
    server: &Server,
    endpoint: Endpoint,
    block_tokens: u32,
) -> Result<impl Future<Output = ()> + use<>> {
    let publisher =
        KvEventPublisher::new_with_local_indexer(endpoint, block_tokens, None, true, 0, None)?;
    let server = server.clone();
    Ok(async move {
        let mut there = Instant::now();
        while there.elapsed() < GONE_FOR {
            let mut begun = None;
            if let Err(why) = follow(&server, &publisher, block_tokens, &mut begun).await {
                tracing::warn!("KV events: {why:#}");
            }
            // A server whose engine has ended still begins to tell, and ends at once.
            if begun.is_some_and(|begun: Instant| begun.elapsed() >= A_WHILE) {
                there = Instant::now();
            }
            tokio::time::sleep(PAUSE).await;
        }
    })
}

/// Passes on what is told on one connection. What was told before does not hold any more.
/// Notes when it began to.
async fn follow(
    server: &Server,
    publisher: &KvEventPublisher,
    block_tokens: u32,
    begun: &mut Option<Instant>,
) -> Result<()> {
    let mut events = Box::pin(server.kv_events::<Event>().await?);
    while let Some(event) = events.next().await {
        let data = match event? {
            Event::Begin(size) => {
                let (found, expected) = (size.block_tokens, block_tokens);
                ensure!(
                    found == expected,
                    "blocks have {found} tokens, expected {expected} as before"
                );
                *begun = Some(Instant::now());
                KvCacheEventData::Cleared
            }
            Event::Stored { parent, blocks, tokens } => {
                let parent = parent.as_deref().map(name).transpose()?;
                stored(parent, &blocks, &tokens, block_tokens)?
            }
            Event::Removed { blocks } => {
                let block_hashes = blocks.iter().map(|block| name(block)).collect::<Result<_>>()?;
                KvCacheEventData::Removed(KvCacheRemoveData { block_hashes })
            }
        };
        publisher.publish(KvCacheEvent {
            event_id: publisher.next_event_id(),
            data,
            dp_rank: 0,
        })?;
    }
    Ok(())
}

fn stored(
    parent_hash: Option<ExternalSequenceBlockHash>,
    blocks: &[String],
    tokens: &[u32],
    block_tokens: u32,
) -> Result<KvCacheEventData> {
    let hashes = compute_block_hash_for_seq(tokens, block_tokens, BlockHashOptions::default());
    ensure!(
        hashes.len() == blocks.len(),
        "{} tokens are told of {} blocks",
        tokens.len(),
        blocks.len()
    );
    let block = |(block, tokens_hash): (&String, _)| {
        Ok(KvCacheStoredBlockData { block_hash: name(block)?, tokens_hash, mm_extra_info: None })
    };
    let blocks = blocks.iter().zip(hashes).map(block).collect::<Result<_>>()?;
    Ok(KvCacheEventData::Stored(KvCacheStoreData { parent_hash, start_position: None, blocks }))
}

/// A block's name, as long as Dynamo has names: the first eight of its bytes.
fn name(written: &str) -> Result<ExternalSequenceBlockHash> {
    let first = written.get(..16).and_then(|digits| u64::from_str_radix(digits, 16).ok());
    let first = first.with_context(|| format!("{written:?} is no name of a block"))?;
    Ok(ExternalSequenceBlockHash(first))
}
