//! What a client sees: the headers of an allowed response, and the whole of a denied one.
//!
//! `RateLimit` and `RateLimit-Policy` follow draft-ietf-httpapi-ratelimit-headers-11. Every value is made of
//! policy names, which the config restricts to letters, digits, `-` and `_`, of numbers, and of the config's
//! own texts, which hold no control characters: nothing that a client sends comes back in a header.

use crate::ask::{Case, Home};
use crate::clock::Clock;
use crate::denials::Denial;
use crate::fleet::leases::Leases;
use crate::host::{HeaderPair, Reply};
use crate::rules::{CountedLimit, Rule};
use std::borrow::Cow;
use tidegate_config::{BODY_CONTENT_TYPE_DEFAULT, HeaderFamily, problem};
use tidegate_core::Outcome;

/// One limit as a client sees it.
struct Policy<'r> {
    limit: &'r CountedLimit,
    family: HeaderFamily,
    remaining: u64,
    reset_s: u64,
}

/// The headers of a response that is let through.
pub(crate) fn allowed_headers(cases: &[Case], leases: Option<&Leases>) -> Vec<HeaderPair> {
    let mut policies: Vec<Policy<'_>> = Vec::new();
    for case in cases.iter().filter(|case| case.ask.enforced) {
        let family = case.ask.rule.response.headers;
        if family == HeaderFamily::None {
            continue;
        }
        // What is left of a grant is not what is left of the limit.
        let granted_from = leases.filter(|_| case.ask.home == Home::Leased);
        let of_fleet = granted_from.and_then(|leases| leases.remaining(&case.ask)).unwrap_or(0);
        for (limit, Outcome { remaining, reset_ms, .. }) in
            case.ask.limits().iter().zip(case.judged.outcomes())
        {
            let remaining = &of_fleet.max(*remaining);
            policies.push(Policy { limit, family, remaining: *remaining, reset_s: reset_ms.div_ceil(1_000) });
        }
    }
    let most_constrained = (0..).zip(&policies).min_by_key(|(_, policy)| policy.free_share());
    if let Some((index, _)) = most_constrained {
        policies.swap(0, index);
    }
    headers(&policies)
}

/// The whole answer to a request that a rule denied.
pub(crate) fn denied(rule: &Rule, limits: &[CountedLimit], denial: &Denial, clock: &Clock) -> Reply {
    let response = &rule.response;
    let retry_after_s = denial.retry_after_s(clock);
    let violated = limits.iter().enumerate().filter(|(index, _)| denial.violates(*index));
    let policies: Vec<Policy<'_>> = violated
        .map(|(_, limit)| Policy {
            limit,
            family: response.headers,
            remaining: 0,
            // Until then nothing is left; one that never lets it pass says so by its window.
            reset_s: retry_after_s.unwrap_or_else(|| limit.limit.window_ms().div_ceil(1_000)),
        })
        .collect();
    let (content_type, body) = body(rule, &policies, denial, retry_after_s);
    let mut all: Vec<HeaderPair> =
        vec![pair("content-type", content_type), pair("x-envoy-ratelimited", "true")];
    if let Some(seconds) = retry_after_s {
        all.push(pair("retry-after", seconds.to_string()));
        if response.headers.has_x_ratelimit() {
            all.push(pair("x-ratelimit-retry-after", seconds.to_string()));
        }
    }
    all.extend(headers(&policies));
    all.extend(response.extra_headers.iter().map(|(name, value)| (Cow::Owned(name.clone()), value.clone())));
    Reply { status: response.status.into(), headers: all, body, grpc_status: response.grpc.code().into() }
}

/// The body's type and the body: the config's own, or a problem document.
fn body(
    rule: &Rule,
    policies: &[Policy<'_>],
    denial: &Denial,
    retry_after_s: Option<u64>,
) -> (String, Vec<u8>) {
    let response = &rule.response;
    let (default_type, body) = match &response.body {
        Some(body) => {
            let limit = policies.first().map_or(0, |policy| policy.limit.limit.requests());
            let filled = body.render(&tidegate_config::Denial { rule: &rule.name, retry_after_s, limit });
            (BODY_CONTENT_TYPE_DEFAULT, filled.into_bytes())
        }
        None if denial.is_for_want_of_capacity => {
            (problem::CONTENT_TYPE, problem::reduced_capacity(response.status, &[&rule.name]))
        }
        None if policies.is_empty() => {
            (problem::CONTENT_TYPE, problem::abnormal_usage(response.status, &[&rule.name]))
        }
        None => {
            let names: Vec<&str> = policies.iter().map(|policy| policy.limit.policy.as_str()).collect();
            (problem::CONTENT_TYPE, problem::quota_exceeded(response.status, &names))
        }
    };
    (response.content_type.clone().unwrap_or_else(|| default_type.to_owned()), body)
}

/// The decision, as an access log shows it.
pub(crate) fn access_log(outcome: &str, rule: &Rule, denial: &Denial, clock: &Clock) -> String {
    let mut text = ["outcome=", outcome, " rule=", &rule.name, " remaining="].concat();
    text.push_str(&denial.remaining.to_string());
    if let Some(seconds) = denial.retry_after_s(clock) {
        text.push_str(" retry_after=");
        text.push_str(&seconds.to_string());
    }
    text
}

impl Policy<'_> {
    /// How much of the limit is free, in millionths: the most constrained stands first.
    fn free_share(&self) -> u64 {
        self.remaining.saturating_mul(1_000_000).checked_div(self.limit.limit.capacity()).unwrap_or(0)
    }
}

fn headers(policies: &[Policy<'_>]) -> Vec<HeaderPair> {
    let mut headers = Vec::new();
    let drafted: Vec<&Policy<'_>> = policies.iter().filter(|policy| policy.family.has_ratelimit()).collect();
    if !drafted.is_empty() {
        headers.push(pair(
            "ratelimit-policy",
            listed(&drafted, |Policy { limit, .. }| {
                let window_s = limit.limit.window_ms().div_ceil(1_000);
                format!("\"{}\";q={};w={window_s}", limit.policy, limit.limit.requests())
            }),
        ));
        headers.push(pair(
            "ratelimit",
            listed(&drafted, |Policy { limit, remaining, reset_s, .. }| {
                format!("\"{}\";r={remaining};t={reset_s}", limit.policy)
            }),
        ));
    }
    if let Some(policy) = policies.iter().find(|policy| policy.family.has_x_ratelimit()) {
        headers.push(pair("x-ratelimit-limit", policy.limit.limit.requests().to_string()));
        headers.push(pair("x-ratelimit-remaining", policy.remaining.to_string()));
        headers.push(pair("x-ratelimit-reset", policy.reset_s.to_string()));
    }
    headers
}

fn listed(policies: &[&Policy<'_>], item: impl Fn(&Policy<'_>) -> String) -> String {
    policies.iter().map(|policy| item(policy)).collect::<Vec<_>>().join(", ")
}

fn pair(name: &'static str, value: impl Into<String>) -> HeaderPair {
    (Cow::Borrowed(name), value.into())
}
