//! Manifests: the problems that a deployment will plan.
//!
//! ```toml
//! targets = ["h200", "sm_80"]        # names in the table of GPUs, or architectures
//!
//! [[problem]]
//! file = "chain.json"                # relative to the manifest; or `inline`, the JSON itself
//! targets = ["h200"]                 # restricts the targets; default: all
//! config = "pointwise{...}"          # this configuration; default: the heuristic's
//! [problem.vary]                     # one problem per combination
//! rows = [1, 8, 64]
//! dtype = ["bf16", "f16"]
//! ```
//! In the problem document, the string `"${rows}"` is replaced by the value; within a longer string
//! it is replaced by the value's text. Problem documents of every front-end are allowed, networks
//! with loops among them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::documents::{self, Planned};
use crate::engine::EngineConfig;
use crate::error::{Error, Result};
use crate::target::Target;

/// Maximum number of problems; more indicate a mistake in `vary`.
const PROBLEMS_MAX: usize = 100_000;

/// A list of problems and targets.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// Names of targets ([`Manifest::target`]); empty: the current device.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub targets: Vec<String>,
    /// The problems.
    #[serde(default, rename = "problem")]
    pub problems: Vec<ManifestProblem>,
    /// The folder that file names are relative to.
    #[serde(skip)]
    folder: PathBuf,
}

/// A problem document and its varying parameters.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ManifestProblem {
    /// File of the problem document.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<PathBuf>,
    /// The problem document.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inline: Option<String>,
    /// Restricts the targets to these names; empty: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub targets: Vec<String>,
    /// Engine and knob values; `None`: the heuristic's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<String>,
    /// Values per parameter; there is one problem per combination.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub vary: BTreeMap<String, Vec<toml::Value>>,
}

/// A graph or a network of a manifest's problem, with parameter values filled in.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Instance {
    /// File and parameter values: `chain.json [columns=768, rows=8]`.
    pub name: String,
    /// What to plan.
    pub planned: Planned,
    /// Restricts the targets to these names; empty: all.
    pub targets: Vec<String>,
    /// Engine and knob values; `None`: the heuristic's.
    pub config: Option<EngineConfig>,
}

impl Instance {
    /// Whether the target is one of its targets.
    ///
    /// # Errors
    /// `BadParam` for an unknown target name.
    pub fn is_for(&self, target: &Target) -> Result<bool> {
        let own = self.own_targets()?;
        Ok(own.is_empty() || own.contains(target))
    }

    pub(in crate::plan) fn own_targets(&self) -> Result<Vec<Target>> {
        let targets = self.targets.iter().map(|name| Manifest::target(name));
        targets.collect::<Result<_>>().map_err(|error| error.context(&self.name))
    }
}

impl Manifest {
    /// Reads a manifest file.
    ///
    /// # Errors
    /// `BadParam` when it cannot be read or is malformed.
    pub fn read(path: &Path) -> Result<Manifest> {
        let shown = path.display();
        let text = fs::read_to_string(path).map_err(|error| {
            Error::bad_param(format!("failed to read manifest `{shown}`: {error}"))
        })?;
        let folder = path.parent().unwrap_or(Path::new("")).to_owned();
        Manifest::parse(&text, &folder).map_err(|error| error.context(format_args!("`{shown}`")))
    }

    /// Reads a manifest's text; relative file names start at `folder`.
    ///
    /// # Errors
    /// `BadParam` for malformed TOML, with line and column.
    pub fn parse(text: &str, folder: &Path) -> Result<Manifest> {
        let manifest: Manifest = toml::from_str(text)
            .map_err(|error| Error::bad_param(format!("malformed manifest: {error}")))?;
        Ok(Manifest { folder: folder.to_owned(), ..manifest })
    }

    /// Creates a manifest of problems; file names are relative to the working folder.
    pub fn of(problems: Vec<ManifestProblem>) -> Manifest {
        Manifest { problems, ..Manifest::default() }
    }

    /// Writes the manifest as TOML.
    pub fn to_toml(&self) -> String {
        toml::to_string_pretty(self).expect("plain data is TOML")
    }

    /// The target with a name: a GPU in the table, or an architecture, which means the first GPU in
    /// the table with that architecture.
    ///
    /// # Errors
    /// `BadParam` for an unknown name.
    pub fn target(name: &str) -> Result<Target> {
        let has_arch = |key: &&str| {
            !key.starts_with("sim")
                && Target::named(key).is_ok_and(|target| target.arch.to_string() == name)
        };
        match Target::names().find(has_arch) {
            Some(key) => Target::named(key),
            None => Target::named(name),
        }
    }

    /// The name of a target, if it is in the table.
    pub fn name_of(target: &Target) -> Option<&'static str> {
        Target::names().find(|key| Target::named(key).is_ok_and(|known| known == *target))
    }

    /// Expands the manifest: every graph of every problem, or its network, for each combination of
    /// parameter values.
    ///
    /// # Errors
    /// `BadParam` for a problem with no document or with two, an unreadable file, a placeholder
    /// without values, or an invalid problem; the text says which problem.
    pub fn instances(&self) -> Result<Vec<Instance>> {
        let mut instances = Vec::new();
        for (position, problem) in self.problems.iter().enumerate() {
            let (name, text) = self.document(position, problem)?;
            let document: Value = serde_json::from_str(&text)
                .map_err(|error| Error::bad_param(format!("{name}: malformed problem: {error}")))?;
            for values in combinations(&problem.vary) {
                let name = match values.is_empty() {
                    true => name.clone(),
                    false => format!("{name} [{}]", shown(&values)),
                };
                let failed = |error: Error| error.context(&name);
                let filled = fill(&document, &values).map_err(failed)?;
                let all = documents::read(&filled.to_string()).map_err(failed)?.planned();
                let config = problem.config.as_ref().map(|text| text.parse());
                let config = config.transpose().map_err(failed)?;
                if config.is_some() && !matches!(all[..], [Planned::Graph(_)]) {
                    let rule = "a configuration requires a problem of one graph";
                    return Err(failed(Error::bad_param(rule)));
                }
                let count = all.len();
                for (number, planned) in all.into_iter().enumerate() {
                    let name = graph_name(&name, number, count);
                    let (targets, config) = (problem.targets.clone(), config.clone());
                    instances.push(Instance { name, planned, targets, config });
                }
                if instances.len() > PROBLEMS_MAX {
                    let text = format!("the manifest has more than {PROBLEMS_MAX} problems");
                    return Err(Error::bad_param(text));
                }
            }
        }
        Ok(instances)
    }

    fn document(&self, position: usize, problem: &ManifestProblem) -> Result<(String, String)> {
        let number = position + 1;
        match (&problem.file, &problem.inline) {
            (Some(file), None) => {
                let path = self.folder.join(file);
                let shown = file.display().to_string();
                let text = fs::read_to_string(&path).map_err(|error| {
                    let path = path.display();
                    Error::bad_param(format!("failed to read problem `{path}`: {error}"))
                })?;
                Ok((shown, text))
            }
            (None, Some(text)) => Ok((format!("problem {number}"), text.clone())),
            _ => Err(Error::bad_param(format!("problem {number}: expected `file` or `inline`"))),
        }
    }
}

/// The name of a problem's graph.
pub(in crate::plan) fn graph_name(problem: &str, number: usize, count: usize) -> String {
    match count {
        1 => problem.to_owned(),
        _ => format!("{problem}, graph {} of {count}", number + 1),
    }
}

type Values = BTreeMap<String, Value>;

fn combinations(vary: &BTreeMap<String, Vec<toml::Value>>) -> Vec<Values> {
    let mut all = vec![Values::new()];
    for (name, values) in vary {
        let extend = |known: &Values| {
            let with = |value: &toml::Value| {
                let value = serde_json::to_value(value).expect("TOML scalars are JSON");
                let mut values = known.clone();
                values.insert(name.clone(), value);
                values
            };
            values.iter().map(with).collect::<Vec<_>>()
        };
        all = all.iter().flat_map(extend).collect();
    }
    all
}

fn shown(values: &Values) -> String {
    let pairs: Vec<String> =
        values.iter().map(|(name, value)| format!("{name}={}", plain(value))).collect();
    pairs.join(", ")
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Fills in the placeholders of a document.
fn fill(document: &Value, values: &Values) -> Result<Value> {
    Ok(match document {
        Value::String(text) => fill_text(text, values)?,
        Value::Array(items) => {
            Value::Array(items.iter().map(|item| fill(item, values)).collect::<Result<_>>()?)
        }
        Value::Object(entries) => Value::Object(
            entries
                .iter()
                .map(|(key, item)| Ok((key.clone(), fill(item, values)?)))
                .collect::<Result<_>>()?,
        ),
        other => other.clone(),
    })
}

fn fill_text(text: &str, values: &Values) -> Result<Value> {
    let find = |name: &str| {
        values.get(name).ok_or_else(|| {
            Error::bad_param(format!("placeholder `${{{name}}}` has no values under `vary`"))
        })
    };
    // A string that consists of a placeholder becomes the value, of any type.
    if let Some(name) = text.strip_prefix("${").and_then(|rest| rest.strip_suffix('}'))
        && !name.contains("${")
    {
        return find(name).cloned();
    }
    let mut filled = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        let (name, after) = after
            .split_once('}')
            .ok_or_else(|| Error::bad_param(format!("placeholder without end in `{text}`")))?;
        filled.push_str(before);
        filled.push_str(&plain(find(name)?));
        rest = after;
    }
    filled.push_str(rest);
    Ok(Value::String(filled))
}

#[cfg(test)]
mod tests {
    use super::*;

    const INLINE: &str = r#"
targets = ["h200"]

[[problem]]
inline = '''{"graph": {
  "tensors": [{"name": "x", "dtype": "${dtype}", "dims": ["${rows}", 8]},
              {"name": "y_${rows}", "dtype": "f32", "dims": ["${rows}", 8]}],
  "operations": [{"pointwise": "neg", "inputs": ["x"], "output": "y_${rows}"}]}}'''
[problem.vary]
rows = [1, 2, 3]
dtype = ["bf16", "f16"]
"#;

    #[test]
    fn parameters_multiply_out() {
        let manifest = Manifest::parse(INLINE, Path::new("")).expect("valid");
        let instances = manifest.instances().expect("valid");
        assert_eq!(instances.len(), 6);
        assert_eq!(instances[0].name, "problem 1 [dtype=bf16, rows=1]");
        let graph = instances[5].planned.graph().expect("it is one");
        assert_eq!(graph.tensors()[0].to_string(), "x: f16[3, 8]");
        assert_eq!(graph.tensors()[1].name, "y_3");
        let back = Manifest::parse(&manifest.to_toml(), Path::new("")).expect("valid");
        assert_eq!(back, manifest);
    }

    #[test]
    fn bad_manifests_say_where() {
        let check = |text: &str| {
            let manifest = Manifest::parse(text, Path::new("/nowhere"));
            manifest.and_then(|manifest| manifest.instances()).expect_err("bad").to_string()
        };
        assert_eq!(check("[[problem]]\n"), "problem 1: expected `file` or `inline`");
        assert_eq!(
            check("[[problem]]\nfile = \"a.json\""),
            "failed to read problem `/nowhere/a.json`: No such file or directory (os error 2)"
        );
        assert_eq!(
            check("[[problem]]\ninline = '{\"graph\": \"${n}\"}'"),
            "problem 1: placeholder `${n}` has no values under `vary`"
        );
        assert_eq!(
            check(
                "[[problem]]\nconfig = 'fast'\ninline = '''{\"graph\": {\"tensors\": [
                {\"name\": \"x\", \"dtype\": \"f32\", \"dims\": [1]},
                {\"name\": \"y\", \"dtype\": \"f32\", \"dims\": [1]}], \"operations\": [
                {\"pointwise\": \"neg\", \"inputs\": [\"x\"], \"output\": \"y\"}]}}'''"
            ),
            "problem 1: malformed engine configuration `fast`: expected like pointwise{items=2}"
        );
        assert!(
            check("[[problems]]\n").starts_with("malformed manifest: TOML parse error at line 1")
        );
    }

    #[test]
    fn targets_are_named_by_gpu_or_architecture() {
        let name = |text: &str| Manifest::target(text).map(|target| target.name);
        assert_eq!(name("sm_90a").expect("known"), "NVIDIA H100 80GB HBM3");
        assert_eq!(name("l40s").expect("known"), "NVIDIA L40S");
        assert!(name("sm_42").is_err());
    }
}
