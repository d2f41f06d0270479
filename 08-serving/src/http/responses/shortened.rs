//! A conversation that is too long, without its beginning (`truncation: "auto"`).

use crate::api::chat::ChatRequest;
use crate::api::responses::{Input, Item, ResponseRequest, beginnings};
use crate::http::App;
use crate::http::talk::prompt_tokens;

/// Tokens that are left for an answer whose length nobody has said: a quarter of the context, and no more than this.
const ROOM: usize = 1024;

/// The chat completion that is left of a request if as few of its oldest items are left out as will do; none if even the last is
/// too long, or is not to be had without the others.
///
/// What the assistant said to a question that is left out goes with it, where there is a later question: many templates refuse a
/// conversation that the assistant begins, and a model knows none.
pub(super) fn shortened(app: &App, mut request: ResponseRequest) -> Option<ChatRequest> {
    let Some(Input::Items(items)) = request.input.take() else { return None };
    let chat = |begin: usize| {
        let input = Some(Input::Items(items[begin..].to_vec()));
        ResponseRequest { input, ..request.clone() }.into_chat().ok()
    };
    // An answer that may be as long as there is room for has some, or else one token.
    let some = (app.limits().context / 4).min(ROOM);
    let rooms = request.max_output_tokens.map_or(vec![some.max(1), 1], |most| vec![most]);
    let fits = |begin: usize, room: usize| {
        let tokens = chat(begin).and_then(|chat| prompt_tokens(app, &chat).ok());
        tokens.is_some_and(|tokens| app.limits().check_length(tokens, room).is_ok())
    };
    let first = within_reach(app, &items);
    let all = beginnings(&items).into_iter().filter(|&begin| begin >= first.max(1));
    let (questions, others): (Vec<_>, Vec<_>) =
        all.partition(|&begin| items[begin].is_put_to_the_model());
    let begin = rooms.into_iter().find_map(|room| {
        let fits = |begin: usize| fits(begin, room);
        fewest(&questions, fits).or_else(|| fewest(&others, fits))
    });
    chat(begin?)
}

/// The first of the items that can matter: those from there on are at most twice what fits. So a conversation is not
/// written down whole over and over, however long it is.
fn within_reach(app: &App, items: &[Item]) -> usize {
    let mut left = 2 * app.limits().context;
    for (at, item) in items.iter().enumerate().rev() {
        let tokens =
            |text: &str| app.tokenizer.encode(text.trim()).map_or(0, |tokens| tokens.len());
        // One that says nothing has its marks.
        let tokens = item.texts().map(tokens).sum::<usize>().max(1);
        let Some(rest) = left.checked_sub(tokens) else { return at + 1 };
        left = rest;
    }
    0
}

/// The first beginning with which a conversation fits, if any does: the later it begins, the shorter it is.
fn fewest(beginnings: &[usize], fits: impl Fn(usize) -> bool) -> Option<usize> {
    let (mut low, mut high) = (0, beginnings.len());
    while low < high {
        let middle = low.midpoint(high);
        match fits(beginnings[middle]) {
            true => high = middle,
            false => low = middle + 1,
        }
    }
    beginnings.get(low).copied()
}
