//! What a VM has to tell the counter: admissions that it was not asked about, and refunds. Kept until the counter has
//! acknowledged them, within a bound; what is dropped at the bound is counted.

use crate::ask::{Ask, Judged};
use crate::clock::Clock;
use crate::metrics::{Metric, Metrics};
use crate::rules::CountedLimit;
use core::num::NonZeroU64;
use std::collections::{BTreeMap, VecDeque};
use tidegate_config::LIMITS_MAX;
use tidegate_core::{Algorithm, Take, Timestamp};

/// Keys that a VM reports about at once. Beyond that a report is dropped and counted.
const REPORTS_MAX: usize = 4_096;
/// Refunds that a VM keeps. Beyond that one is lost and counted.
const REFUNDS_MAX: usize = 1_024;

/// What was admitted without asking.
pub(crate) struct Report {
    /// Whose limits; the amount of its take is what was admitted.
    pub(crate) ask: Ask,
    /// The windows of this proxy's own count that it was taken from; 0 where it has none.
    pub(crate) receipts: [u64; LIMITS_MAX],
    /// When to tell it, on the monotonic clock.
    due: Timestamp,
    /// When its windows are over, on the monotonic clock: then nobody misses it. Not on the counter's, of which a VM
    /// may learn only later that it is minutes away.
    pub(crate) ends: Timestamp,
}

/// What is to be given back.
pub(crate) struct Refund {
    pub(crate) ask: Ask,
    /// The receipt and the amount of each limit.
    pub(crate) taken: [(u64, u64); LIMITS_MAX],
}

/// Which report: the key, the variant of the rule, the plan, the windows.
type ReportKey = (u64, u32, usize, [u64; LIMITS_MAX]);

/// What is to be told.
#[derive(Default)]
pub(crate) struct Outbox {
    reports: BTreeMap<ReportKey, Report>,
    refunds: VecDeque<Refund>,
}

impl Outbox {
    /// Reports an admission that was judged here. Several of one key in one window are one report.
    pub(crate) fn report(
        &mut self,
        ask: &Ask,
        judged: Option<&Judged>,
        (clock, due): (&Clock, Timestamp),
        metrics: &mut Metrics,
    ) {
        let now = clock.monotonic;
        // A bucket that is full again here is not full at the counter, where others take from it too.
        let lasts = |counted: &&CountedLimit| {
            judged.is_none() || matches!(counted.limit.algorithm(), Algorithm::TokenBucket { .. })
        };
        let windows_ms = ask.limits().iter().filter(lasts).map(|counted| counted.limit.window_ms()).max();
        let lasts_until = Timestamp::from_ms(now.ms().saturating_add(windows_ms.unwrap_or(0)));
        let (receipts, ends) = match judged {
            Some(judged) => (judged.receipts(), judged.ends(now).max(lasts_until)),
            None => ([0; LIMITS_MAX], lasts_until),
        };
        let report = Report { ask: ask.with(Take::force(ask.take.amount)), receipts, due, ends };
        self.keep(report, metrics);
    }

    /// Keeps a report, or what came back of a call that did not reach the counter.
    pub(crate) fn keep(&mut self, report: Report, metrics: &mut Metrics) {
        let Ask { identity, rule, limit_set, .. } = &report.ask;
        let key = (identity.key, rule.variant, *limit_set, report.receipts);
        if let Some(known) = self.reports.get_mut(&key) {
            let amount = known.ask.take.amount.saturating_add(report.ask.take.amount.get());
            known.ask.take = Take::force(amount);
            known.ends = known.ends.max(report.ends);
            known.due = known.due.min(report.due);
        } else if self.reports.len() < REPORTS_MAX {
            self.reports.insert(key, report);
        } else {
            metrics.add(Metric::ReportsDropped, report.ask.take.amount.get());
        }
    }

    pub(crate) fn refund(&mut self, refund: Refund, metrics: &mut Metrics) {
        if refund.taken.iter().all(|(_, amount)| *amount == 0) {
            return;
        }
        if self.refunds.len() < REFUNDS_MAX {
            self.refunds.push_back(refund);
        } else {
            metrics.add(Metric::UndosLost, 1);
        }
    }

    /// Takes out what is due, up to a weight; a report of limits with large states is worth several. What has been due
    /// for longest goes first, so that with more than fits each has its turn. Those whose windows are over are
    /// forgotten.
    pub(crate) fn due_reports(&mut self, clock: &Clock, weight_max: usize) -> Vec<Report> {
        self.reports.retain(|_, report| report.ends > clock.monotonic);
        let is_due = |(_, report): &(&ReportKey, &Report)| report.due <= clock.monotonic;
        let mut due: Vec<(Timestamp, ReportKey, usize)> = (self.reports.iter().filter(is_due))
            .map(|(key, report)| (report.due, *key, report.ask.weight()))
            .collect();
        due.sort_unstable();
        let mut room = weight_max;
        due.retain(|(_, _, weight)| {
            let fits = *weight <= room;
            room = if fits { room.saturating_sub(*weight) } else { room };
            fits
        });
        due.iter().filter_map(|(_, key, _)| self.reports.remove(key)).collect()
    }

    pub(crate) fn next_refund(&mut self) -> Option<Refund> {
        self.refunds.pop_front()
    }

    /// The counter has lost what it knew: there is nothing to give back.
    pub(crate) fn forget_refunds(&mut self) {
        self.refunds.clear();
    }

    /// The plugin ends: everything is due now.
    pub(crate) fn hurry(&mut self, monotonic: Timestamp) {
        for report in self.reports.values_mut() {
            report.due = report.due.min(monotonic);
        }
    }

    /// The plugin ends: what is left is lost.
    pub(crate) fn lose(&mut self, metrics: &mut Metrics) {
        for report in self.reports.values() {
            metrics.add(Metric::ReportsDropped, report.ask.take.amount.get());
        }
        metrics.add(Metric::UndosLost, u64::try_from(self.refunds.len()).unwrap_or(u64::MAX));
        self.reports.clear();
        self.refunds.clear();
    }
}

impl Refund {
    /// The whole of what an ask took.
    pub(crate) fn whole(ask: &Ask, judged: &Judged) -> Self {
        let mut taken = [(0, 0); LIMITS_MAX];
        for (taken, outcome) in taken.iter_mut().zip(judged.outcomes()) {
            *taken = (outcome.receipt, outcome.taken);
        }
        Self { ask: ask.clone(), taken }
    }

    /// What each limit gets back, by its place.
    pub(crate) fn parts(&self) -> impl Iterator<Item = (usize, u64, NonZeroU64)> {
        let parts = self.taken.iter().enumerate();
        parts.filter_map(|(index, (receipt, amount))| Some((index, *receipt, NonZeroU64::new(*amount)?)))
    }
}
