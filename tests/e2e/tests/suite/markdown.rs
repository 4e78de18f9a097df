//! As much of Markdown as the tests of README and docs read.

use std::collections::BTreeSet;

/// A fenced block: what it says after the fence, the heading above it, and its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    pub(crate) language: String,
    pub(crate) heading: String,
    pub(crate) text: String,
}

/// The fenced blocks in this language.
pub(crate) fn blocks(markdown: &str, language: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let (mut heading, mut open) = ("", false);
    for line in markdown.lines() {
        if let Some(language) = line.trim_start().strip_prefix("```") {
            if !open {
                let (language, heading) = (language.trim().to_owned(), heading.to_owned());
                blocks.push(Block { language, heading, text: String::new() });
            }
            open = !open;
        } else if let Some(block) = blocks.last_mut().filter(|_| open) {
            block.text.push_str(line);
            block.text.push('\n');
        } else if line.starts_with('#') {
            heading = line.trim_start_matches('#').trim();
        }
    }
    blocks.retain(|block| block.language == language);
    blocks
}

/// What the text links to, as it is written.
pub(crate) fn links(markdown: &str) -> impl Iterator<Item = &str> {
    markdown.split("](").skip(1).filter_map(|rest| rest.split(')').next())
}

/// The targets of `make` commands. In code only: prose may make anything.
pub(crate) fn make_targets(markdown: &str) -> BTreeSet<String> {
    // Between back-ticks, of which a fence is three.
    let code = markdown.split('`').skip(1).step_by(2).flat_map(str::lines);
    code.filter_map(|line| line.trim().trim_start_matches("$ ").strip_prefix("make "))
        .flat_map(|words| words.split('#').next().unwrap_or_default().split_whitespace())
        .filter(|word| !word.contains('='))
        .map(str::to_owned)
        .collect()
}

#[test]
fn blocks_have_their_language_heading_and_text() {
    let text = "# One\n```json\n{}\n```\n## The map\n```\na\n  b\n```\n";
    let block = |language: &str, heading: &str, text: &str| Block {
        language: language.into(),
        heading: heading.into(),
        text: text.into(),
    };
    assert_eq!(blocks(text, "json"), [block("json", "One", "{}\n")]);
    assert_eq!(blocks(text, ""), [block("", "The map", "a\n  b\n")]);
}

#[test]
fn links_and_commands_are_found() {
    assert_eq!(links("see [a](docs/a.md) and [b](#b)").collect::<Vec<_>>(), ["docs/a.md", "#b"]);
    let text = "make sure, then `make demo ONCE=1` or\n```sh\n$ make test # all\nmake e2e\n```\n";
    assert_eq!(make_targets(text).into_iter().collect::<Vec<_>>(), ["demo", "e2e", "test"]);
}
