//! What the guides in `docs/` show is so: configs, plots, messages, excerpts of Envoy's configuration.

use std::fs;

use tidegate_config::Config;
use tidegate_e2e::repository;

use crate::markdown;

#[path = "../../../../core/examples/plots/charts.rs"]
mod charts;

pub(crate) const GUIDES: [&str; 7] = [
    "docs/rules.md",
    "docs/algorithms.md",
    "docs/clients.md",
    "docs/global.md",
    "docs/scale.md",
    "docs/observability.md",
    "docs/troubleshooting.md",
];

#[test]
fn the_readme_links_every_guide() {
    let readme = repository::text("README.md").unwrap();
    for guide in GUIDES {
        assert!(markdown::links(&readme).any(|link| link == guide), "README.md does not link {guide}");
    }
}

#[test]
fn the_json_of_the_guides_is_a_config() {
    for guide in GUIDES {
        for block in markdown::blocks(&repository::text(guide).unwrap(), "json") {
            if let Err(errors) = Config::from_json(block.text.as_bytes()) {
                panic!("{guide} shows a config that is refused:\n{errors}\n{}", block.text);
            }
        }
    }
}

#[test]
fn the_yaml_of_the_guides_is_an_excerpt_of_envoys_configuration() {
    let bare = |yaml: &str| {
        let lines = yaml.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        lines.collect::<Vec<_>>().join("\n")
    };
    let files = [
        "envoy/envoy.yaml",
        "envoy/listeners.yaml",
        "envoy/global.yaml",
        "envoy/routes.yaml",
        "envoy/route-metadata.yaml",
    ];
    let files = files.map(|path| bare(&repository::text(path).unwrap()));
    for guide in GUIDES {
        for block in markdown::blocks(&repository::text(guide).unwrap(), "yaml") {
            let excerpt = bare(&block.text);
            assert!(
                files.iter().any(|file| file.contains(&excerpt)),
                "{guide}: no file in envoy/ has this:\n{excerpt}"
            );
        }
    }
}

#[test]
fn the_plots_are_what_the_core_does() {
    for (name, made) in charts::all().expect("the limits of the plots are right") {
        let path = format!("docs/plots/{name}");
        let shown = repository::text(&path).unwrap();
        assert!(shown == made, "{path} is not what the core does now: run `make plots` and look at it");
        let page = repository::text("docs/algorithms.md").unwrap();
        assert!(page.contains(&format!("](plots/{name})")), "docs/algorithms.md does not show {name}");
    }
}

/// Every sentence about a config that is asserted somewhere is one that the page has.
#[test]
fn every_error_of_a_config_is_in_troubleshooting() {
    let patterns = messages("## The config is refused");
    let (mut checked, mut missing) = (0, Vec::new());
    for entry in fs::read_dir(repository::root().join("config-schema/tests/bad")).expect("bad files") {
        let path = entry.expect("an entry").path();
        if path.extension().is_none_or(|extension| extension != "txt") {
            continue;
        }
        let text = fs::read_to_string(&path).expect("the expected errors");
        for line in text.lines().filter(|line| !line.ends_with(" errors in the config:")) {
            let (_, message) = line.split_once(": ").unwrap_or_else(|| panic!("{line} has no place"));
            if !patterns.iter().any(|pattern| fits(pattern, message)) {
                missing.push(message.to_owned());
            }
            checked += 1;
        }
    }
    assert!(missing.is_empty(), "docs/troubleshooting.md has nothing on {missing:#?}");
    assert!(checked > 150, "only {checked} messages were checked");
}

/// Every sentence that the filter's own source can log or refuse with is one that the page has.
#[test]
fn every_message_of_the_filter_is_in_troubleshooting() {
    let page = repository::text("docs/troubleshooting.md").unwrap();
    let patterns: Vec<String> =
        [messages("## In Envoy's log"), messages("## The config is refused")].concat();
    let (mut checked, mut missing) = (0, Vec::new());
    for file in ["abi.rs", "engine.rs", "table.rs", "fleet/calling.rs", "fleet/landing.rs"] {
        let source = repository::text(&format!("filter/src/{file}")).unwrap();
        for literal in spoken(&source) {
            if !patterns.iter().any(|pattern| fits(pattern, &literal)) {
                missing.push(literal);
            }
            checked += 1;
        }
    }
    assert!(missing.is_empty(), "docs/troubleshooting.md has nothing on {missing:#?}");
    assert!(checked >= 6, "only {checked} messages were found");
    assert!(page.contains("malloc failed: Uncaught RuntimeError: unreachable"), "proxy_faults.rs sees this");
}

/// And the other way round: what the page quotes as Tidegate's own is in the source.
#[test]
fn what_troubleshooting_quotes_is_said_somewhere() {
    let mut said = String::new();
    for directory in ["filter/src", "filter/src/fleet", "config-schema/src", "core/src"] {
        for entry in fs::read_dir(repository::root().join(directory)).expect("sources") {
            // A directory of tests, perhaps.
            said.push_str(&fs::read_to_string(entry.expect("an entry").path()).unwrap_or_default());
        }
    }
    let said = flat(&said);
    let page = repository::text("docs/troubleshooting.md").unwrap();
    let own = page.split("These are Envoy's own:").next().expect("a first part");
    let own = [messages_in(own), messages("## The config is refused")].concat();
    assert!(own.len() > 40, "{own:?}");
    let pieces =
        own.iter().flat_map(|message| message.split('…')).map(str::trim).filter(|piece| piece.len() > 3);
    let unsaid: Vec<&str> = pieces.filter(|piece| !said.contains(piece)).collect();
    assert!(unsaid.is_empty(), "nothing in the source says {unsaid:#?}");
}

/// The quoted messages in the first column of the tables of a section.
fn messages(heading: &str) -> Vec<String> {
    let page = repository::text("docs/troubleshooting.md").unwrap();
    let (_, section) = page.split_once(heading).unwrap_or_else(|| panic!("no section {heading}"));
    messages_in(section.split("\n## ").next().unwrap_or_default())
}

fn messages_in(section: &str) -> Vec<String> {
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `"));
    let cells = rows.filter_map(|row| row.split("` | ").next());
    cells.flat_map(|cell| cell.split("`, `")).map(str::to_owned).collect()
}

/// Whether a message is one that the pattern stands for; `…` is anything, also nothing.
fn fits(pattern: &str, message: &str) -> bool {
    let pieces: Vec<&str> = pattern.split('…').collect();
    let (first, last) = (pieces[0], pieces[pieces.len() - 1]);
    if pieces.len() == 1 {
        return message == pattern;
    }
    let Some(mut rest) = message.strip_prefix(first).and_then(|rest| rest.strip_suffix(last)) else {
        return false;
    };
    for piece in &pieces[1..pieces.len() - 1] {
        let Some((_, after)) = rest.split_once(piece) else { return false };
        rest = after;
    }
    true
}

/// The texts that are logged or displayed, with `…` for what is filled in.
fn spoken(source: &str) -> Vec<String> {
    let source = flat(source);
    let openings =
        ["log::error!(\"", "log::warn!(\"", "log::info!(\"", "write!( f, \"", "write!(f, \"", "format!( \""];
    let mut texts = Vec::new();
    for opening in openings {
        for rest in source.split(opening).skip(1) {
            let text = filled(rest.split('"').next().unwrap_or_default());
            // Single words and mere values are parts of other sentences.
            if text.split_whitespace().count() > 3 {
                texts.push(text);
            }
        }
    }
    texts
}

/// Source text with each literal on one line, without its escapes and back-ticks.
fn flat(source: &str) -> String {
    let joined = source.replace("\\\n", " ").replace("\\\"", "").replace('`', "");
    joined.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// `{name}` as `…`.
fn filled(text: &str) -> String {
    let mut out = String::new();
    let mut pieces = text.split('{');
    out.push_str(pieces.next().unwrap_or_default());
    for piece in pieces {
        out.push('…');
        out.push_str(piece.split_once('}').map_or("", |(_, after)| after));
    }
    out
}

#[test]
fn patterns_fit_what_they_stand_for() {
    assert!(fits("is missing; …", "is missing; name it"));
    assert!(fits("… is not a …; …", "\"x\" is not a host; write one"));
    assert!(fits("keep one", "keep one"));
    assert!(!fits("keep one", "keep one of them"));
    assert!(!fits("must be …", "is missing; it must be"));
    assert!(!fits("a … b … c", "a b"));
}
