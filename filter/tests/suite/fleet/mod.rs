//! Rules of the fleet, on mock hosts and a counter made of the core.

mod bounds;
mod counter;
mod exact;
mod failure;
mod lease;
mod sync;

use crate::mock::{MockHost, T0};
pub(crate) use counter::{FakeCounter, fail, land, see_to};
use std::rc::Rc;
use tidegate_filter::{Engine, Slip, Verdict};

/// A config with one rule of ten per hour for each key, and whatever `global` and more says.
pub(crate) fn config(global: &str, more: &str) -> String {
    format!(
        r#"{{ "namespace": "edge", "counter": {{ "cluster": "tidegate", "timeout": "50ms" }},
            "rules": [
              {{ "name": "api", "key": [{{ "header": "x-api-key" }}],
                 "limits": [{{ "requests": 10, "per": "1h", "algorithm": "fixed_window" }}],
                 "global": {global} }}{more} ] }}"#
    )
}

/// One VM of a proxy, with a counter that all share.
pub(crate) struct Vm {
    pub(crate) host: MockHost,
    pub(crate) engine: Engine,
    next_stream: u32,
}

/// What became of a request so far.
pub(crate) enum Came {
    Through,
    Denied,
    Waits(u32, Rc<Slip>),
}

/// A proxy of its own: it draws other numbers than those before.
pub(crate) fn proxy(config: &str) -> MockHost {
    thread_local!(static PROXIES: std::cell::Cell<u8> = const { std::cell::Cell::new(0) });
    let host = MockHost::new(config);
    host.random.set(PROXIES.replace(PROXIES.get() + 1));
    host
}

impl Vm {
    /// The only VM so far of a new proxy.
    pub(crate) fn new(config: &str) -> Self {
        Self::on(proxy(config))
    }

    pub(crate) fn on(host: MockHost) -> Self {
        let engine = host.engine();
        Self { host, engine, next_stream: 100 }
    }

    /// Another VM of the same proxy.
    pub(crate) fn sibling(&self) -> Self {
        let config = String::from_utf8(self.host.config.borrow().clone()).expect("text");
        Self::on(self.host.sibling(&config))
    }

    pub(crate) fn request(&mut self, key: &str) -> Came {
        self.host.bring(&[("x-api-key", key.as_bytes())]);
        self.next_stream += 1;
        match self.engine.on_request(&self.host, self.next_stream) {
            Verdict::Continue(_) => Came::Through,
            Verdict::Answered => Came::Denied,
            Verdict::Wait(slip) => Came::Waits(self.next_stream, slip),
        }
    }

    /// Whether a request is admitted, at once or when the counter has answered.
    pub(crate) fn admits(&mut self, key: &str, counter: &mut FakeCounter) -> bool {
        match self.request(key) {
            Came::Through => true,
            Came::Denied => false,
            Came::Waits(stream, _slip) => {
                counter.serve(&self.host, &mut self.engine);
                self.came_through(stream)
            }
        }
    }

    /// Whether a request that waited was resumed, and not answered.
    pub(crate) fn came_through(&self, stream: u32) -> bool {
        let is_resumed = self.host.resumed.borrow().contains(&stream);
        let is_answered = self.host.answered.borrow().contains(&stream);
        assert!(is_resumed != is_answered, "one of the two");
        is_resumed
    }

    /// Time passes, here and at the counter, and the VM ticks once at its end.
    pub(crate) fn tick(&mut self, ms: u64, counter: &mut FakeCounter) {
        counter.now_ms += ms;
        self.tick_too(ms, counter);
    }

    /// The same when the counter's time has passed already, with another VM's.
    pub(crate) fn tick_too(&mut self, ms: u64, counter: &mut FakeCounter) {
        self.host.advance(ms);
        self.engine.on_tick(&self.host);
        see_to(&self.host, &mut self.engine);
        counter.serve(&self.host, &mut self.engine);
    }

    /// A metric as ticks hand it over, by a host whose calls come to nothing.
    pub(crate) fn flushed(&mut self, name: &str) -> u64 {
        for _ in 0..10 {
            self.engine.on_tick(&self.host);
        }
        self.host.metric(name)
    }

    pub(crate) fn metric(&mut self, name: &str) -> u64 {
        self.engine.on_end(&self.host);
        self.host.metric(name)
    }
}

pub(crate) fn counter() -> FakeCounter {
    FakeCounter::new(T0)
}
