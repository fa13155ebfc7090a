//! What the crates that Kiln is built from may be: what `deny.toml` says, where `cargo deny` is not
//! installed, and of no newer Rust than Kiln needs.

use std::collections::BTreeSet;
use std::process::Command;

use serde_json::Value;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// What is published, in the order that it must be.
const CRATES: [&str; 4] = ["kiln-machine", "kiln-sass", "kiln-sim", "kiln"];

/// Every package that is built here, as cargo describes it.
fn packages() -> Vec<Value> {
    let host = Command::new("rustc").arg("-vV").output().expect("rustc runs");
    let host = String::from_utf8(host.stdout).unwrap();
    let host = host.lines().find_map(|line| line.strip_prefix("host: ")).unwrap();
    let arguments = ["metadata", "--format-version=1", "--locked", "--offline"];
    let output = Command::new(env!("CARGO"))
        .args(arguments)
        .args(["--filter-platform", host])
        .current_dir(ROOT)
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    metadata["packages"].as_array().unwrap().clone()
}

fn policy() -> toml::Table {
    std::fs::read_to_string(format!("{ROOT}/deny.toml")).unwrap().parse().unwrap()
}

/// Whether an SPDX expression offers a way that uses allowed licences only.
fn allows(allowed: &[&str], expression: &str) -> bool {
    let plain = expression.replace('/', " OR ").replace(['(', ')'], " ");
    // None nests an OR in an AND but those that are written `(A OR B) AND C`.
    plain.split(" AND ").all(|part| part.split(" OR ").any(|name| allowed.contains(&name.trim())))
}

#[test]
fn licences_and_sources_are_those_of_the_policy() {
    let policy = policy();
    let strings = |section: &str, key: &str| -> Vec<String> {
        let list = policy[section][key].as_array().unwrap().iter();
        list.map(|entry| entry.as_str().unwrap().to_owned()).collect()
    };
    let (licences, registries) =
        (strings("licenses", "allow"), strings("sources", "allow-registry"));
    let licences: Vec<&str> = licences.iter().map(String::as_str).collect();
    let banned = policy["bans"]["deny"].as_array().unwrap();
    let mut used = BTreeSet::new();
    for package in packages() {
        let name = package["name"].as_str().unwrap();
        let licence = package["license"].as_str().unwrap_or("none");
        assert!(allows(&licences, licence), "{name}: {licence}");
        used.extend(licences.iter().filter(|allowed| licence.contains(**allowed)).copied());
        assert!(!banned.iter().any(|of| of["crate"].as_str() == Some(name)), "{name} is banned");
        if let Some(source) = package["source"].as_str() {
            let known = registries.iter().any(|of| source == format!("registry+{of}"));
            assert!(known, "{name}: {source}");
        }
    }
    assert_eq!(used.into_iter().collect::<Vec<_>>(), licences, "every licence allowed is used");
    assert!(!allows(&licences, "GPL-3.0-only") && !allows(&licences, "MIT AND GPL-2.0-only"));
    assert!(allows(&licences, "GPL-2.0-only OR MIT"));
}

/// `rust-version` is true of what is built; of Kiln's own code clippy checks it (`make lint`).
#[test]
fn no_dependency_needs_a_newer_rust() {
    let version = |text: &str| -> Vec<u32> {
        let mut parts: Vec<u32> = text.split('.').map(|part| part.parse().unwrap()).collect();
        parts.resize(3, 0);
        parts
    };
    let packages = packages();
    let needs = |package: &Value| package["rust_version"].as_str().map(version);
    let own = |name: &str| packages.iter().find(|package| package["name"] == name).and_then(needs);
    let [machine, sass, sim, kiln] = CRATES.map(|name| own(name).unwrap());
    assert!(machine <= sass && sass <= kiln && machine <= sim && sim <= kiln);
    for package in &packages {
        let needed = needs(package).unwrap_or_default();
        assert!(needed <= kiln, "{} needs {}", package["name"], package["rust_version"]);
    }
    let readme = std::fs::read_to_string(format!("{ROOT}/README.md")).unwrap();
    let said = format!("Rust ({}.{} or newer)", kiln[0], kiln[1]);
    assert!(readme.contains(&said), "{said}");
    let setup = std::fs::read_to_string(format!("{ROOT}/scripts/setup.sh")).unwrap();
    assert!(setup.contains(&format!("Rust {}.{} or newer", kiln[0], kiln[1])));
}

/// What is published holds what it needs to build, and nothing that cannot be built from it.
#[test]
fn packages_hold_what_they_need() {
    let list = |package: &str| -> Vec<String> {
        let arguments = ["package", "--list", "--allow-dirty", "--offline", "-p", package];
        let output = Command::new(env!("CARGO")).args(arguments).current_dir(ROOT).output();
        let output = output.expect("cargo runs");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && !errors.contains("warning: manifest"), "{errors}");
        String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
    };
    let [machine, sass, sim, kiln] = CRATES.map(list);
    for own in [&machine, &sass, &sim, &kiln] {
        for file in ["LICENSE-APACHE", "LICENSE-MIT", "README.md", "Cargo.toml"] {
            assert!(own.iter().any(|path| path == file), "{file}");
        }
    }
    let within = |folder: &str| kiln.iter().filter(|path| path.starts_with(folder)).count();
    for folder in ["src/", "templates/", "examples/", "docs/", "benches/"] {
        assert!(within(folder) > 0, "{folder}");
    }
    let others = ["machine/", "sass/", "sim/"];
    for folder in ["tests/", "third_party/", ".ci/", "scripts/", "fuzz/"].into_iter().chain(others)
    {
        assert_eq!(within(folder), 0, "{folder}");
    }
    // What tests read stands beside them.
    assert!(sass.iter().any(|path| path.starts_with("tests/data/")));
    assert!(sim.iter().any(|path| path.starts_with("tests/ptx/")));
}

/// The crates that a user's program links, by name.
fn linked(features: &[&str]) -> BTreeSet<String> {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "-p", "kiln", "--edges=normal", "--prefix=none", "--format={p}"])
        .args(["--offline", "--locked"])
        .args(features)
        .current_dir(ROOT)
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect()
}

#[test]
fn a_library_links_neither_the_command_line_nor_the_simulator() {
    let manifest: toml::Table =
        std::fs::read_to_string(format!("{ROOT}/Cargo.toml")).unwrap().parse().unwrap();
    let optional = |feature: &str| -> Vec<String> {
        let needs = manifest["features"][feature].as_array().unwrap().iter();
        let crates = needs.filter_map(|need| need.as_str().unwrap().strip_prefix("dep:"));
        crates.map(str::to_owned).collect()
    };
    let (cli, sim) = (optional("cli"), optional("sim"));
    assert!(cli.len() >= 5 && sim == ["kiln-sim"], "{cli:?} {sim:?}");
    let holds = |linked: &BTreeSet<String>, crates: &[String]| -> Vec<bool> {
        crates.iter().map(|name| linked.contains(name)).collect()
    };
    let sets: [(&[&str], bool, bool); 4] = [
        (&[], true, true),
        (&["--no-default-features"], false, false),
        (&["--no-default-features", "--features=sim"], false, true),
        (&["--no-default-features", "--features=remote"], false, false),
    ];
    for (features, has_cli, has_sim) in sets {
        let linked = linked(features);
        assert_eq!(holds(&linked, &cli), vec![has_cli; cli.len()], "{features:?}: {linked:?}");
        assert_eq!(holds(&linked, &sim), vec![has_sim; sim.len()], "{features:?}: {linked:?}");
    }
    let binary = &manifest["bin"].as_array().unwrap()[0];
    assert_eq!(binary["required-features"].as_array().unwrap()[0].as_str(), Some("cli"));
}
