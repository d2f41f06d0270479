//! What an answer says again of its request.

use crate::api::ApiError;
use serde::{Serialize, Serializer};
use serde_json::value::{RawValue, to_raw_value};
use std::sync::Arc;

/// A value of a request, as JSON. It is written once, and however often the answer says it, while it is kept it takes as
/// much room as its text: as a tree of values, two bytes of a body can take seventy.
#[derive(Debug, Clone)]
pub struct Echo(pub(crate) Arc<RawValue>);

impl Echo {
    /// Of a value.
    ///
    /// # Errors
    /// 500 if it is none that JSON can have.
    pub fn of<T: Serialize + ?Sized>(value: &T) -> Result<Self, ApiError> {
        let written = to_raw_value(value).map_err(ApiError::failed)?;
        Ok(Echo(written.into()))
    }
}

impl Serialize for Echo {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}
