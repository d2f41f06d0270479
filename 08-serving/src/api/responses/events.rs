//! A response, as it comes.

use super::{OutputItem, Part, ResponseAnswer};
use crate::api::TokenLogprob;
use serde::Serialize;
use utoipa::ToSchema;

/// What has happened to a response.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct ResponseEvent {
    /// What: `response.created`, `response.output_text.delta` and so on, the event's name, too.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// Events before this one.
    pub sequence_number: usize,
    /// The rest of it.
    #[serde(flatten)]
    pub what: What,
}

/// What an event says.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(untagged)]
pub enum What {
    /// The response has begun, or ended.
    Response {
        /// As it is now.
        response: Box<ResponseAnswer>,
    },
    /// An item has begun, or ended.
    Item {
        /// Items before it.
        output_index: usize,
        /// As it is now.
        item: OutputItem,
    },
    /// A text has begun, or ended.
    Part {
        /// Of this item.
        item_id: String,
        /// Items before it.
        output_index: usize,
        /// Texts of the item before it: none.
        content_index: usize,
        /// As it is now.
        part: Part,
    },
    /// More of a text, or of a call's arguments.
    Delta {
        /// Of this item.
        item_id: String,
        /// Items before it.
        output_index: usize,
        /// Texts of the item before it, of a text: none.
        #[serde(skip_serializing_if = "Option::is_none")]
        content_index: Option<usize>,
        /// The text, or the arguments.
        delta: String,
        /// Log-probabilities of its tokens, of what is said.
        #[serde(skip_serializing_if = "Option::is_none")]
        logprobs: Option<Vec<TokenLogprob>>,
    },
    /// All of a text.
    Text {
        /// Of this item.
        item_id: String,
        /// Items before it.
        output_index: usize,
        /// Texts of the item before it: none.
        content_index: usize,
        /// The text.
        text: String,
        /// Log-probabilities of its tokens, of what is said.
        #[serde(skip_serializing_if = "Option::is_none")]
        logprobs: Option<Vec<TokenLogprob>>,
    },
    /// All arguments of a call.
    Arguments {
        /// Of this item.
        item_id: String,
        /// Items before it.
        output_index: usize,
        /// The function.
        name: String,
        /// The arguments.
        arguments: String,
    },
}
