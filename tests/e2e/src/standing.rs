//! How a limit stands at a counter, by the counter's own word: whatever was counted twice in it would be seen.

use std::num::NonZeroU64;

use tidegate_config::wire::{Act, Answer, Batch, Group, N_MAX, POSTCARD, Take};
use tidegate_core::Manner;

use crate::relay::Call;
use crate::{Counter, Fault, http};

/// How much of the limit that these calls asked about last, for one rule, stands charged. It charges nothing: it asks for
/// more than any limit has.
pub async fn charged(counter: &Counter, calls: &[Call], rule: &str) -> Result<u64, Fault> {
    let takes = calls.iter().rev().flat_map(|call| call.takes.iter().map(move |take| (call, take)));
    let asked = takes.into_iter().find(|(_, take)| take.rule == rule);
    let (call, take) = asked.ok_or_else(|| Fault::new(format!("nobody asked about {rule}")))?;
    let too_much = Take {
        rule: rule.into(),
        limit: take.limit,
        key: take.key.as_slice().into(),
        n: NonZeroU64::new(N_MAX).unwrap_or(NonZeroU64::MIN),
        act: Act::Take(Manner::All),
        when_full: take.when_full,
    };
    let batch = Batch {
        namespace: call.namespace.as_str().into(),
        sender: None,
        wait_ms: None,
        states: false,
        groups: vec![Group { takes: vec![too_much] }],
    };
    let reply = http::post(counter.address(), "/v1/take", POSTCARD, batch.to_postcard().into()).await?;
    let answer = Answer::from_postcard(&reply.body).map_err(|_| Fault::new("no answer of the counter"))?;
    let outcome = answer.groups.first().and_then(|group| group.takes.first());
    match outcome {
        Some(outcome) if outcome.taken == 0 => {
            Ok(take.limit.limit.capacity().saturating_sub(outcome.remaining))
        }
        other => Err(Fault::new(format!("the counter should have refused {N_MAX}, and said {other:?}"))),
    }
}
