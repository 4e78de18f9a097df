//! What the counter says to a request that it does not serve: `application/problem+json` (RFC 9457).

use crate::errors::ConfigErrors;
use crate::json::Json;
use crate::json_text::Fields;

/// The content type of a [`Problem`].
pub const PROBLEM_JSON: &str = "application/problem+json";

/// At most this many errors are listed; the rest are counted.
const ERRORS_LISTED_MAX: usize = 20;

/// Why a request is not served, and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The status of the response.
    pub status: u16,
    /// The kind of problem: a short name for programs.
    pub kind: &'static str,
    /// The kind of problem, for people.
    pub title: &'static str,
    /// This very problem.
    pub detail: String,
    /// What is wrong with which field.
    pub errors: Option<ConfigErrors>,
}

impl Problem {
    /// The problem as JSON text on one line.
    pub fn to_json(&self) -> String {
        let mut fields = Fields::default();
        fields.put("type", format!("urn:tidegate:problem:{}", self.kind));
        fields.put("title", self.title);
        fields.put("status", u64::from(self.status));
        fields.put("detail", self.detail.as_str());
        if let Some(errors) = &self.errors {
            let listed = errors.errors().iter().take(ERRORS_LISTED_MAX).map(|error| {
                let mut fields = Fields::default();
                fields.put("field", error.path());
                fields.put("message", error.message());
                Json::from(fields)
            });
            fields.put("errors", listed.collect::<Vec<Json>>());
            let beyond = errors.errors().len().saturating_sub(ERRORS_LISTED_MAX);
            let more = u64::try_from(beyond.saturating_add(errors.more())).unwrap_or(u64::MAX);
            fields.put_if(more > 0, "more_errors", || more.into());
        }
        Json::from(fields).to_line()
    }
}
