//! "Did you mean …?"

/// The known word that `word` is most likely a slip of, if any is near enough.
pub(crate) fn nearest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    let word = word.to_ascii_lowercase();
    let near = known.iter().filter_map(|candidate| Some((slips(&word, candidate)?, *candidate)));
    near.min_by_key(|(slips, _)| *slips).map(|(_, candidate)| candidate)
}

/// How many slips lie between two words, unless they are too many to mean the same.
fn slips(word: &str, candidate: &str) -> Option<usize> {
    // A third of a word may be wrong, but never more than two letters: "per" must not be taken for "key".
    let slips_max = candidate.len().div_ceil(3).min(2);
    if word.len().abs_diff(candidate.len()) > slips_max {
        return None;
    }
    Some(edit_distance(word, candidate)).filter(|slips| *slips <= slips_max)
}

/// Levenshtein's distance, by the usual table of which one row is kept.
fn edit_distance(from: &str, to: &str) -> usize {
    let mut row: Vec<usize> = (1..=to.chars().count()).collect();
    let mut last = row.len();
    for (index, from_char) in from.chars().enumerate() {
        let mut diagonal = index;
        let mut left = index.saturating_add(1);
        for (cell, to_char) in row.iter_mut().zip(to.chars()) {
            let replaced = diagonal.saturating_add(usize::from(from_char != to_char));
            diagonal = *cell;
            left = replaced.min(left.saturating_add(1)).min(cell.saturating_add(1));
            *cell = left;
        }
        last = left;
    }
    last
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    #[test]
    fn distances() {
        let cases = [
            ("", "", 0),
            ("", "abc", 3),
            ("abc", "", 3),
            ("path", "path", 0),
            ("pth", "path", 1),
            ("apth", "path", 2),
            ("kitten", "sitting", 3),
        ];
        for (from, to, expected) in cases {
            assert_eq!(edit_distance(from, to), expected, "{from} {to}");
        }
    }

    #[test]
    fn the_nearest_word_is_suggested() {
        let known = ["code", "name", "match", "key", "limits", "mode", "path_prefix"];
        let cases = [
            ("nmae", Some("name")),
            ("limit", Some("limits")),
            ("Mode", Some("mode")),
            ("pathPrefix", Some("path_prefix")),
            ("path-prefix", Some("path_prefix")),
            ("keys", Some("key")),
            ("mod", Some("mode")),
            ("path_pre", None),
            ("colour", None),
            ("per", None),
            ("", None),
        ];
        for (word, expected) in cases {
            assert_eq!(nearest(word, &known), expected, "{word}");
        }
    }
}
