//! Bugs on purpose, so that a test can show that the simulation finds them. Without the feature
//! `planted-bugs` there are none, and nothing of this is in the module.

use crate::table::Region;

/// A classic mistake.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bug {
    /// Slots are written without looking at the version.
    BlindWrite,
    /// What was charged before a lost race is not given back.
    UndoForgotten,
    /// Slots are written before every rule has said yes.
    EarlyWrite,
    /// What a displaced strict counter had used is forgotten.
    EvictionResets,
    /// States are read whatever their version.
    VersionUnchecked,
    /// A call to the counter is made again without the number by which it would be recognised.
    RetryWithoutSequence,
    /// A grant is spent after the window that it was taken from.
    GrantOutlivesItsWindow,
    /// What is left of a grant that has ended is given back twice.
    RefundTwice,
}

/// Whether this build was told to have a bug.
#[cfg(not(feature = "planted-bugs"))]
pub(crate) const fn has(_: Bug) -> bool {
    false
}

#[cfg(feature = "planted-bugs")]
pub(crate) use chosen::has;

/// A slot's bytes as they were read; with the bug, every state of a small slot looks as if it were of our version. Large
/// slots are left alone: their entries lie elsewhere, and to garble them would be another bug.
pub(crate) fn read(region: Region, mut bytes: Vec<u8>) -> Vec<u8> {
    if has(Bug::VersionUnchecked) && region == Region::Small {
        for kind in bytes.iter_mut().skip(SLOT_KIND_AT).step_by(SLOT_ENTRY_BYTES) {
            *kind = *kind & 0x0f | 0x10;
        }
    }
    bytes
}

const SLOT_KIND_AT: usize = 22;
const SLOT_ENTRY_BYTES: usize = 30;

#[cfg(feature = "planted-bugs")]
mod chosen {
    use super::Bug;
    use core::sync::atomic::{AtomicU32, Ordering};

    static CHOSEN: AtomicU32 = AtomicU32::new(0);

    pub(crate) fn has(bug: Bug) -> bool {
        let number = match bug {
            Bug::BlindWrite => 1,
            Bug::UndoForgotten => 2,
            Bug::EarlyWrite => 3,
            Bug::EvictionResets => 4,
            Bug::VersionUnchecked => 5,
            Bug::RetryWithoutSequence => 6,
            Bug::GrantOutlivesItsWindow => 7,
            Bug::RefundTwice => 8,
        };
        CHOSEN.load(Ordering::Relaxed) == number
    }

    /// Called by the simulation right after the VM's start.
    #[cfg(target_arch = "wasm32")]
    #[expect(unsafe_code, reason = "an export has a fixed name")]
    #[unsafe(no_mangle)]
    extern "C" fn tidegate_plant(number: u32) {
        CHOSEN.store(number, Ordering::Relaxed);
    }
}
