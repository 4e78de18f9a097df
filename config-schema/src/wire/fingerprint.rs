//! What tells two batches apart that came under the same sequence.

use std::hash::Hasher;

use siphasher::sip::SipHasher13;
use tidegate_core::{Algorithm, Manner};

use super::{Act, Batch, PUBLIC_KEY, Take, limit_tag};
use crate::{Align, WhenFull};

impl Batch<'_> {
    /// A number that two batches have in common if they ask for the same. Who sends it, how long that one waits and
    /// whether it wants states are no part of it: a retry may say otherwise. Services of any version that share a
    /// store must compute the same one.
    pub fn fingerprint(&self) -> u64 {
        let mut hasher = SipHasher13::new_with_key(PUBLIC_KEY);
        for group in &self.groups {
            write_number(&mut hasher, group.takes.len() as u64);
            for take in &group.takes {
                write_take(&mut hasher, take);
            }
        }
        hasher.finish()
    }
}

fn write_take(hasher: &mut SipHasher13, take: &Take<'_>) {
    for text in [take.rule.as_bytes(), &take.key] {
        write_number(hasher, text.len() as u64);
        hasher.write(text);
    }
    let limit = &take.limit.limit;
    hasher.write(&limit_tag(&take.limit));
    write_number(hasher, limit.requests());
    if let Algorithm::TokenBucket { burst, warm_up_ms } = limit.algorithm() {
        write_number(hasher, burst);
        write_number(hasher, warm_up_ms);
    }
    let (act, receipt) = match take.act {
        Act::Take(Manner::All) => (0, 0),
        Act::Take(Manner::Some) => (1, 0),
        Act::Take(Manner::Force) => (2, 0),
        Act::Refund { receipt } => (3, receipt),
    };
    let is_strict = take.when_full == WhenFull::Strict;
    let is_shifted = take.limit.align == Align::Key;
    hasher.write(&[act, u8::from(is_strict), u8::from(is_shifted)]);
    write_number(hasher, take.n.get());
    write_number(hasher, receipt);
}

/// The same bytes on every machine.
fn write_number(hasher: &mut SipHasher13, number: u64) {
    hasher.write(&number.to_le_bytes());
}
