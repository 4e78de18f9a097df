//! What README and docs say is so.

use std::collections::BTreeSet;
use std::fs;

use tidegate_config::{Config, KeySource, PathMatch, problem};
use tidegate_e2e::{Setup, http, load, repository};

use crate::common::start;
use crate::guides::GUIDES;
use crate::markdown;

/// Pages that link and name commands, beside the guides.
const PAGES: [&str; 5] =
    ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/architecture.md", "docs/accuracy.md"];

#[test]
fn the_map_of_the_architecture_names_what_exists_and_nothing_is_missing() {
    let map = map();
    for path in &map {
        assert!(
            repository::root().join(path).exists(),
            "docs/architecture.md names {path}, which is not there"
        );
    }
    // Named itself, or by something that lies in it.
    let named = |path: &str| {
        map.iter().any(|seen| seen.split('/').next() == Some(path) || seen.trim_end_matches('/') == path)
    };
    for directory in directories_of_the_root() {
        assert!(named(&directory), "docs/architecture.md does not name {directory}/ in {map:?}");
    }
    for member in workspace_members() {
        assert!(named(&member), "docs/architecture.md does not name the crate {member}/ in {map:?}");
    }
}

#[test]
fn the_json_of_the_readme_is_a_config() {
    let configs = blocks("README.md", "json");
    assert!(!configs.is_empty(), "README.md shows no config");
    for config in configs {
        if let Err(errors) = Config::from_json(config.text.as_bytes()) {
            panic!("README.md shows a config that is refused:\n{errors}\n{}", config.text);
        }
    }
}

#[test]
fn the_errors_of_the_readme_are_what_such_a_config_gets() {
    let config = repository::text("config-schema/tests/bad/key_part_unknown_field.json").unwrap();
    let errors = Config::from_json(config.as_bytes()).expect_err("a bad config").to_string();
    let shown = blocks("README.md", "text");
    assert!(shown.iter().any(|block| block.text.trim() == errors), "README.md does not show:\n{errors}");
}

#[test]
fn the_denied_body_of_the_readme_is_what_a_client_gets() {
    let body = String::from_utf8(problem::quota_exceeded(429, &["per-key"])).expect("text");
    let shown = blocks("README.md", "text");
    assert!(shown.iter().any(|block| block.text.trim() == body), "README.md does not show:\n{body}");
}

#[test]
fn the_yaml_of_the_readme_is_an_excerpt_of_envoys_configuration() {
    let files =
        ["envoy/envoy.yaml", "envoy/listeners.yaml"].map(|path| bare(&repository::text(path).unwrap()));
    for excerpt in blocks("README.md", "yaml") {
        let excerpt = bare(&excerpt.text);
        assert!(files.iter().any(|file| file.contains(&excerpt)), "no file in envoy/ has this:\n{excerpt}");
    }
}

#[test]
fn the_commands_of_readme_and_docs_are_targets_of_make() {
    let makefile = repository::text("Makefile").unwrap();
    let is_target = |name: &str| makefile.lines().any(|line| line.starts_with(&format!("{name}:")));
    for file in PAGES.into_iter().chain(GUIDES) {
        for target in markdown::make_targets(&repository::text(file).unwrap()) {
            assert!(is_target(&target), "{file} speaks of `make {target}`, which is no target");
        }
    }
    let readme = markdown::make_targets(&repository::text("README.md").unwrap());
    for command in ["demo", "test"] {
        assert!(readme.contains(command), "README.md does not speak of `make {command}`");
    }
}

#[test]
fn the_links_of_readme_and_docs_lead_somewhere() {
    for file in PAGES.into_iter().chain(GUIDES) {
        let text = repository::text(file).unwrap();
        let directory = repository::root().join(file).parent().expect("a file has a directory").to_owned();
        for link in markdown::links(&text) {
            let path = link.split('#').next().unwrap_or_default();
            if !path.is_empty() && !link.contains("://") {
                assert!(directory.join(path).exists(), "{file} links to {link}, which is not there");
            }
        }
    }
}

#[tokio::test]
async fn the_minimal_config_of_the_readme_limits() {
    let configs = blocks("README.md", "json");
    let text = &configs.first().expect("README.md shows a config").text;
    let config = Config::from_json(text.as_bytes()).expect("the config is right");
    let rule = config.rules.first().expect("the config has a rule");
    let limit =
        rule.limits(0).iter().map(|limit| limit.limit.requests()).min().expect("the rule has a limit");
    let limit = usize::try_from(limit).expect("a limit of this size");
    let path = match rule.matches.paths.first() {
        Some(PathMatch::Exact(path) | PathMatch::Prefix(path)) => path.clone(),
        None | Some(PathMatch::Template(_)) => "/".to_owned(),
    };
    let method = rule.matches.methods.first().map_or("GET", String::as_str).to_owned();
    let headers: Vec<String> = rule
        .key
        .iter()
        .filter_map(|part| if let KeySource::Header(name) = &part.source { Some(name.clone()) } else { None })
        .collect();
    let envoy = start(Setup::limits(serde_json::from_str(text).expect("JSON"))).await;

    let make = move |_| {
        let headers: Vec<_> = headers.iter().map(|name| (name.as_str(), b"ana".as_slice())).collect();
        http::request(&method, &path, &headers)
    };
    let answers = load::run(envoy.address(), 4, 2 * limit + 10, make).await.unwrap();

    assert_eq!(answers.strange(), 0);
    // More than the limit may pass if its window is so short that it goes by meanwhile.
    assert!(answers.count(200) >= limit, "{} of {limit} were let through", answers.count(200));
    assert!(answers.count(429) > 0, "none of {} was denied", 2 * limit + 10);
}

/// The paths in the first column of the map: the block under a heading that says "map". What is indented
/// lies in what is above it.
fn map() -> Vec<String> {
    let blocks = [blocks("docs/architecture.md", ""), blocks("docs/architecture.md", "text")].concat();
    let map = blocks.iter().find(|block| block.heading.to_lowercase().contains("map"));
    let map = map.expect("docs/architecture.md has a block under a heading with the word \"map\"");
    let mut above: Vec<(usize, String)> = Vec::new();
    let mut paths = Vec::new();
    for line in map.text.lines().filter(|line| !line.trim().is_empty()) {
        let indent = line.len() - line.trim_start().len();
        above.retain(|(other, _)| *other < indent);
        let name = line.split_whitespace().next().expect("the line is not empty");
        let parent = above.last().map_or("", |(_, path)| path.as_str());
        // A line that goes on about the path above names none itself.
        if indent > 0 && parent.is_empty() {
            continue;
        }
        let path = if parent.is_empty() {
            name.to_owned()
        } else {
            format!("{}/{name}", parent.trim_end_matches('/'))
        };
        above.push((indent, path.clone()));
        paths.push(path);
    }
    assert!(paths.len() > 3, "the map names only {paths:?}");
    paths
}

/// Not the hidden ones, and not what .gitignore names.
fn directories_of_the_root() -> BTreeSet<String> {
    let ignored = repository::text(".gitignore").unwrap();
    let ignored: BTreeSet<&str> = ignored.lines().map(|line| line.trim().trim_matches('/')).collect();
    fs::read_dir(repository::root())
        .expect("the root can be read")
        .map(|entry| entry.expect("an entry of the root"))
        .filter(|entry| entry.path().is_dir())
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| !name.starts_with('.') && !ignored.contains(name.as_str()))
        .collect()
}

fn workspace_members() -> Vec<String> {
    let manifest = repository::text("Cargo.toml").unwrap();
    let members =
        manifest.lines().find_map(|line| line.strip_prefix("members = ")).expect("a line of members");
    let members: Vec<String> = serde_json::from_str(members).expect("a list of members");
    assert!(!members.is_empty());
    members
}

fn blocks(file: &str, language: &str) -> Vec<markdown::Block> {
    markdown::blocks(&repository::text(file).unwrap(), language)
}

/// The lines without indentation, comments and empty ones.
fn bare(yaml: &str) -> String {
    let lines = yaml.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.collect::<Vec<_>>().join("\n")
}
