//! The page of `kiln dump --html`: well-formed, self-contained, and true to the run.

use std::collections::HashSet;
use std::fs;

use roxmltree::{Document, Node, ParsingOptions};

use crate::cli::{PROBLEM, fails, json, succeeds};

const MASK: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/problems/causal_mask.json");

/// The page about these problems.
fn page(problems: &[&str], options: &[&str]) -> String {
    let folder = tempfile::tempdir().expect("temporary folder");
    let path = folder.path().join("run.html");
    let html = ["--html", path.to_str().expect("temporary folders are UTF-8")];
    succeeds(&[&["dump"], problems, &html, options].concat());
    fs::read_to_string(&path).expect("the page is UTF-8")
}

fn parse(html: &str) -> Document<'_> {
    let options = ParsingOptions { allow_dtd: true, ..ParsingOptions::default() };
    Document::parse_with_options(html, options).unwrap_or_else(|error| panic!("{error}\n{html}"))
}

fn by_id<'a>(document: &'a Document<'_>, id: &str) -> Node<'a, 'a> {
    let found = document.descendants().find(|node| node.attribute("id") == Some(id));
    found.unwrap_or_else(|| panic!("no element `{id}`"))
}

fn text(node: Node<'_, '_>) -> String {
    node.descendants().filter_map(|node| node.text().filter(|_| node.is_text())).collect()
}

#[test]
fn the_page_has_every_section_and_needs_no_network() {
    let html = page(&[PROBLEM, MASK], &["--device", "sim:h200"]);
    for outside in ["http:", "https:", "//cdn", "url(", "@import", "<link", " src="] {
        assert!(!html.contains(outside), "{outside}");
    }
    let document = parse(&html);
    let sections = [
        "graph",
        "choice",
        "resources",
        "bounds",
        "roofline",
        "machine",
        "counters",
        "source",
        "ptx",
    ];
    for kernel in ["k0", "k1"] {
        for section in sections {
            let id = format!("{kernel}-{section}");
            assert!(text(by_id(&document, &id)).len() > 20, "{id} is empty");
        }
    }
    for id in ["k0-graph", "k0-roofline"] {
        assert!(by_id(&document, id).descendants().any(|node| node.has_tag_name("svg")), "{id}");
    }
    let nodes = by_id(&document, "k1-graph").descendants().filter(|node| node.has_tag_name("g"));
    let titles: HashSet<String> =
        nodes.map(|node| text(node.first_element_child().unwrap())).collect();
    assert!(titles.contains("cmp_ge{i32}: visible: bool[4, 128, 128]"), "{titles:?}");
    let choice = text(by_id(&document, "k0-choice"));
    assert!(choice.contains("vector=8: the widest access"), "{choice}");
    // Every value of every knob but the chosen ones: 2 + 4 + 5 + 4 - 4.
    assert!(choice.contains("11 candidates"), "{choice}");
    assert!(text(by_id(&document, "k0-resources")).contains("Launch8 × 128 threads"));
    let machine = text(by_id(&document, "k0-machine"));
    for part in ["us on H200", "bound by", "blocks on an SM", "FMA "] {
        assert!(machine.contains(part), "{part}: {machine}");
    }
    let timeline = text(by_id(&document, "timeline"));
    for step in ["opened NVIDIA H200", "render", "find", "load", "launch"] {
        assert!(timeline.contains(step), "{step}: {timeline}");
    }
}

#[test]
fn lines_of_the_page_are_those_of_the_kernel() {
    let html = page(&[PROBLEM], &["--device", "sim"]);
    let document = parse(&html);
    let counted = ["--random", "1", "--device", "sim", "--counters", "--json"];
    let report = json(&succeeds(&[&["run", PROBLEM], &counted[..]].concat()));
    let all = report["kernels"][0]["counters"]["warp_instructions"].as_u64().unwrap();
    let warps = |id: &str| -> u64 {
        let counts = by_id(&document, id).descendants().filter(|node| node.has_tag_name("s"));
        counts.filter_map(|node| text(node).parse::<u64>().ok()).sum()
    };
    // What every line of PTX executed, and what of it has a source line.
    assert_eq!(warps("k0-ptx"), all);
    assert!(warps("k0-source") > all / 2 && warps("k0-source") <= all);
    let source = by_id(&document, "k0-source");
    let ids: HashSet<&str> = source.descendants().filter_map(|node| node.attribute("id")).collect();
    let links: Vec<&str> = (by_id(&document, "k0-ptx").descendants())
        .filter_map(|node| node.attribute("href"))
        .collect();
    assert!(links.len() > 50);
    assert!(links.iter().all(|link| ids.contains(&link[1..])));
    let chain = source.descendants().find(|node| text(*node).contains("op::swish_bwd(x, scaled"));
    assert!(chain.is_some());
}

#[test]
fn the_page_does_without_what_a_device_does_not_have() {
    let html = page(&[PROBLEM], &["--device", "null", "--machine", "a100"]);
    let document = parse(&html);
    assert!(text(by_id(&document, "k0-bounds")).contains("on A100, at the least"));
    assert!(text(by_id(&document, "k0-bounds")).contains("on the simulated device only"));
    assert!(text(by_id(&document, "k0-roofline")).contains("Nothing was counted"));
    fails(2, "expected one of A100, H100,", &["dump", PROBLEM, "--html", "x", "--machine", "T3"]);
    fails(5, "failed to write page `/nowhere/x`", &["dump", PROBLEM, "--html", "/nowhere/x"]);
    fails(2, "--output <DIR>", &["dump", PROBLEM]);
    let two = ["dump", PROBLEM, MASK, "--html", "x", "--inputs", "in.safetensors"];
    fails(2, "--inputs requires a single problem", &two);
}
