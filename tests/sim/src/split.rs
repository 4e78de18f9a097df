//! Kong may drop the table's marker. A VM that starts then draws another secret, and counts elsewhere than the others
//! until they have seen its marker. What was counted before, and meanwhile, is excused: it was dropped with the marker.

use crate::actor::Job;
use crate::identity::{self, MARKER_KEY};
use crate::tally::Happened;
use crate::world::World;

impl World<'_> {
    /// The zone dropped the marker of a proxy.
    pub(crate) fn marker_dropped(&mut self, proxy: usize) {
        self.tally.count(Happened::MarkerDropped);
        self.proxies[proxy].is_split = true;
    }

    /// A VM has read or written the marker: it goes by that one.
    pub(crate) fn saw_marker(&mut self, actor: usize, job: Job) {
        let proxy = self.actors[actor].proxy;
        let marker = self.proxies[proxy].shared.peek(MARKER_KEY).and_then(identity::secret_of_marker);
        let (Job::Tick { root }, Some(secret)) = (job, marker) else { return };
        let Some(root) = self.actors[actor].root(root) else { return };
        if root.secret.is_some_and(|before| before != secret) {
            self.tally.count(Happened::TableMoved);
        }
        root.secret = Some(secret);
    }

    /// Called around each decision, and after each callback.
    pub(crate) fn excuse_while_split(&mut self, proxy: usize) {
        if !self.proxies[proxy].is_split {
            return;
        }
        self.oracle.empty(self.steps, |id| id.proxy == proxy);
        let marker = self.proxies[proxy].shared.peek(MARKER_KEY).and_then(identity::secret_of_marker);
        let workers = self.actors.iter().filter(|actor| actor.proxy == proxy && actor.vm.is_some());
        let mut secrets = workers.flat_map(|actor| &actor.roots).map(|root| root.secret);
        if marker.is_some() && secrets.all(|secret| secret == marker) {
            self.proxies[proxy].is_split = false;
            // The next request tells where counters are from now on.
            self.proxies[proxy].secret = None;
        }
    }
}
