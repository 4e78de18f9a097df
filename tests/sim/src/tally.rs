//! What really happened in a run: a suite in which a fault never did proves nothing about it.

use std::collections::BTreeMap;
use std::fmt;

/// Something that a run does or sees, beside ordinary requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Happened {
    /// Two VMs wrote the same slot at once.
    CasMismatch,
    /// Somebody wrote the slot before each of a VM's writes.
    CasStorm,
    /// A request ran out of tries.
    GiveUp,
    /// A call failed with some status.
    BadStatus,
    /// A VM died at a host call.
    VmKilled,
    /// A VM died with a request half charged or charged and not yet let through.
    KilledMidCharge,
    /// A proxy restarted, and its shared data was gone.
    Restart,
    /// A proxy's clock jumped ahead.
    ClockForward,
    /// A proxy's clock jumped back.
    ClockBack,
    /// A proxy's clock runs fast or slow.
    ClockDrift,
    /// A new config took over while traffic ran.
    ConfigUpdate,
    /// That config had a table of another size.
    Resize,
    /// A canary refused an update, for a fault hit it.
    UpdateRefused,
    /// States of another version appeared in a slot.
    AlienState,
    /// An entry gave way to another, living or expired.
    Displaced,
    /// Kong's zone dropped a value.
    ZoneEviction,
    /// A read in Kong's zone got another key's value.
    ForeignValue,
    /// Kong's zone would not take a value.
    ZoneFull,
    /// A charge was taken back after a lost race.
    Undo,
    /// A debt was paid from a tick.
    TickWrite,
}

/// Every kind, for the suite's check.
const ALL: [Happened; 20] = [
    Happened::CasMismatch,
    Happened::CasStorm,
    Happened::GiveUp,
    Happened::BadStatus,
    Happened::VmKilled,
    Happened::KilledMidCharge,
    Happened::Restart,
    Happened::ClockForward,
    Happened::ClockBack,
    Happened::ClockDrift,
    Happened::ConfigUpdate,
    Happened::Resize,
    Happened::UpdateRefused,
    Happened::AlienState,
    Happened::Displaced,
    Happened::ZoneEviction,
    Happened::ForeignValue,
    Happened::ZoneFull,
    Happened::Undo,
    Happened::TickWrite,
];

/// How often each happened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally(BTreeMap<Happened, u64>);

impl Tally {
    pub(crate) fn count(&mut self, what: Happened) {
        *self.0.entry(what).or_default() += 1;
    }

    pub(crate) fn of(&self, what: Happened) -> u64 {
        self.0.get(&what).copied().unwrap_or(0)
    }

    /// Adds what happened elsewhere.
    pub fn add(&mut self, other: &Self) {
        for (what, times) in &other.0 {
            *self.0.entry(*what).or_default() += times;
        }
    }

    /// What never happened.
    pub fn missing(&self) -> Vec<Happened> {
        ALL.into_iter().filter(|what| self.of(*what) == 0).collect()
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts: Vec<String> = self.0.iter().map(|(what, times)| format!("{what:?} {times}")).collect();
        f.write_str(&parts.join(", "))
    }
}
