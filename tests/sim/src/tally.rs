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
    /// Kong's zone dropped the table's marker.
    MarkerDropped,
    /// A VM found another marker than its own.
    TableMoved,
    /// A read in Kong's zone got another key's value.
    ForeignValue,
    /// Kong's zone would not take a value.
    ZoneFull,
    /// A charge was taken back after a lost race.
    Undo,
    /// A debt was paid from a tick.
    TickWrite,
    /// The counter was called.
    CounterCall,
    /// A call to the counter was lost on its way.
    RequestLost,
    /// The counter heard a batch, and its answer was lost.
    AnswerLost,
    /// A batch arrived twice.
    Repeated,
    /// A call was held up on one of its ways.
    HeldUp,
    /// A batch overtook another of the same VM.
    Reordered,
    /// A call was given up by its host.
    TimeOut,
    /// An answer was no answer.
    Malformed,
    /// An answer was too large for the host.
    Oversized,
    /// The counter said that it cannot.
    Unavailable,
    /// The host knew nobody to send a call to.
    NoHost,
    /// A proxy was cut off from the counter.
    Partition,
    /// The counter ended, and had forgotten all when it was back.
    CounterRestart,
    /// A batch met a counter that was down.
    CounterDown,
    /// A client left while its request waited.
    ClientLeft,
    /// An answer came for a plugin that was gone.
    RootGone,
    /// A request was decided without the counter.
    FallBack,
    /// One answer settled several requests.
    Shared,
    /// A request counted more than one.
    Costly,
    /// The same by a rule of the fleet.
    CostlyInFleet,
    /// The limit of a rule that leases changed while traffic ran.
    LeaseChanged,
    /// The same of one that syncs.
    SyncChanged,
    /// And of one that asks each time.
    ExactChanged,
}

/// Every kind, for the suite's check.
const ALL: [Happened; 44] = [
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
    Happened::MarkerDropped,
    Happened::ForeignValue,
    Happened::ZoneFull,
    Happened::Undo,
    Happened::TickWrite,
    Happened::CounterCall,
    Happened::RequestLost,
    Happened::AnswerLost,
    Happened::Repeated,
    Happened::HeldUp,
    Happened::Reordered,
    Happened::TimeOut,
    Happened::Malformed,
    Happened::Oversized,
    Happened::Unavailable,
    Happened::NoHost,
    Happened::Partition,
    Happened::CounterRestart,
    Happened::CounterDown,
    Happened::ClientLeft,
    Happened::RootGone,
    Happened::FallBack,
    Happened::Shared,
    Happened::Costly,
    Happened::CostlyInFleet,
    Happened::LeaseChanged,
    Happened::SyncChanged,
    Happened::ExactChanged,
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
