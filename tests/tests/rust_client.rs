//! A Rust client of OpenAI's API: async-openai reads what is answered into types of its own.
//!
//! Here and not beside the server's other tests, as what measures the server is compiled with all that those want, and this
//! client brings many crates.

use async_openai::Client;
use async_openai::config::OpenAIConfig;
use async_openai::error::OpenAIError;
use async_openai::types::chat::{
    ChatCompletionRequestUserMessageArgs, CreateChatCompletionRequest,
    CreateChatCompletionRequestArgs, FinishReason,
};
use async_openai::types::completions::CreateCompletionRequestArgs;
use embedded_models::TARGET;
use futures_util::StreamExt;
use model_files::ModelFiles;
use naive_decode::LoadOptions;
use serving::engine::{Engine, EngineHandle, EngineOptions};
use serving::http::{App, InProcess, Keys};
use std::sync::Arc;

/// A server in this process, which wants a key, and a client that has it.
fn with_client(asks: impl AsyncFnOnce(Client<OpenAIConfig>)) {
    let files = ModelFiles::embedded(&TARGET).unwrap();
    let model = Arc::new(files.load(LoadOptions::default()).unwrap());
    let end_tokens = model.config.end_tokens.clone();
    let options = EngineOptions::for_model(&model).unwrap();
    let engine = EngineHandle::start(Engine::new(model, options).unwrap()).unwrap();
    let ModelFiles { tokenizer, chat_template, .. } = files;
    let app = App::new("target", tokenizer, chat_template, end_tokens, engine).unwrap();
    let app = app.with_keys(Keys::new(["ada"]).unwrap());
    let server = InProcess::start(Arc::new(app)).unwrap();
    let base = format!("http://{}/v1", server.address());
    let client = Client::with_config(OpenAIConfig::new().with_api_base(base).with_api_key("ada"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(asks(client));
}

fn question() -> CreateChatCompletionRequest {
    let said = ChatCompletionRequestUserMessageArgs::default().content("Who are you?").build();
    CreateChatCompletionRequestArgs::default()
        .model("target")
        .messages([said.unwrap().into()])
        .temperature(0.0)
        .build()
        .unwrap()
}

#[test]
fn a_chat_streams_what_it_answers_whole() {
    with_client(async |client| {
        let models = client.models().list().await.unwrap();
        assert_eq!(models.data[0].id, "target");
        let whole = client.chat().create(question()).await.unwrap();
        let choice = &whole.choices[0];
        assert_eq!(choice.finish_reason, Some(FinishReason::Stop));
        let text = choice.message.content.clone().unwrap();
        assert!(!text.is_empty());
        let mut pieces = client.chat().create_stream(question()).await.unwrap();
        let (mut streamed, mut end) = (String::new(), None);
        while let Some(piece) = pieces.next().await {
            let piece = piece.unwrap();
            assert_eq!(piece.object, "chat.completion.chunk");
            let choice = &piece.choices[0];
            streamed += choice.delta.content.as_deref().unwrap_or_default();
            end = choice.finish_reason.or(end);
        }
        assert_eq!((streamed, end), (text, Some(FinishReason::Stop)));
    });
}

#[test]
fn a_completion_is_continued_and_refusals_are_read() {
    with_client(async |client| {
        let mut asked = CreateCompletionRequestArgs::default();
        asked.model("target").prompt("Once upon a time").max_tokens(5u32);
        let done = client.completions().create(asked.build().unwrap()).await.unwrap();
        assert_eq!(done.usage.unwrap().completion_tokens, 5);
        asked.model("nothing");
        let refused = client.completions().create(asked.build().unwrap()).await.unwrap_err();
        let OpenAIError::ApiError(refused) = refused else { panic!("{refused}") };
        assert_eq!(refused.api_error.code.as_deref(), Some("model_not_found"));
        let mut hot = question();
        hot.temperature = Some(-1.0);
        let refused = client.chat().create(hot).await.unwrap_err();
        let OpenAIError::ApiError(refused) = refused else { panic!("{refused}") };
        assert_eq!(refused.api_error.param.as_deref(), Some("temperature"));
    });
}
