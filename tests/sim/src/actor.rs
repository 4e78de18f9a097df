//! A thread of a proxy with its VM: what it has to do, and what it is doing.

use crate::identity::Secret;
use crate::network::PendingCall;
use crate::vm::Vm;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// What a VM is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Tries a config before any other VM sees it.
    Canary,
    /// The main thread's: it ticks, and has no requests.
    Main,
    Worker,
}

/// A callback to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Job {
    Initialize,
    /// Not a callback of the ABI: chooses a bug in a test build.
    Plant,
    CreateRoot {
        root: u32,
    },
    StartVm {
        root: u32,
    },
    Configure {
        root: u32,
    },
    Tick {
        root: u32,
    },
    DeleteRoot {
        root: u32,
    },
    /// The answer to a call has come.
    CallResponse {
        token: u32,
    },
    CreateStream {
        request: usize,
    },
    Request {
        request: usize,
    },
    Response {
        request: usize,
    },
    DeleteStream {
        request: usize,
    },
    /// The client of a request that waits is gone.
    Leave {
        request: usize,
    },
}

impl Job {
    pub(crate) const fn request(self) -> Option<usize> {
        match self {
            Self::CreateStream { request }
            | Self::Request { request }
            | Self::Response { request }
            | Self::DeleteStream { request }
            | Self::Leave { request } => Some(request),
            _ => None,
        }
    }
}

/// A root context: one plugin with one config.
#[derive(Clone, Debug)]
pub(crate) struct Root {
    pub(crate) id: u32,
    /// The number of its config.
    pub(crate) config: usize,
    pub(crate) is_ready: bool,
    pub(crate) has_tick: bool,
    /// How many tick periods it has asked for: the last one holds.
    pub(crate) periods: u32,
    /// The placement secret that it found in the marker.
    pub(crate) secret: Option<Secret>,
}

pub(crate) struct Actor {
    pub(crate) proxy: usize,
    /// Its number in the proxy, for traces.
    pub(crate) number: usize,
    pub(crate) role: Role,
    pub(crate) vm: Option<Vm>,
    pub(crate) roots: Vec<Root>,
    pub(crate) jobs: VecDeque<Job>,
    pub(crate) running: Option<Job>,
    /// The context that answers and resumptions are about.
    pub(crate) effective: u32,
    /// Calls to other services that are under way.
    pub(crate) calls: BTreeMap<u32, PendingCall>,
    pub(crate) next_token: u32,
    /// Requests that the running callback resumed or answered, though it is not theirs.
    pub(crate) settled: Vec<(usize, u64)>,
    /// Whether the answer that the running callback is about is a good one.
    pub(crate) is_told: bool,
    /// The roots whose last call to the counter failed.
    pub(crate) lost_counter: BTreeSet<u32>,
    /// The roots that the counter has answered at all: until then a VM may know no clock but its own.
    pub(crate) has_heard: BTreeSet<u32>,
    /// When each root last found it again.
    pub(crate) found_counter_ns: BTreeMap<u32, u64>,
    /// Slots that the running callback was told were missing, or of which it got another's value: its write
    /// empties them.
    pub(crate) misread: BTreeSet<Vec<u8>>,
    pub(crate) next_context: u32,
    /// Raised whenever the VM is replaced, so that what was meant for the old one is dropped.
    pub(crate) generation: u64,
    /// Since when it has been able to run.
    pub(crate) waiting_since_ns: u64,
}

impl Actor {
    pub(crate) fn new(proxy: usize, number: usize, role: Role) -> Self {
        Self {
            proxy,
            number,
            role,
            vm: None,
            roots: Vec::new(),
            jobs: VecDeque::new(),
            running: None,
            effective: 0,
            calls: BTreeMap::new(),
            next_token: 1,
            settled: Vec::new(),
            is_told: false,
            lost_counter: BTreeSet::new(),
            has_heard: BTreeSet::new(),
            found_counter_ns: BTreeMap::new(),
            misread: BTreeSet::new(),
            next_context: 1,
            generation: 0,
            waiting_since_ns: 0,
        }
    }

    pub(crate) fn can_run(&self) -> bool {
        self.vm.is_some() && (self.running.is_some() || !self.jobs.is_empty())
    }

    pub(crate) fn new_context(&mut self) -> u32 {
        self.next_context += 1;
        self.next_context - 1
    }

    /// The root that new requests get: the newest that is ready, or else the one that is about to be.
    pub(crate) fn root_for_requests(&self) -> Option<&Root> {
        self.roots.iter().rev().find(|root| root.is_ready).or(self.roots.last())
    }

    pub(crate) fn root(&mut self, id: u32) -> Option<&mut Root> {
        self.roots.iter_mut().find(|root| root.id == id)
    }

    pub(crate) fn label(&self) -> String {
        let role = match self.role {
            Role::Canary => "canary".to_owned(),
            Role::Main => "main".to_owned(),
            Role::Worker => format!("w{}", self.number),
        };
        format!("p{}/{role}", self.proxy)
    }
}
