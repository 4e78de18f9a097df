//! Durations as text: a whole number and a unit.

use std::ops::RangeInclusive;

use crate::errors::Report;
use crate::place::quoted;
use crate::reader::Node;

/// The units, shortest first, in milliseconds.
const UNITS: [(&str, u64); 5] = [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];

/// Milliseconds of a text such as `500ms`, `10s`, `1m`, `12h` or `1d`.
///
/// `None` if it is anything else: no sign, no space, no fraction, no leading zero, one unit.
pub fn parse(text: &str) -> Option<u64> {
    let unit_start = text.find(|c: char| !c.is_ascii_digit())?;
    let (digits, unit) = text.split_at_checked(unit_start)?;
    whole_number(digits)?.checked_mul(unit_ms(unit)?)
}

/// The shortest text for a duration: `1h` and not `60m`.
pub fn shortest_text(ms: u64) -> String {
    let fits = |(_, unit_ms): &&(&str, u64)| ms != 0 && ms.is_multiple_of(*unit_ms);
    match UNITS.iter().rev().find(fits) {
        Some((unit, unit_ms)) => format!("{}{unit}", ms.checked_div(*unit_ms).unwrap_or_default()),
        None => "0s".to_owned(),
    }
}

/// A duration of the config, in milliseconds.
pub(crate) fn read(node: &Node, range: RangeInclusive<u64>, report: &mut Report) -> Option<u64> {
    let text = node.text(report)?;
    let Some(ms) = parse(text) else {
        let advice = "write a whole number and a unit, such as \"10s\" (units: ms, s, m, h, d)";
        node.report(report, format!("{} is not a duration; {advice}", quoted(text)));
        return None;
    };
    if range.contains(&ms) {
        return Some(ms);
    }
    let [least, most] = [range.start(), range.end()].map(|ms| shortest_text(*ms));
    node.report(report, format!("must last from {least} to {most}, not {text}"));
    None
}

/// Milliseconds of one unit.
pub(crate) fn unit_ms(unit: &str) -> Option<u64> {
    UNITS.iter().find(|(name, _)| *name == unit).map(|(_, ms)| *ms)
}

/// A number of decimal digits without needless zeros, so that each number has one text.
pub(crate) fn whole_number(digits: &str) -> Option<u64> {
    let is_canonical = digits == "0" || !digits.starts_with('0');
    let is_digits = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    if is_canonical && is_digits { digits.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    #[test]
    fn durations() {
        let cases = [
            ("1ms", Some(1)),
            ("1s", Some(1_000)),
            ("90s", Some(90_000)),
            ("1m", Some(60_000)),
            ("1h", Some(3_600_000)),
            ("1d", Some(86_400_000)),
            ("0s", Some(0)),
            ("18446744073709551615ms", Some(u64::MAX)),
            ("18446744073709551616ms", None),
            ("213503982335d", None),
            ("", None),
            ("1", None),
            ("s", None),
            ("01s", None),
            ("-1s", None),
            ("+1s", None),
            ("1.5s", None),
            ("1 s", None),
            ("1S", None),
            ("1h30m", None),
            ("1w", None),
            ("١s", None),
        ];
        for (text, expected) in cases {
            assert_eq!(parse(text), expected, "{text}");
        }
    }

    #[test]
    fn shortest_texts() {
        let cases = [
            (0, "0s"),
            (1, "1ms"),
            (1_500, "1500ms"),
            (90_000, "90s"),
            (60_000, "1m"),
            (7_200_000, "2h"),
            (86_400_000, "1d"),
            (90_000_000, "25h"),
        ];
        for (ms, expected) in cases {
            assert_eq!(shortest_text(ms), expected);
        }
    }

    proptest! {
        #[test]
        fn a_shortest_text_means_the_same(any_ms: u64, minutes in 0..10_000_u64) {
            for ms in [any_ms, minutes * 60_000] {
                prop_assert_eq!(parse(&shortest_text(ms)), Some(ms));
            }
        }
    }
}
