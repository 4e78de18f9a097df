//! Waiting for a condition: a bounded number of looks, never one long sleep.

use std::time::Duration;

use crate::Fault;

/// The pause between two looks.
const PAUSE: Duration = Duration::from_millis(25);

/// How often a condition is looked at before it counts as never true: half a minute, for a busy machine.
const LOOKS_MAX: u32 = 1_200;

/// Looks until `look` gives a value. `Err` is "not yet", with what was seen instead; the fault at the end
/// says what was waited for and the last thing seen.
pub async fn until<T>(what: &str, mut look: impl AsyncFnMut() -> Result<T, Fault>) -> Result<T, Fault> {
    let mut last_seen = Fault::new("nothing");
    for _ in 0..LOOKS_MAX {
        match look().await {
            Ok(value) => return Ok(value),
            Err(seen) => last_seen = seen,
        }
        tokio::time::sleep(PAUSE).await;
    }
    Err(Fault::new(format!("waited in vain for {what}; last seen: {last_seen}")))
}
