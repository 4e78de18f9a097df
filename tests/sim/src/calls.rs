//! The host calls that the filter's module makes, and the statuses that answer them.

/// A host call. What the SDK links but the filter never calls is `Unknown`, and calling it is a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Call {
    Log,
    SetTickPeriod,
    Time,
    Buffer,
    Headers,
    Header,
    AddHeader,
    GetProperty,
    SetProperty,
    GetShared,
    SetShared,
    Reply,
    DefineMetric,
    IncrementMetric,
    Random,
    Clock,
    Http,
    Continue,
    SetContext,
    Unknown,
}

impl Call {
    /// The call behind an import. `None` if the host does not have it: then the module does not load.
    pub(crate) fn of_import(module: &str, name: &str) -> Option<Self> {
        match (module, name) {
            ("env", "proxy_log") => Some(Self::Log),
            ("env", "proxy_set_tick_period_milliseconds") => Some(Self::SetTickPeriod),
            ("env", "proxy_get_current_time_nanoseconds") => Some(Self::Time),
            ("env", "proxy_get_buffer_bytes") => Some(Self::Buffer),
            ("env", "proxy_get_header_map_pairs") => Some(Self::Headers),
            ("env", "proxy_get_header_map_value") => Some(Self::Header),
            ("env", "proxy_add_header_map_value") => Some(Self::AddHeader),
            ("env", "proxy_get_property") => Some(Self::GetProperty),
            ("env", "proxy_set_property") => Some(Self::SetProperty),
            ("env", "proxy_get_shared_data") => Some(Self::GetShared),
            ("env", "proxy_set_shared_data") => Some(Self::SetShared),
            ("env", "proxy_send_local_response") => Some(Self::Reply),
            ("env", "proxy_define_metric") => Some(Self::DefineMetric),
            ("env", "proxy_increment_metric") => Some(Self::IncrementMetric),
            ("env", "proxy_http_call") => Some(Self::Http),
            ("env", "proxy_continue_stream") => Some(Self::Continue),
            ("env", "proxy_set_effective_context") => Some(Self::SetContext),
            ("wasi_snapshot_preview1", "random_get") => Some(Self::Random),
            ("wasi_snapshot_preview1", "clock_time_get") => Some(Self::Clock),
            // Its arity differs between hosts, and Kong's worker dies of it at start.
            ("env", "proxy_get_log_level") => None,
            ("env", _) => Some(Self::Unknown),
            _ => None,
        }
    }

    /// The name in traces and tables.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Log => "log",
            Self::SetTickPeriod => "set_tick_period",
            Self::Time => "time",
            Self::Buffer => "buffer",
            Self::Headers => "headers",
            Self::Header => "header",
            Self::AddHeader => "add_header",
            Self::GetProperty => "get_property",
            Self::SetProperty => "set_property",
            Self::GetShared => "get",
            Self::SetShared => "set",
            Self::Reply => "reply",
            Self::DefineMetric => "define_metric",
            Self::IncrementMetric => "increment_metric",
            Self::Random => "random",
            Self::Clock => "clock",
            Self::Http => "http_call",
            Self::Continue => "continue",
            Self::SetContext => "set_context",
            Self::Unknown => "unknown",
        }
    }
}

/// What a host call returns.
pub(crate) type Status = u32;

pub(crate) const OK: Status = 0;
pub(crate) const NOT_FOUND: Status = 1;
pub(crate) const BAD_ARGUMENT: Status = 2;
pub(crate) const CAS_MISMATCH: Status = 8;
pub(crate) const INTERNAL_FAILURE: Status = 10;
/// No status: what the host is asked for makes it trap.
pub(crate) const TRAPS: Status = Status::MAX;

/// Everything that a host call can return but Ok; the last is one that no ABI knows.
pub(crate) const FAILURES: [Status; 13] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 77];
