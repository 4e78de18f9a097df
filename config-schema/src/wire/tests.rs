use super::*;
use crate::limit::Align;
use proptest::prelude::*;
use serde::Serialize;
use std::collections::BTreeSet;
use tidegate_core::{Limit, Window};
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

const FULL: &str = r#"{
  "namespace": "edge",
  "sender": { "proxy": "5f0c00000000000A", "vm": 3, "sequence": 41 },
  "wait_ms": 50,
  "states": true,
  "groups": [ { "takes": [
    { "rule": "login", "limit": "100/1m", "key": "ana", "n": 2, "manner": "some", "when_full": "lenient" },
    { "rule": "login", "limit": { "requests": 10, "per": "1s", "algorithm": "token_bucket", "burst": 5 }, "key": "a\u0000" },
    { "rule": "login", "limit": "100/day", "key": "", "n": 1, "refund": 29711 } ] } ] }"#;

fn full() -> Batch<'static> {
    let limit = |limit: Limit, align| RuleLimit { limit, align, is_leaky: false };
    let take = |limit, key: &'static [u8], act| Take {
        rule: "login".into(),
        limit,
        key: key.into(),
        n: NonZeroU64::MIN,
        act,
        when_full: WhenFull::Strict,
    };
    let minute = limit(Limit::sliding_window(100, 60_000).unwrap(), Align::Key);
    let bucket = limit(Limit::token_bucket(10, 1_000, 5, 0).unwrap(), Align::Key);
    let day = limit(Limit::fixed_window(100, Window::Day).unwrap(), Align::Clock);
    Batch {
        namespace: "edge".into(),
        sender: Some(Sender { proxy: 0x5f0c_0000_0000_000a, vm: 3, sequence: 41 }),
        wait_ms: Some(50),
        states: true,
        groups: vec![Group {
            takes: vec![
                Take {
                    n: NonZeroU64::new(2).unwrap(),
                    when_full: WhenFull::Lenient,
                    ..take(minute, b"ana", Act::Take(Manner::Some))
                },
                take(bucket, b"a\0", Act::Take(Manner::All)),
                take(day, b"", Act::Refund { receipt: 29_711 }),
            ],
        }],
    }
}

fn answer() -> Answer {
    let outcome =
        |taken, retry| Outcome { taken, remaining: 99, reset_ms: 60_000, retry, receipt: 29_711 * taken };
    Answer {
        now_ms: 1_790_000_000_000,
        epoch: 0x91a4,
        proxies: 3,
        rules_off: vec!["login".to_owned(), "search".to_owned()],
        groups: vec![
            GroupAnswer {
                takes: vec![outcome(1, Retry::Now), outcome(0, Retry::After(300))],
                states: vec![Some(small_state()), None],
            },
            GroupAnswer { takes: vec![outcome(0, Retry::Never)], states: Vec::new() },
        ],
    }
}

/// 258 in window 3, 7 in the one before.
fn small_state() -> State {
    State::from_bytes(0x12, &SMALL_CONTENTS).unwrap()
}

const SMALL_CONTENTS: [u8; 14] = [3, 0, 0, 0, 2, 1, 0, 0, 0, 7, 0, 0, 0, 0];

/// Everything that is wrong with a body.
fn errors(text: &str) -> Vec<String> {
    let errors = Batch::from_json(text.as_bytes()).unwrap_err();
    errors.errors().iter().map(ToString::to_string).collect()
}

fn one_take(fields: &str) -> String {
    format!(r#"{{"groups": [{{"takes": [{{{fields}}}]}}]}}"#)
}

#[test]
fn a_batch_is_read_from_json_by_both_readers() {
    assert_eq!(batch_json::read(FULL.as_bytes()), Some(full()));
    assert_eq!(batch_walk::read(FULL.as_bytes()), Ok(full()));
}

#[test]
fn what_is_left_out_has_a_default() {
    let text = one_take(r#""rule": "login", "limit": "100/1m", "key": "ana""#);
    let batch = Batch::from_json(text.as_bytes()).unwrap();
    assert_eq!((&*batch.namespace, batch.sender, batch.wait_ms), ("default", None, None));
    assert!(!batch.states);
    let take = &batch.groups[0].takes[0];
    assert_eq!((take.n.get(), take.act, take.when_full), (1, Act::Take(Manner::All), WhenFull::Strict));
    assert!(Batch::from_json(br#"{"groups": []}"#).unwrap().groups.is_empty());
}

#[test]
fn every_error_has_its_place() {
    let cases = [
        ("", "body: is not valid JSON at line 1, column 0: EOF while parsing a value"),
        ("[]", "body: must be an object, not a list"),
        ("{}", "groups: is missing; give a list of groups of takes"),
        (r#"{"groups": [], "groups": []}"#, "groups: is written more than once; keep one"),
        (
            r#"{"groups": [], "wait": 5}"#,
            r#"wait: unknown field; known here: "namespace", "sender", "wait_ms", "states", "groups""#,
        ),
        (r#"{"groups": [], "wait_ms": 0}"#, "wait_ms: must be from 1 to 60000, not 0"),
        (r#"{"groups": [], "wait_ms": null}"#, "wait_ms: must be a number, not null"),
        (r#"{"groups": [], "states": null}"#, "states: must be true or false, not null"),
        (
            r#"{"groups": [], "namespace": "a b"}"#,
            r#"namespace: "a b" is not a namespace; write 1 to 64 letters, digits, ".", "_" or "-""#,
        ),
        (
            r#"{"groups": [], "sender": {"proxy": "5f", "vm": 0, "sequence": 0}}"#,
            r#"sender.proxy: "5f" is not a proxy; write a number as 16 hex digits"#,
        ),
        (
            r#"{"groups": [], "sender": {"proxy": "5f0c00000000000a", "vm": 0}}"#,
            r#"sender.sequence: is missing; give all of "proxy", "vm" and "sequence""#,
        ),
        (r#"{"groups": [{"takes": []}]}"#, "groups[0].takes: must have at least 1 item, not 0"),
    ];
    for (text, expected) in cases {
        assert_eq!(errors(text), [expected], "{text}");
    }
    let long = format!(r#""rule": "r", "limit": "1/s", "key": "{}""#, "k".repeat(257));
    let cases = [
        (
            r#""rule": "R", "limit": "1/s", "key": """#,
            r#"rule: "R" is not a name; write a small letter, then up to 63 small letters, digits, "-" or "_""#,
        ),
        (
            r#""rule": "r", "limit": "1/x", "key": """#,
            r#"limit: "1/x" is not a limit; write requests/duration, such as "100/1m" or "50/s" (units: ms, s, m, h, d; or day, month)"#,
        ),
        (
            r#""rule": "r", "limit": {"requests": 1, "per": "1ms"}, "key": """#,
            "limit.per: a window of 1 ms is too short; the shortest is 1000 ms",
        ),
        (r#""rule": "r", "limit": "1/s""#, "key: is missing; say who is counted"),
        (&long, "key: has 257 bytes; the most is 256; send a hash of it"),
        (r#""rule": "r", "limit": "1/s", "key": "", "n": 0"#, "n: must be from 1 to 68719476736, not 0"),
        (
            r#""rule": "r", "limit": "1/s", "key": "", "manner": "most""#,
            r#"manner: "most" is not known here; choose one of "all", "some", "force""#,
        ),
        (
            r#""rule": "r", "limit": "1/s", "key": "", "manner": "all", "refund": 1"#,
            "manner: does not belong to a refund; leave it out",
        ),
        (
            r#""rule": "r", "limit": "1/s", "key": "", "refund": 9007199254740992"#,
            "refund: must be from 0 to 9007199254740991, not 9007199254740992",
        ),
    ];
    for (fields, expected) in cases {
        assert_eq!(errors(&one_take(fields)), [format!("groups[0].takes[0].{expected}")], "{fields}");
    }
    assert_eq!(errors(&one_take(r#""limit": 3, "n": -1"#)).len(), 4, "all at once");
}

#[test]
fn the_number_of_groups_and_takes_is_bounded() {
    let take = r#"{"rule":"r","limit":"1/s","key":"k"}"#;
    let group = |takes: usize| format!(r#"{{"takes":[{}]}}"#, vec![take; takes].join(","));
    let batch = |groups: Vec<String>| format!(r#"{{"groups":[{}]}}"#, groups.join(","));
    assert!(Batch::from_json(batch(vec![group(4); 256]).as_bytes()).is_ok());
    assert_eq!(errors(&batch(vec![group(1); 257])), ["groups: must have at most 256 items, not 257"]);
    assert_eq!(
        errors(&batch(vec![group(1_025)])),
        ["groups[0].takes: must have at most 1024 items, not 1025"]
    );
    let both = batch(vec![group(1_024), group(1)]);
    assert_eq!(errors(&both), ["groups: have 1025 takes in all; the most is 1024"]);
}

#[test]
fn an_answer_is_written_as_json() {
    let expected = r#"{"now_ms":1790000000000,"epoch":"00000000000091a4","proxies":3,"rules_off":["login","search"],"groups":[{"takes":[{"taken":1,"remaining":99,"reset_ms":60000,"retry_after_ms":0,"receipt":29711},{"taken":0,"remaining":99,"reset_ms":60000,"retry_after_ms":300,"receipt":0}],"states":["120300000002010000000700000000",null]},{"takes":[{"taken":0,"remaining":99,"reset_ms":60000,"retry_after_ms":null,"receipt":0}]}]}"#;
    assert_eq!(String::from_utf8(answer().to_json()).unwrap(), expected);
}

/// The fields of the messages as anybody else would declare them, for the crate `postcard`.
mod mirror {
    use super::*;

    #[derive(Serialize)]
    pub(super) struct Batch<'a> {
        pub(super) namespace: &'a str,
        pub(super) sender: Option<(u64, u32, u64)>,
        pub(super) wait_ms: Option<u32>,
        pub(super) states: bool,
        pub(super) groups: Vec<Vec<Take<'a>>>,
    }
    #[derive(Serialize)]
    pub(super) struct Take<'a> {
        pub(super) rule: &'a str,
        pub(super) requests: u64,
        pub(super) window: Window,
        pub(super) algorithm: Algorithm,
        pub(super) align: Align,
        pub(super) key: &'a [u8],
        pub(super) n: u64,
        pub(super) act: Act,
        pub(super) when_full: WhenFull,
    }
    #[derive(Serialize)]
    pub(super) enum Window {
        Ms(u64),
        Day,
        #[expect(dead_code, reason = "its place is part of the form")]
        Month,
    }
    #[derive(Serialize)]
    #[expect(dead_code, reason = "their places are part of the form")]
    pub(super) enum Algorithm {
        FixedWindow,
        SlidingWindow,
        SlidingBuckets(u8),
        SlidingLog,
        TokenBucket { burst: u64, warm_up_ms: u64 },
    }
    #[derive(Serialize)]
    pub(super) enum Align {
        Key,
        Clock,
    }
    #[derive(Serialize)]
    #[expect(dead_code, reason = "their places are part of the form")]
    pub(super) enum Act {
        All,
        Some,
        Force,
        Refund { receipt: u64 },
    }
    #[derive(Serialize)]
    pub(super) enum WhenFull {
        Strict,
        Lenient,
    }
    pub(super) type Outcome = (u64, u64, u64, Option<u64>, u64);
    pub(super) type State = Option<(u8, Vec<u8>)>;
    #[derive(Serialize)]
    pub(super) struct Answer {
        pub(super) now_ms: u64,
        pub(super) epoch: u64,
        pub(super) proxies: u32,
        pub(super) rules_off: Vec<&'static str>,
        pub(super) groups: Vec<(Vec<Outcome>, Vec<State>)>,
    }
}

#[test]
fn the_compact_form_is_what_postcard_makes_of_the_same_fields() {
    use mirror::{Act, Algorithm, Align, WhenFull, Window};
    let take = |window, algorithm, align, key, n, act, when_full| mirror::Take {
        rule: "login",
        requests: 100,
        window,
        algorithm,
        align,
        key,
        n,
        act,
        when_full,
    };
    let (minute, day) = (Window::Ms(60_000), Window::Day);
    let bucket = Algorithm::TokenBucket { burst: 5, warm_up_ms: 0 };
    let refund = Act::Refund { receipt: 29_711 };
    let mut second = take(Window::Ms(1_000), bucket, Align::Key, b"a\0", 1, Act::All, WhenFull::Strict);
    second.requests = 10;
    let mirrored = mirror::Batch {
        namespace: "edge",
        sender: Some((0x5f0c_0000_0000_000a, 3, 41)),
        wait_ms: Some(50),
        states: true,
        groups: vec![vec![
            take(minute, Algorithm::SlidingWindow, Align::Key, b"ana", 2, Act::Some, WhenFull::Lenient),
            second,
            take(day, Algorithm::FixedWindow, Align::Clock, b"", 1, refund, WhenFull::Strict),
        ]],
    };
    assert_eq!(full().to_postcard(), ::postcard::to_allocvec(&mirrored).unwrap());
    let mirrored = mirror::Answer {
        now_ms: 1_790_000_000_000,
        epoch: 0x91a4,
        proxies: 3,
        rules_off: vec!["login", "search"],
        groups: vec![
            (
                vec![(1, 99, 60_000, Some(0), 29_711), (0, 99, 60_000, Some(300), 0)],
                vec![Some((0x12, SMALL_CONTENTS.to_vec())), None],
            ),
            (vec![(0, 99, 60_000, None, 0)], Vec::new()),
        ],
    };
    assert_eq!(answer().to_postcard(), ::postcard::to_allocvec(&mirrored).unwrap());
}

#[test]
fn the_compact_form_is_read_back() {
    assert_eq!(Batch::from_postcard(&full().to_postcard()), Ok(full()));
    assert_eq!(Answer::from_postcard(&answer().to_postcard()), Ok(answer()));
    let cut = |bytes: Vec<u8>| (0..bytes.len()).map(move |end| bytes[..end].to_vec());
    assert!(cut(full().to_postcard()).all(|bytes| Batch::from_postcard(&bytes).is_err()));
    assert!(cut(answer().to_postcard()).all(|bytes| Answer::from_postcard(&bytes).is_err()));
    let longer = |bytes: Vec<u8>| [bytes, vec![0]].concat();
    assert!(Batch::from_postcard(&longer(full().to_postcard())).is_err());
    assert!(Answer::from_postcard(&longer(answer().to_postcard())).is_err());
}

#[test]
fn the_compact_form_is_bounded_too() {
    let refusal = |change: &dyn Fn(&mut Batch<'static>)| {
        let mut batch = full();
        change(&mut batch);
        Batch::from_postcard(&batch.to_postcard()).unwrap_err().to_string()
    };
    let second = |batch: &mut Batch<'static>, change: &dyn Fn(&mut Take<'static>)| {
        change(&mut batch.groups[0].takes[1]);
    };
    let place = "groups[0].takes[1]";
    let key = refusal(&|batch| second(batch, &|take| take.key = vec![0; 257].into()));
    assert_eq!(key, format!("{place}.key: must have at most 256 bytes"));
    let n = refusal(&|batch| second(batch, &|take| take.n = NonZeroU64::MAX));
    assert_eq!(n, format!("{place}.n: must be a number from 1 to 68719476736"));
    let rule = refusal(&|batch| second(batch, &|take| take.rule = "a b".into()));
    assert!(rule.starts_with(&format!("{place}.rule: must be a small letter")), "{rule}");
    let receipt = refusal(&|batch| second(batch, &|take| take.act = Act::Refund { receipt: u64::MAX }));
    assert!(receipt.starts_with(&format!("{place}.act: ")), "{receipt}");
    let namespace = refusal(&|batch| batch.namespace = "".into());
    assert!(namespace.starts_with("namespace: must be 1 to 64"), "{namespace}");
    let wait = refusal(&|batch| batch.wait_ms = Some(60_001));
    assert_eq!(wait, "wait_ms: must be a number from 1 to 60000");
    let groups = refusal(&|batch| batch.groups = vec![batch.groups[0].clone(); 257]);
    assert_eq!(groups, "groups: must have at most 256 items");
    let takes = refusal(&|batch| {
        batch.groups = vec![Group { takes: vec![batch.groups[0].takes[0].clone(); 600] }; 2];
    });
    assert!(takes.starts_with("groups[1].takes: "), "{takes}");
    let empty = refusal(&|batch| batch.groups = vec![Group { takes: Vec::new() }]);
    assert!(empty.starts_with("groups[0].takes: must have at least 1"), "{empty}");
}

#[test]
fn counters_of_one_subject_share_a_shift_and_differ_in_name() {
    let batch = full();
    let [first, second, third] = batch.groups[0].takes.as_slice() else { panic!("three takes") };
    let name = |namespace, take| counter_hash(PUBLIC_KEY, namespace, take);
    let other_rule = Take { rule: "logi".into(), key: b"nana".as_slice().into(), ..first.clone() };
    let other_limit = Take { limit: second.limit, ..first.clone() };
    let mut names = BTreeSet::new();
    for (namespace, take) in [
        ("edge", first),
        ("edge", second),
        ("edge", third),
        ("edg", first),
        ("edge", &other_rule),
        ("edge", &other_limit),
    ] {
        names.insert(name(namespace, take));
    }
    assert_eq!(names.len(), 6, "all of these count apart");
    let larger = RuleLimit { limit: Limit::sliding_window(999, 60_000).unwrap(), ..first.limit };
    let larger = Take { limit: larger, ..first.clone() };
    assert_eq!(name("edge", first), name("edge", &larger));
    let subject = |take| Subjects::new(PUBLIC_KEY, "edge").subject(take);
    assert_eq!(subject(first), subject(&other_limit));
    // Two promises: services of two versions find the same counters, and the filter shifts windows alike.
    assert_eq!(name("edge", first), NAME_OF_FIRST);
    assert_eq!(window_shift("edge", first), 12_541_068_499_881_224_913);
    assert_eq!(window_shift("edge", third), 0, "the calendar is nobody's to shift");
}

#[test]
fn a_hash_is_the_same_whatever_was_hashed_before() {
    let batch = full();
    let [first, second, third] = batch.groups[0].takes.as_slice() else { panic!("three takes") };
    let other_rule = Take { rule: "search".into(), ..first.clone() };
    let mut subjects = Subjects::new(PUBLIC_KEY, "edge");
    for take in [first, second, &other_rule, &other_rule, third, first] {
        let alone = Subjects::new(PUBLIC_KEY, "edge").subject(take);
        assert_eq!((subjects.subject(take), subjects.shift(take)), (alone, window_shift("edge", take)));
    }
    assert_ne!(subjects.subject(first), subjects.subject(&other_rule));
    assert_ne!(subjects.shift(first), subjects.shift(&other_rule));
}

const NAME_OF_FIRST: u128 = 118_844_686_678_173_411_180_038_021_832_939_151_103;

/// A body made of pieces that are mostly fine, so that most bodies have few errors and many have none.
fn bodies() -> impl Strategy<Value = String> {
    let limit = prop_oneof![
        4 => Just(r#""100/1m""#), 1 => Just(r#""5/day""#), 1 => Just(r#""5/1""#), 1 => Just("null"),
        2 => Just(r#"{"requests": 5, "per": "1s", "algorithm": "leaky_bucket"}"#),
        1 => Just(r#"{"requests": 5, "per": "1s", "burst": 1}"#),
        1 => Just(r#"{"requests": 5, "per": "1s", "per": "2s"}"#),
    ];
    let field = prop_oneof![
        Just(r#""n": 1"#),
        Just(r#""n": 1.0"#),
        Just(r#""n": null"#),
        Just(r#""n": 99999999999"#),
        Just(r#""manner": "force""#),
        Just(r#""manner": "Force""#),
        Just(r#""m\u0061nner": "some""#),
        Just(r#""refund": 7"#),
        Just(r#""refund": -7"#),
        Just(r#""when_full": "lenient""#),
        Just(r#""when_full": 1"#),
        Just(r#""more": 1"#),
    ];
    let key = prop_oneof![3 => "[a-z]{0,4}".boxed(), 1 => Just(r"\ud83d\ude00é".to_owned()).boxed(), 1 => "k{250,260}".boxed()];
    let rule = prop_oneof![4 => Just("login"), 1 => Just("Login"), 1 => Just(r"l\u006fgin")];
    let take =
        (rule, limit, key, prop::collection::vec(field, 0..3)).prop_map(|(rule, limit, key, fields)| {
            let more: Vec<&str> = fields.into_iter().flat_map(|field| [", ", field]).collect();
            let more = more.concat();
            format!(r#"{{"rule": "{rule}", "limit": {limit}, "key": "{key}"{more}}}"#)
        });
    let top = prop_oneof![
        4 => Just(""), 1 => Just(r#""namespace": "edge", "#), 1 => Just(r#""namespace": "", "#), 1 => Just(r#""wait_ms": 9, "#), 1 => Just(r#""states": true, "#),
        1 => Just(r#""states": 1, "#),
        1 => Just(r#""wait_ms": 4294967296, "#), 1 => Just(r#""sender": null, "#),
        1 => Just(r#""sender": {"proxy": "00000000000000ff", "vm": 1, "sequence": 2}, "#),
        1 => Just(r#""sender": {"proxy": "+0000000000000ff", "vm": 1, "sequence": 2}, "#),
    ];
    let groups = prop::collection::vec(prop::collection::vec(take, 0..3), 0..3);
    (top, groups).prop_map(|(top, groups)| {
        let groups: Vec<String> =
            groups.iter().map(|takes| format!(r#"{{"takes": [{}]}}"#, takes.join(", "))).collect();
        format!(r#"{{{top}"groups": [{}]}}"#, groups.join(", "))
    })
}

proptest! {
    #[test]
    fn both_readers_of_json_agree(text in bodies()) {
        let walked = batch_walk::read(text.as_bytes());
        prop_assert_eq!(batch_json::read(text.as_bytes()), walked.ok(), "{}", text);
    }

    #[test]
    fn no_bytes_upset_the_readers(bytes in prop::collection::vec(any::<u8>(), 0..200), at in 0..100_usize) {
        let mut near = full().to_postcard();
        if let (Some(place), Some(byte)) = (near.get_mut(at), bytes.first()) {
            *place = *byte;
        }
        for bytes in [&bytes, &near] {
            if let Ok(batch) = Batch::from_postcard(bytes) {
                prop_assert!(batch.take_count() <= TAKES_MAX);
            }
            let _ = Answer::from_postcard(bytes);
            prop_assert!(Batch::from_json(bytes).is_err());
        }
    }
}
