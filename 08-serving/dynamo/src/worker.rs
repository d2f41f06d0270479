//! The worker: signs on for a server, and answers requests with it.

use crate::kv_events::{GONE_FOR, PAUSE, Size, relay, size};
use crate::server::{Refused, Served, Server, is_unreachable};
use crate::translate::{asked, told};
use anyhow::{Context, Result, bail};
use async_trait::async_trait;
use clap::Args;
use dynamo_llm::backend::ExecutionContext;
use dynamo_llm::entrypoint::EngineConfig;
use dynamo_llm::entrypoint::input::{Input, run_input};
use dynamo_llm::local_model::LocalModelBuilder;
use dynamo_llm::local_model::runtime_config::ModelRuntimeConfig;
use dynamo_llm::protocols::common::FinishReason;
use dynamo_llm::protocols::common::llm_backend::{LLMEngineOutput, PreprocessedRequest};
use dynamo_llm::types::Annotated;
use dynamo_runtime::DistributedRuntime;
use dynamo_runtime::error::{BackendError, DynamoError, ErrorType};
use dynamo_runtime::pipeline::{
    AsyncEngine, AsyncEngineContextProvider, Error, ManyOut, ResponseStream, SingleIn,
};
use futures::{Stream, StreamExt};
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::time::Instant;

/// Where workers of one model are found.
const NAMESPACE: &str = "dynamo";
const COMPONENT: &str = "backend";
const ENDPOINT: &str = "generate";

/// For whom to speak.
#[derive(Debug, Clone, Args)]
pub(crate) struct WorkerArgs {
    /// The server, which runs with --kv-events
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8000")]
    server: String,
    /// Directory with the model's config.json, tokenizer.json and tokenizer_config.json, for the frontend, which writes
    /// conversations down and reads texts
    #[arg(long, value_name = "DIRECTORY")]
    model: PathBuf,
    /// Key that the server lets in
    #[arg(long, value_name = "KEY", env = "LADDER_API_KEY", hide_env_values = true)]
    api_key: Option<String>,
}

/// Signs on, and answers until the server or the worker is to end.
pub(crate) async fn run(distributed: DistributedRuntime, args: WorkerArgs) -> Result<()> {
    let server = Server::new(&args.server, args.api_key.as_deref())?;
    let Served { id, max_model_len } = once_it_listens(&server).await?;
    let size = size(&server).await?;
    let endpoint = distributed.namespace(NAMESPACE)?.component(COMPONENT)?.endpoint(ENDPOINT);
    let runtime = ModelRuntimeConfig {
        context_length: Some(max_model_len),
        total_kv_blocks: Some(size.blocks),
        enable_local_indexer: true,
        kv_event_publishing_enabled: Some(true),
        ..Default::default()
    };
    let Size { block_tokens, .. } = size;
    let mut model = LocalModelBuilder::default();
    model
        .model_path(args.model.clone())
        .model_name(Some(id))
        .kv_cache_block_size(Some(block_tokens));
    let model = model.runtime_config(runtime).build().await;
    let model =
        model.with_context(|| format!("{} is no model's directory", args.model.display()))?;
    let relaying = relay(&server, endpoint, block_tokens)?;
    let end = distributed.primary_token();
    let engine: ExecutionContext = Arc::new(Answers { server, context: max_model_len as usize });
    let engine = EngineConfig::InProcessTokens {
        engine,
        model: Box::new(model),
        is_prefill: false,
        is_decode: false,
    };
    let path = format!("dyn://{NAMESPACE}.{COMPONENT}.{ENDPOINT}");
    let mut answering = pin!(run_input(distributed, Input::Endpoint(path), engine));
    tokio::select! {
        done = &mut answering => done,
        () = relaying => {
            end.cancel();
            answering.await?;
            bail!("the server is gone, and so is its worker")
        }
    }
}

/// What a server serves, which may have to load it first.
async fn once_it_listens(server: &Server) -> Result<Served> {
    let begun = Instant::now();
    loop {
        match server.served().await {
            Err(why) if is_unreachable(&why) && begun.elapsed() < GONE_FOR => {
                tracing::info!("waiting for the server: {why:#}");
                tokio::time::sleep(PAUSE).await;
            }
            done => return done,
        }
    }
}

/// Answers requests with a server.
struct Answers {
    server: Server,
    context: usize,
}

type Output = Annotated<LLMEngineOutput>;

#[async_trait]
impl AsyncEngine<SingleIn<PreprocessedRequest>, ManyOut<Output>, Error> for Answers {
    async fn generate(
        &self,
        input: SingleIn<PreprocessedRequest>,
    ) -> Result<ManyOut<Output>, Error> {
        let (request, context) = input.into_parts();
        let context = context.context();
        let stopped = context.clone();
        let answer = answer(self.server.clone(), request, self.context);
        // The connection goes when nobody wants the answer any more, and with it the server's work.
        let answer = answer.take_until(async move { stopped.stopped().await });
        Ok(ResponseStream::new(Box::pin(answer), context))
    }
}

// ANCHOR: answer
/// An answer, piece by piece. What goes wrong is its last piece: it says whether another worker could do it.
fn answer(
    server: Server,
    request: PreprocessedRequest,
    context: usize,
) -> impl Stream<Item = Output> + Send {
    async_stream::stream! {
        let body = match asked(&request, context) {
            Ok(body) => body,
            Err(wrong) => return yield failed(ErrorType::InvalidArgument, &wrong.to_string()),
        };
        let mut events = match server.complete(&body).await {
            Ok(events) => Box::pin(events),
            Err(Refused::Unreachable(why)) => {
                return yield failed(ErrorType::Backend(BackendError::CannotConnect), &why);
            }
            Err(Refused::Busy(why)) => return yield failed(ErrorType::WorkerOverloaded, &why),
            Err(Refused::Wrong(why)) => return yield failed(ErrorType::InvalidArgument, &why),
            Err(Refused::Failed(why)) => {
                return yield failed(ErrorType::Backend(BackendError::EngineShutdown), &why);
            }
        };
        let most = body["max_tokens"].as_u64().unwrap_or_default() as usize;
        let mut tokens = 0;
        while let Some(event) = events.next().await {
            let Ok(event) = event else { break };
            match told(&event) {
                Ok(mut output) => {
                    tokens += output.token_ids.len();
                    // A server that is to end, or has no more time for it, ends an answer where it is.
                    let is_cut = output.finish_reason == Some(FinishReason::Length) && tokens < most;
                    if is_cut {
                        output.finish_reason = None;
                    }
                    let is_last = output.finish_reason.is_some();
                    yield Annotated::from_data(output);
                    if is_cut {
                        break;
                    }
                    if is_last {
                        return;
                    }
                }
                Err(why) => {
                    return yield failed(ErrorType::Backend(BackendError::EngineShutdown), &why.to_string());
                }
            }
        }
        let why = "the server has ended in the middle of an answer";
        yield failed(ErrorType::Backend(BackendError::StreamIncomplete), why);
    }
}
// ANCHOR_END: answer

fn failed(kind: ErrorType, why: &str) -> Output {
    // What is wrong with a request is its client's to know; what is wrong with a server is not.
    let is_of_request = kind == ErrorType::InvalidArgument;
    let error = DynamoError::builder().error_type(kind).message(why);
    let error = if is_of_request { error.public_message(why) } else { error }.build();
    Annotated {
        data: None,
        id: None,
        event: Some("error".to_owned()),
        comment: None,
        error: Some(error),
    }
}
