//! What the page calls: text in, text out, through memory that both can see.
//!
//! The page asks for room ([`room`]), writes its settings there as JSON, calls [`ask`], and reads as many bytes of
//! JSON from [`told`] as that says.

use crate::{Error, Settings, answer};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Most bytes of settings.
const MOST: usize = 1 << 16;

static ASKED: Mutex<Vec<u8>> = Mutex::new(Vec::new());
static TOLD: Mutex<Vec<u8>> = Mutex::new(Vec::new());

fn lock(text: &Mutex<Vec<u8>>) -> MutexGuard<'_, Vec<u8>> {
    text.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Where so many bytes of settings may be written; at most 65,536 are given.
#[unsafe(no_mangle)]
pub extern "C" fn room(bytes: usize) -> *mut u8 {
    let mut asked = lock(&ASKED);
    asked.clear();
    asked.resize(bytes.min(MOST), b' ');
    asked.as_mut_ptr()
}

/// Answers what has been written; gives the bytes of the answer. It is `{"Ok": …}` or `{"Err": "…"}`.
#[unsafe(no_mangle)]
pub extern "C" fn ask() -> usize {
    let answered = said(&lock(&ASKED));
    let mut told = lock(&TOLD);
    *told = answered;
    told.len()
}

/// Where the answer is.
#[unsafe(no_mangle)]
pub extern "C" fn told() -> *const u8 {
    lock(&TOLD).as_ptr()
}

/// The answer to some settings, both as JSON.
pub fn said(settings: &[u8]) -> Vec<u8> {
    let read = serde_json::from_slice::<Settings>(settings);
    let answer = match read {
        Ok(settings) => answer(&settings),
        Err(error) => Err(Error::invalid("the settings", error, "JSON of every control")),
    };
    let answer = answer.map_err(|error| error.to_string());
    serde_json::to_vec(&answer).unwrap_or_else(|error| format!(r#"{{"Err":"{error}"}}"#).into())
}
