//! A host for tests. Several share their data: they are VMs of one proxy.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use tidegate_filter::{Engine, Host, Reply, Status, Verdict};

/// A host call, by its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Call {
    Configuration,
    Property,
    Random,
    DefineCounter,
    Headers,
    ResponseHeaders,
    Time,
    Monotonic,
    Get,
    Set,
    SetProperty,
    Reply,
    AddResponseHeader,
    AddToCounter,
    Dispatch,
    AnswerHeaders,
    AnswerBody,
    Enter,
    Resume,
}

pub(crate) const ALL_CALLS: [Call; 19] = [
    Call::Configuration,
    Call::Property,
    Call::Random,
    Call::DefineCounter,
    Call::Headers,
    Call::ResponseHeaders,
    Call::Time,
    Call::Monotonic,
    Call::Get,
    Call::Set,
    Call::SetProperty,
    Call::Reply,
    Call::AddResponseHeader,
    Call::AddToCounter,
    Call::Dispatch,
    Call::AnswerHeaders,
    Call::AnswerBody,
    Call::Enter,
    Call::Resume,
];

/// How shared data behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flavour {
    /// Version 0 overwrites.
    Envoy,
    /// Version 0 creates only if absent.
    Kong,
}

pub(crate) type SharedData = BTreeMap<Vec<u8>, (Vec<u8>, u32)>;

/// A fault on order: this kind of call gives this status, after so many that do not.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fault {
    pub(crate) call: Call,
    pub(crate) status: Status,
    pub(crate) after: usize,
    pub(crate) times: usize,
}

type BeforeSet = Box<dyn FnMut(&RefCell<SharedData>, &[u8])>;

pub(crate) struct MockHost {
    pub(crate) flavour: Flavour,
    pub(crate) data: Rc<RefCell<SharedData>>,
    pub(crate) metrics: Rc<RefCell<BTreeMap<String, u64>>>,
    pub(crate) now_ms: Cell<u64>,
    pub(crate) monotonic_ms: Cell<u64>,
    /// What random bytes are made of.
    pub(crate) random: Cell<u8>,
    /// Calls to other services that are under way: the number, where to, and the body.
    pub(crate) sent: RefCell<Vec<(u32, String, Vec<u8>)>>,
    next_token: Cell<u32>,
    /// The answer at hand: the serialised headers and the body.
    pub(crate) answer: RefCell<(Vec<u8>, Vec<u8>)>,
    /// The context that calls are about, and those that were resumed.
    pub(crate) context: Cell<u32>,
    pub(crate) resumed: RefCell<Vec<u32>>,
    /// Contexts that got a local response, in the order of `replies`.
    pub(crate) answered: RefCell<Vec<u32>>,
    pub(crate) config: RefCell<Vec<u8>>,
    pub(crate) plugin_name: RefCell<String>,
    pub(crate) client: RefCell<String>,
    /// Other properties, by their path joined with dots.
    pub(crate) properties: RefCell<BTreeMap<String, Vec<u8>>>,
    /// The serialised headers of the next request.
    pub(crate) headers: RefCell<Vec<u8>>,
    /// The serialised headers of the next response.
    pub(crate) response: RefCell<Vec<u8>>,
    pub(crate) calls: RefCell<Vec<Call>>,
    pub(crate) fault: Cell<Option<Fault>>,
    /// Runs before a write takes place: another VM that gets there first.
    pub(crate) before_set: RefCell<Option<BeforeSet>>,
    pub(crate) replies: RefCell<Vec<Reply>>,
    pub(crate) access_log: RefCell<Vec<String>>,
    pub(crate) response_headers: RefCell<Vec<(String, String)>>,
    names: RefCell<Vec<String>>,
}

/// A time that is a whole number of hours.
pub(crate) const T0: u64 = 1_700_002_800_000;

impl MockHost {
    pub(crate) fn new(config: &str) -> Self {
        Self {
            flavour: Flavour::Envoy,
            data: Rc::default(),
            metrics: Rc::default(),
            now_ms: Cell::new(T0),
            monotonic_ms: Cell::new(1_000_000),
            random: Cell::new(0x5a),
            sent: RefCell::default(),
            next_token: Cell::new(1),
            answer: RefCell::default(),
            context: Cell::new(0),
            resumed: RefCell::default(),
            answered: RefCell::default(),
            config: RefCell::new(config.into()),
            plugin_name: RefCell::new("tidegate".into()),
            client: RefCell::new("10.0.0.1:4711".into()),
            properties: RefCell::default(),
            headers: RefCell::default(),
            response: RefCell::default(),
            calls: RefCell::default(),
            fault: Cell::new(None),
            before_set: RefCell::new(None),
            replies: RefCell::default(),
            access_log: RefCell::default(),
            response_headers: RefCell::default(),
            names: RefCell::default(),
        }
    }

    /// Another VM of the same proxy.
    pub(crate) fn sibling(&self, config: &str) -> Self {
        let mut sibling = Self::new(config);
        sibling.flavour = self.flavour;
        sibling.data = Rc::clone(&self.data);
        sibling.metrics = Rc::clone(&self.metrics);
        sibling.now_ms.set(self.now_ms.get());
        sibling.monotonic_ms.set(self.monotonic_ms.get());
        sibling
    }

    pub(crate) fn engine(&self) -> Engine {
        match Engine::configure(self) {
            Ok(engine) => engine,
            Err(refusal) => panic!("{refusal}"),
        }
    }

    pub(crate) fn advance(&self, ms: u64) {
        self.now_ms.set(self.now_ms.get() + ms);
        self.monotonic_ms.set(self.monotonic_ms.get() + ms);
    }

    /// The next request: `GET /` with these headers.
    pub(crate) fn bring(&self, headers: &[(&str, &[u8])]) {
        self.bring_to("GET", "/", headers);
    }

    pub(crate) fn bring_to(&self, method: &str, path: &str, headers: &[(&str, &[u8])]) {
        let pseudo: [(&str, &[u8]); 2] = [(":method", method.as_bytes()), (":path", path.as_bytes())];
        *self.headers.borrow_mut() = serialise(&[pseudo.as_slice(), headers].concat());
    }

    /// The next response.
    pub(crate) fn respond(&self, status: &str, headers: &[(&str, &[u8])]) {
        let status: [(&str, &[u8]); 1] = [(":status", status.as_bytes())];
        *self.response.borrow_mut() = serialise(&[status.as_slice(), headers].concat());
    }

    /// Whether a request of `key` is admitted.
    pub(crate) fn admits(&self, engine: &mut Engine, key: &str) -> bool {
        self.bring(&[("x-api-key", key.as_bytes())]);
        matches!(engine.on_request(self, 1), Verdict::Continue(_))
    }

    /// How many of `count` requests of `key` are admitted.
    pub(crate) fn admitted(&self, engine: &mut Engine, key: &str, count: usize) -> usize {
        (0..count).filter(|_| self.admits(engine, key)).count()
    }

    /// The calls made since this was last asked.
    pub(crate) fn take_calls(&self) -> Vec<Call> {
        std::mem::take(&mut *self.calls.borrow_mut())
    }

    pub(crate) fn metric(&self, name: &str) -> u64 {
        self.metrics.borrow().get(name).copied().unwrap_or(0)
    }

    pub(crate) fn last_reply(&self) -> Reply {
        self.replies.borrow().last().cloned().expect("a reply was sent")
    }

    fn called(&self, call: Call) -> Result<(), Status> {
        self.calls.borrow_mut().push(call);
        let Some(mut fault) = self.fault.get().filter(|fault| fault.call == call) else { return Ok(()) };
        if fault.after > 0 {
            fault.after -= 1;
            self.fault.set(Some(fault));
            return Ok(());
        }
        if fault.times == 0 {
            return Ok(());
        }
        fault.times -= 1;
        self.fault.set(Some(fault));
        Err(fault.status)
    }
}

/// Replaces a value as the host does, and raises its version.
pub(crate) fn overwrite(data: &RefCell<SharedData>, key: &[u8], value: &[u8]) {
    let mut data = data.borrow_mut();
    let version = data.get(key).map_or(1, |(_, version)| version + 1);
    data.insert(key.to_vec(), (value.to_vec(), version));
}

pub(crate) fn serialise(pairs: &[(&str, &[u8])]) -> Vec<u8> {
    let length = |length: usize| u32::try_from(length).expect("short").to_le_bytes();
    let mut bytes = length(pairs.len()).to_vec();
    for (name, value) in pairs {
        bytes.extend(length(name.len()));
        bytes.extend(length(value.len()));
    }
    for (name, value) in pairs {
        bytes.extend([name.as_bytes(), b"\0", value, b"\0"].concat());
    }
    bytes
}

impl Host for MockHost {
    fn now_ns(&self) -> Result<u64, Status> {
        self.called(Call::Time)?;
        Ok(self.now_ms.get().saturating_mul(1_000_000))
    }

    fn monotonic_ns(&self) -> Result<u64, Status> {
        self.called(Call::Monotonic)?;
        Ok(self.monotonic_ms.get().saturating_mul(1_000_000))
    }

    fn call(&self, call: &tidegate_filter::Call<'_>) -> Result<u32, Status> {
        self.called(Call::Dispatch)?;
        let token = self.next_token.replace(self.next_token.get() + 1);
        self.sent.borrow_mut().push((token, call.upstream.to_owned(), call.body.to_vec()));
        Ok(token)
    }

    fn answer_headers(&self) -> Result<Vec<u8>, Status> {
        self.called(Call::AnswerHeaders)?;
        Ok(self.answer.borrow().0.clone())
    }

    fn answer_body(&self) -> Result<Vec<u8>, Status> {
        self.called(Call::AnswerBody)?;
        Ok(self.answer.borrow().1.clone())
    }

    fn enter(&self, context: u32) -> Result<(), Status> {
        self.called(Call::Enter)?;
        self.context.set(context);
        Ok(())
    }

    fn resume(&self) -> Result<(), Status> {
        self.called(Call::Resume)?;
        self.resumed.borrow_mut().push(self.context.get());
        Ok(())
    }

    fn configuration(&self) -> Result<Vec<u8>, Status> {
        self.called(Call::Configuration)?;
        Ok(self.config.borrow().clone())
    }

    fn request_headers(&self) -> Result<Vec<u8>, Status> {
        self.called(Call::Headers)?;
        Ok(self.headers.borrow().clone())
    }

    fn response_headers(&self) -> Result<Vec<u8>, Status> {
        self.called(Call::ResponseHeaders)?;
        Ok(self.response.borrow().clone())
    }

    fn property(&self, path: &[&str]) -> Result<Vec<u8>, Status> {
        self.called(Call::Property)?;
        match path {
            ["plugin_name"] => Ok(self.plugin_name.borrow().clone().into_bytes()),
            ["source", "address"] => Ok(self.client.borrow().clone().into_bytes()),
            _ => self.properties.borrow().get(&path.join(".")).cloned().ok_or(Status::NotFound),
        }
    }

    fn set_property(&self, name: &str, value: &[u8]) -> Result<(), Status> {
        self.called(Call::SetProperty)?;
        let text = String::from_utf8(value.to_vec()).expect("the access log is text");
        self.access_log.borrow_mut().push(format!("{name}: {text}"));
        Ok(())
    }

    fn shared(&self, key: &[u8]) -> Result<(Vec<u8>, u32), Status> {
        self.called(Call::Get)?;
        self.data.borrow().get(key).cloned().ok_or(Status::NotFound)
    }

    fn set_shared(&self, key: &[u8], value: &[u8], cas: u32) -> Result<(), Status> {
        self.called(Call::Set)?;
        if let Some(before_set) = self.before_set.borrow_mut().as_mut() {
            before_set(&self.data, key);
        }
        let version = self.data.borrow().get(key).map(|(_, version)| *version);
        let matches = match (self.flavour, version) {
            (Flavour::Envoy, Some(version)) => cas == 0 || cas == version,
            (Flavour::Envoy, None) => true,
            (Flavour::Kong, Some(version)) => cas == version,
            (Flavour::Kong, None) => cas == 0,
        };
        if !matches {
            return Err(Status::CasMismatch);
        }
        overwrite(&self.data, key, value);
        Ok(())
    }

    fn reply(&self, reply: &Reply) -> Result<(), Status> {
        self.called(Call::Reply)?;
        self.replies.borrow_mut().push(reply.clone());
        self.answered.borrow_mut().push(self.context.get());
        Ok(())
    }

    fn add_response_header(&self, name: &str, value: &str) -> Result<(), Status> {
        self.called(Call::AddResponseHeader)?;
        self.response_headers.borrow_mut().push((name.into(), value.into()));
        Ok(())
    }

    fn define_counter(&self, name: &str) -> Result<u32, Status> {
        self.called(Call::DefineCounter)?;
        self.metrics.borrow_mut().entry(name.into()).or_insert(0);
        self.names.borrow_mut().push(name.into());
        Ok(u32::try_from(self.names.borrow().len() - 1).expect("few metrics"))
    }

    fn add_to_counter(&self, id: u32, amount: u64) -> Result<(), Status> {
        self.called(Call::AddToCounter)?;
        assert!(amount > 0, "hosts refuse an offset of 0");
        let name = self.names.borrow()[usize::try_from(id).expect("small")].clone();
        *self.metrics.borrow_mut().entry(name).or_insert(0) += amount;
        Ok(())
    }

    fn random(&self, bytes: &mut [u8]) -> Result<(), Status> {
        self.called(Call::Random)?;
        bytes.fill(self.random.get());
        Ok(())
    }
}
