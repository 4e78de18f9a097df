//! How batches and answers are written in JSON: types that are only described, and that make the schemas of the
//! counter's `OpenAPI` document.

use schemars::generate::SchemaSettings;
use schemars::transform::{RecursiveTransform, Transform};
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value};

use super::{
    GROUPS_MAX, KEY_BYTES_MAX, N_MAX, NAMESPACE_DEFAULT, NUMBER_MAX, SEQUENCES_KEPT, TAKES_MAX, WAIT_MS_MAX,
};
use crate::form::{LimitForm, NAME_PATTERN, PLAIN_PATTERN};
use crate::rule::WhenFull;

const PROXY_PATTERN: &str = "^[0-9a-fA-F]{16}$";
const STATE_PATTERN: &str = "^([0-9a-f]{2})+$";
const EPOCH_PATTERN: &str = "^[0-9a-f]{16}$";

/// The schemas of `Batch`, `Answer` and all that they are made of, by name. They refer to each other below
/// `prefix`, such as `#/components/schemas`.
pub fn schemas(prefix: &str) -> Map<String, Value> {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.definitions_path = prefix.trim_start_matches('#').to_owned().into();
        settings.meta_schema = None;
    });
    let mut generator: SchemaGenerator = settings.into_generator();
    generator.subschema_for::<BatchForm>();
    generator.subschema_for::<AnswerForm>();
    let mut definitions = generator.take_definitions(true);
    for definition in definitions.values_mut() {
        if let Ok(schema) = definition.try_into() {
            RecursiveTransform(crate::schema::tidy).transform(schema);
        }
    }
    definitions
}

/// Groups of takes that travel together. They are judged one after the other.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields, rename = "Batch")]
#[expect(dead_code, reason = "a form is only described, never built")]
struct BatchForm {
    /// Keeps the counters of two fleets apart: letters, digits, `.`, `_` and `-`.
    #[schemars(default, with = "String", regex(pattern = PLAIN_PATTERN), extend("default" = NAMESPACE_DEFAULT))]
    namespace: Option<()>,
    /// Who sends the batch, and which of its batches it is. One that was sent before is not charged again and gets
    /// the answer that it got then. Without it a retry counts again.
    #[schemars(default, with = "SenderForm")]
    sender: Option<()>,
    /// For how many milliseconds the caller waits. A batch that is older when its turn comes is dropped.
    #[schemars(default, with = "u32", range(min = 1, max = WAIT_MS_MAX))]
    wait_ms: Option<()>,
    /// Whether the answer is to tell the counters' states too.
    #[schemars(default, with = "bool", extend("default" = false))]
    states: Option<()>,
    /// What is asked for. All groups together have at most 1024 takes.
    #[schemars(length(max = GROUPS_MAX))]
    groups: Vec<GroupForm>,
}

/// Who sends a batch. The last 32 sequences of each proxy and VM are remembered, for a minute.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields, rename = "Sender")]
#[expect(dead_code, reason = "a form is only described, never built")]
struct SenderForm {
    /// A number that the proxy drew when it started, as 16 hex digits.
    #[schemars(regex(pattern = PROXY_PATTERN))]
    proxy: String,
    /// The number of the VM in that proxy.
    #[schemars(range(max = u32::MAX))]
    vm: u32,
    /// The number of the batch among the VM's.
    #[schemars(range(max = NUMBER_MAX))]
    sequence: u64,
}
const _: () = assert!(SEQUENCES_KEPT == 32, "the schema says so");

/// Takes of which all are made or none. Each sees what those before it do.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields, rename = "Group")]
#[expect(dead_code, reason = "a form is only described, never built")]
struct GroupForm {
    /// Only one with the manner `all` can fail the group.
    #[schemars(length(min = 1, max = TAKES_MAX))]
    takes: Vec<TakeForm>,
}
const _: () = assert!(TAKES_MAX == 1_024, "the schema says so");

/// Asks one limit of one key for an amount, or gives it back.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields, rename = "Take", extend("not" = { "required": ["manner", "refund"] }))]
#[expect(dead_code, reason = "a form is only described, never built")]
struct TakeForm {
    /// The name of the rule that the limit belongs to.
    #[schemars(regex(pattern = NAME_PATTERN))]
    rule: String,
    /// The limit, as in the config language.
    limit: LimitForm,
    /// Who is counted: at most 256 bytes of UTF-8.
    #[schemars(length(max = KEY_BYTES_MAX))]
    key: String,
    /// How much.
    #[schemars(default, with = "u64", range(min = 1, max = N_MAX), extend("default" = 1))]
    n: Option<()>,
    /// What to do when there is less.
    #[schemars(default, with = "MannerForm", extend("default" = "all"))]
    manner: Option<()>,
    /// The receipt of the take that is given back. Not together with `manner`.
    #[schemars(default, with = "u64", range(max = NUMBER_MAX))]
    refund: Option<()>,
    /// Where a key begins that finds its place in a bounded store taken.
    #[schemars(default, with = "WhenFull", extend("default" = "strict"))]
    when_full: Option<()>,
}
const _: () = assert!(KEY_BYTES_MAX == 256, "the schema says so");

/// What a take does when there is less than it asks for.
#[derive(JsonSchema)]
#[schemars(rename = "Manner", rename_all = "snake_case")]
#[expect(dead_code, reason = "a form is only described, never built")]
enum MannerForm {
    /// All or nothing.
    All,
    /// As much as there is.
    Some,
    /// All, into debt if need be.
    Force,
}

/// What came of a batch.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields, rename = "Answer")]
#[expect(dead_code, reason = "a form is only described, never built")]
struct AnswerForm {
    /// The counter's clock, in milliseconds since the Unix epoch.
    now_ms: u64,
    /// A number that changes when the counter has lost what it counted, as 16 hex digits.
    #[schemars(regex(pattern = EPOCH_PATTERN))]
    epoch: String,
    /// How many proxies of this namespace sent a batch lately.
    #[schemars(range(min = 1))]
    proxies: u32,
    /// Rules that are switched off.
    rules_off: Vec<String>,
    /// As many as the batch had.
    groups: Vec<GroupAnswerForm>,
}

/// What came of a group.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields, rename = "GroupAnswer")]
#[expect(dead_code, reason = "a form is only described, never built")]
struct GroupAnswerForm {
    /// As many as the group had.
    takes: Vec<TakeAnswerForm>,
    /// If the batch asked for them, the counters' states after the group, one for each take; null if nothing is kept.
    #[schemars(default, with = "Vec<Option<StateForm>>")]
    states: Option<()>,
}

/// A counter's state: its kind and contents as hex digits. They mean what they mean to the algorithm.
#[derive(JsonSchema)]
#[schemars(transparent, rename = "State")]
#[expect(dead_code, reason = "a form is only described, never built")]
struct StateForm(#[schemars(regex(pattern = STATE_PATTERN))] String);

/// What came of a take.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields, rename = "TakeAnswer")]
#[expect(dead_code, reason = "a form is only described, never built")]
struct TakeAnswerForm {
    /// How much was taken; 0 of all takes of a group that failed, and of a refund.
    taken: u64,
    /// How much is left.
    remaining: u64,
    /// How long until the whole limit is free again if nothing more is taken.
    reset_ms: u64,
    /// 0 if this take was made or would have been, else how long to wait; null if it asks for more than the limit
    /// ever has.
    retry_after_ms: Option<u64>,
    /// What a refund of this take must name.
    receipt: u64,
}
