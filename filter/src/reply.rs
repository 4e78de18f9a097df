//! What a client sees: the headers of an allowed response, and the whole of a denied one.
//!
//! `RateLimit` and `RateLimit-Policy` follow draft-ietf-httpapi-ratelimit-headers-11. Every value is made of
//! policy names, which the config restricts to letters, digits, `-` and `_`, and of numbers: nothing that a
//! client sends comes back in a header.

use crate::charge::Case;
use crate::denials::Denial;
use crate::host::Reply;
use crate::rules::{CountedLimit, Rule};
use core::fmt::Write;
use tidegate_config::{HeaderFamily, problem};
use tidegate_core::{Outcome, Timestamp};

/// Headers, names in lower case.
pub(crate) type Headers = Vec<(&'static str, String)>;

const STATUS: u16 = 429;

/// One limit as a client sees it.
struct Policy<'r> {
    limit: &'r CountedLimit,
    remaining: u64,
    reset_s: u64,
}

/// The headers of a response that is let through.
pub(crate) fn allowed_headers(family: HeaderFamily, cases: &[Case<'_>]) -> Headers {
    let enforced = cases.iter().filter(|case| case.ask.rule.is_enforced());
    let mut policies: Vec<Policy<'_>> = enforced
        .flat_map(|case| case.ask.rule.limits.iter().zip(case.judged.outcomes()))
        .map(|(limit, Outcome { remaining, reset_ms, .. })| Policy {
            limit,
            remaining: *remaining,
            reset_s: reset_ms.div_ceil(1_000),
        })
        .collect();
    policies.sort_by_key(Policy::free_share);
    headers(family, &policies)
}

/// The whole answer to a request that a rule denied.
pub(crate) fn denied(family: HeaderFamily, rule: &Rule, denial: &Denial, now: Timestamp) -> Reply {
    let retry_after_s = denial.retry_after_s(now);
    let violated = rule.limits.iter().enumerate().filter(|(index, _)| {
        u32::try_from(*index)
            .ok()
            .and_then(|bit| 1_u8.checked_shl(bit))
            .is_some_and(|bit| denial.violated & bit != 0)
    });
    let policies: Vec<Policy<'_>> = violated
        .map(|(_, limit)| Policy {
            limit,
            remaining: 0,
            // Until then nothing is left; one that never lets it pass says so by its window.
            reset_s: retry_after_s.unwrap_or_else(|| limit.limit.window_ms().div_ceil(1_000)),
        })
        .collect();
    let names: Vec<&str> = policies.iter().map(|policy| policy.limit.policy.as_str()).collect();
    let mut all =
        vec![("content-type", problem::CONTENT_TYPE.to_owned()), ("x-envoy-ratelimited", "true".to_owned())];
    if let Some(seconds) = retry_after_s {
        all.push(("retry-after", seconds.to_string()));
        if family.has_x_ratelimit() {
            all.push(("x-ratelimit-retry-after", seconds.to_string()));
        }
    }
    all.extend(headers(family, &policies));
    Reply { status: STATUS.into(), headers: all, body: problem::quota_exceeded(STATUS, &names) }
}

/// The decision, as an access log shows it.
pub(crate) fn access_log(outcome: &str, rule: &Rule, denial: &Denial, now: Timestamp) -> String {
    let mut text = format!("outcome={outcome} rule={}", rule.name());
    if let Some(seconds) = denial.retry_after_s(now) {
        // Writing to a String does not fail.
        let _ = write!(text, " retry_after={seconds}");
    }
    text
}

impl Policy<'_> {
    /// How much of the limit is free, in millionths: what sorts the most constrained first.
    fn free_share(&self) -> u64 {
        self.remaining.saturating_mul(1_000_000).checked_div(self.limit.limit.requests()).unwrap_or(0)
    }
}

fn headers(family: HeaderFamily, policies: &[Policy<'_>]) -> Headers {
    let mut headers = Vec::new();
    if policies.is_empty() {
        return headers;
    }
    if family.has_ratelimit() {
        headers.push((
            "ratelimit-policy",
            listed(policies, |Policy { limit, .. }| {
                let window_s = limit.limit.window_ms().div_ceil(1_000);
                format!("\"{}\";q={};w={window_s}", limit.policy, limit.limit.requests())
            }),
        ));
        headers.push((
            "ratelimit",
            listed(policies, |Policy { limit, remaining, reset_s }| {
                format!("\"{}\";r={remaining};t={reset_s}", limit.policy)
            }),
        ));
    }
    if family.has_x_ratelimit()
        && let Some(Policy { limit, remaining, reset_s }) = policies.first()
    {
        headers.push(("x-ratelimit-limit", limit.limit.requests().to_string()));
        headers.push(("x-ratelimit-remaining", remaining.to_string()));
        headers.push(("x-ratelimit-reset", reset_s.to_string()));
    }
    headers
}

fn listed(policies: &[Policy<'_>], item: impl Fn(&Policy<'_>) -> String) -> String {
    policies.iter().map(item).collect::<Vec<_>>().join(", ")
}
