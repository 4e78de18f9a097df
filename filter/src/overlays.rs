//! What routes carry in their own metadata: rules that they add, limits that they tighten.
//!
//! A host hands out the text for every request; it is read once and kept, by its exact bytes.

use crate::host::Host;
use crate::metrics::{Metric, Metrics};
use crate::rules::{Common, Part, Rule, Rules};
use crate::table::Table;
use std::rc::Rc;
use tidegate_config::{ClientAddress, ConfigErrors, OverlayBase};

/// Where a route's metadata has the text.
const PROPERTY: [&str; 5] = ["xds", "route_metadata", "filter_metadata", "tidegate", "limits"];

/// Texts that are kept ready; beyond that the one that was read first is read again when it comes back.
const OVERLAYS_MAX: usize = 64;

/// The metadata of a plugin's routes.
pub(crate) struct Overlays {
    common: Rc<Common>,
    client_ip: ClientAddress,
    /// Whose metrics count the decisions of added rules: one set for all of them.
    metrics_of: usize,
    /// How many variants of rules there were so far.
    variants: u32,
    /// The texts so far, and what they say; nothing if they are wrong.
    read: Vec<(Vec<u8>, Option<Rc<Overlay>>)>,
}

/// What one text says.
pub(crate) struct Overlay {
    pub(crate) added: Rules,
    /// By the rule's place in the config.
    tightened: Vec<(usize, Rc<Rule>)>,
}

impl Overlay {
    /// The rule with the route's own limits, if it has some.
    pub(crate) fn tightened(&self, index: usize) -> Option<&Rc<Rule>> {
        self.tightened.iter().find(|(other, _)| *other == index).map(|(_, rule)| rule)
    }
}

impl Overlays {
    pub(crate) fn new(common: Rc<Common>, client_ip: ClientAddress, metrics_of: usize) -> Self {
        Self { common, client_ip, metrics_of, variants: 0, read: Vec::new() }
    }

    /// What the route of the request at hand says. Metadata that is wrong changes nothing, and is counted.
    pub(crate) fn find(
        &mut self,
        host: &impl Host,
        rules: &Rules,
        table: &Table,
        metrics: &mut Metrics,
    ) -> Option<Rc<Overlay>> {
        let text = host.property(&PROPERTY).ok().filter(|text| !text.is_empty())?;
        let known = self.read.iter().find(|(other, _)| *other == text).map(|(_, overlay)| overlay.clone());
        let overlay = known.unwrap_or_else(|| self.keep(text, rules, table));
        if overlay.is_none() {
            metrics.add(Metric::RouteMetadataErrors, 1);
        }
        overlay
    }

    fn keep(&mut self, text: Vec<u8>, rules: &Rules, table: &Table) -> Option<Rc<Overlay>> {
        let overlay = match self.overlay(&text, rules, table) {
            Ok(overlay) => Some(Rc::new(overlay)),
            Err(errors) => {
                log::warn!("a route's metadata is wrong, and nothing of it holds: {errors}");
                None
            }
        };
        if self.read.len() >= OVERLAYS_MAX {
            self.read.remove(0);
        }
        self.read.push((text, overlay.clone()));
        overlay
    }

    fn overlay(&mut self, text: &[u8], rules: &Rules, table: &Table) -> Result<Overlay, ConfigErrors> {
        // No counter: a rule that the whole fleet keeps belongs into the config.
        let base = OverlayBase { rules: rules.config(), client_ip: self.client_ip, has_counter: false };
        let overlay = base.read(text)?;
        // Rules of one name in two texts are two variants, with limits of their own on one count.
        self.variants = self.variants.saturating_add(1);
        let part = |metrics_of| Part { metrics_of, variant: self.variants };
        let mut tightened = Vec::with_capacity(overlay.tightened.len());
        for one in overlay.tightened {
            if let Some(rule) = rules.config().get(one.rule) {
                let limits = &mut core::iter::once(one.limits.as_slice());
                let rule = Rule::new(rule, limits, &self.common, table, part(one.rule));
                tightened.push((one.rule, Rc::new(rule)));
            }
        }
        let added = Rules::new(overlay.rules, &self.common, table, &|_| part(self.metrics_of));
        Ok(Overlay { added, tightened })
    }
}
