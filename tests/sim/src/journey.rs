//! Requests on their way. Those that have ended are forgotten: a run may have a million.

use crate::calls::Call;
use crate::spec::Request;
use std::collections::BTreeMap;
use std::ops::{Index, IndexMut};

/// How far a request has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// No proxy was there to take it.
    Unserved,
    Waiting,
    Admitted,
    Denied,
    /// Its client left while it waited.
    Left,
    /// Its VM died before it was decided.
    Died,
}

/// A request on its way.
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub(crate) struct Journey {
    pub(crate) request: Request,
    pub(crate) actor: usize,
    pub(crate) generation: u64,
    pub(crate) context: u32,
    pub(crate) root: u32,
    pub(crate) config: usize,
    pub(crate) fate: Fate,
    pub(crate) read_ms: Option<u64>,
    pub(crate) first_write_step: Option<u64>,
    pub(crate) is_faulty: bool,
    /// Whether the clock stepped while it was under way: it brings the time of before along.
    pub(crate) is_out_of_time: bool,
    pub(crate) mismatches: BTreeMap<Vec<u8>, u32>,
    pub(crate) writes: BTreeMap<Vec<u8>, u32>,
    pub(crate) is_answered: bool,
    /// Whether it has made a call and not gone on since.
    pub(crate) has_called: bool,
    /// When it came to the filter, in true time, and at which step.
    pub(crate) began_ns: u64,
    pub(crate) began_step: u64,
    /// Whether the last call to the counter had failed then.
    pub(crate) began_without_counter: bool,
    /// Whether it waited for a call that could not even be made: an answer in the same callback was not for it.
    pub(crate) is_untold: bool,
    /// Whether it is held.
    pub(crate) is_paused: bool,
    /// The body that it was answered with, and the headers that its response got.
    pub(crate) body: Vec<u8>,
    pub(crate) response_headers: Vec<(String, String)>,
    pub(crate) access_log: String,
    /// What it cost so far.
    pub(crate) cost: Cost,
}

impl Journey {
    pub(crate) fn new(request: Request, actor: usize, generation: u64, fate: Fate) -> Self {
        Self {
            request,
            actor,
            generation,
            context: 0,
            root: 0,
            config: 0,
            fate,
            read_ms: None,
            first_write_step: None,
            is_faulty: false,
            is_out_of_time: false,
            mismatches: BTreeMap::new(),
            writes: BTreeMap::new(),
            is_answered: false,
            has_called: false,
            began_ns: 0,
            began_step: 0,
            began_without_counter: false,
            is_untold: false,
            is_paused: false,
            body: Vec::new(),
            response_headers: Vec::new(),
            access_log: String::new(),
            cost: Cost::default(),
        }
    }
}

/// Host calls and fuel of one request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cost {
    pub(crate) request_calls: BTreeMap<Call, u64>,
    pub(crate) response_calls: BTreeMap<Call, u64>,
    pub(crate) fuel: u64,
}

/// All requests, by their numbers.
#[derive(Default)]
pub(crate) struct Journeys {
    count: usize,
    under_way: BTreeMap<usize, Journey>,
    /// Those that have ended, if somebody wants to know.
    ended: Option<BTreeMap<usize, Journey>>,
}

impl Journeys {
    /// Keeps those that end from now on.
    pub(crate) fn keep_ended(&mut self) {
        self.ended.get_or_insert_default();
    }

    pub(crate) fn begin(&mut self, journey: Journey) -> usize {
        self.under_way.insert(self.count, journey);
        self.count += 1;
        self.count - 1
    }

    pub(crate) fn end(&mut self, request: usize) {
        if let (Some(journey), Some(ended)) = (self.under_way.remove(&request), &mut self.ended) {
            ended.insert(request, journey);
        }
    }

    /// `None` if it has ended.
    pub(crate) fn get(&self, request: usize) -> Option<&Journey> {
        self.under_way.get(&request)
    }

    pub(crate) fn under_way(&self) -> impl Iterator<Item = (usize, &Journey)> {
        self.under_way.iter().map(|(request, journey)| (*request, journey))
    }

    /// Everything that was kept and all that is under way, in order.
    pub(crate) fn into_all(self) -> impl DoubleEndedIterator<Item = Journey> {
        let mut all = self.ended.unwrap_or_default();
        all.extend(self.under_way);
        all.into_values()
    }
}

impl Index<usize> for Journeys {
    type Output = Journey;

    fn index(&self, request: usize) -> &Journey {
        &self.under_way[&request]
    }
}

impl IndexMut<usize> for Journeys {
    fn index_mut(&mut self, request: usize) -> &mut Journey {
        self.under_way.get_mut(&request).expect("a request that has ended is not touched again")
    }
}
