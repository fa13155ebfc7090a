//! Kernel packs for a deployment: building them from a manifest, checking coverage, verifying them
//! by running them.

use std::collections::hash_map;
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::cache::{Entry, Key, Pack, PackItem, Request};
use crate::codegen::KernelSource;
use crate::compile::{Image, compile_all, options};
use crate::engine::{EngineConfig, Part};
use crate::error::{Error, Result};
use crate::escape::escaped;
use crate::frontend::{Values, random_tensors, set_awaited};
use crate::graph::{GraphDigest, OperationGraph};
use crate::plan::build::Kiln;
use crate::plan::context::config::Config;
use crate::plan::context::kernel_store::entry_in;
use crate::plan::context::step_down::{Attempt, StepDown};
use crate::plan::deploy::manifest::Manifest;
use crate::plan::deploy::warm::{WarmProgress, Warmed};
use crate::target::Target;

/// Maximum number of elements of a problem with a canary: the simulator would need seconds for
/// more.
const CANARY_ELEMENTS_MAX: i64 = 1 << 20;

/// Seed of every canary's random inputs.
const CANARY_SEED: u64 = 2026;

/// An entry of a pack's catalog: the problem that a kernel is for, and the digests of its outputs
/// and code.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CatalogLine {
    /// The kernel's key in hexadecimal.
    pub key: String,
    /// The kernel's stem.
    pub stem: String,
    /// Name of the problem in the manifest.
    pub problem: String,
    /// The problem document.
    pub document: String,
    /// The GPU that it was planned for.
    pub target: Target,
    /// The configuration: engine and knob values.
    pub config: String,
    /// Digest of its outputs on the simulator for the canary inputs; `None` for large problems.
    pub canary: Option<String>,
    /// Digests of source and code.
    pub code: CodeDigests,
}

/// The blake3 digests, in hexadecimal, of a kernel's source, PTX and cubin. A canary runs the PTX,
/// a GPU the cubin; a signature over all three certifies that they belong together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CodeDigests {
    /// Digest of the rendered CUDA C++ source.
    pub source: String,
    /// Digest of the PTX that was compiled from the source.
    pub ptx: String,
    /// Digest of the cubin that was assembled with the PTX.
    pub cubin: String,
}

impl CodeDigests {
    fn of(source: &str, image: &Image) -> CodeDigests {
        let parts: [&[u8]; 3] = [source.as_bytes(), image.ptx.as_bytes(), &image.cubin];
        let [source, ptx, cubin] = parts.map(|part| blake3::hash(part).to_hex().to_string());
        CodeDigests { source, ptx, cubin }
    }
}

/// Result of verifying a pack.
#[derive(Debug, Default)]
pub struct Verified {
    /// Number of undamaged entries.
    pub sound: usize,
    /// Number of canaries with the expected outputs.
    pub canaries: usize,
    /// Number of kernels without a canary.
    pub without_canary: usize,
    /// Number of kernels whose recompiled source gave the same PTX and cubin, or failed to compile
    /// again.
    pub rebuilt: usize,
    /// Why no kernel was recompiled; `None` if all were.
    pub not_rebuilt: Option<String>,
    /// All problems found.
    pub problems: Vec<String>,
}

/// Result of checking packs against a manifest.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Coverage {
    /// Number of problems whose kernels are all in the packs.
    pub covered: usize,
    /// Problems with a kernel that would have to be compiled: name, and missing key.
    pub missing: Vec<(String, Key)>,
}

impl Kiln {
    /// Builds the pack of a manifest for one target and returns the number of kernels in it. No GPU
    /// is needed.
    ///
    /// Kernels in the cache are reused, the others are compiled in parallel. `shard` of `(i, n)`
    /// selects every n-th kernel from the i-th, to distribute a build over machines;
    /// [`merge_packs`] merges the shards.
    ///
    /// # Errors
    /// As [`Kiln::warm`]; the first problem that cannot be served; `Io` when the file cannot be
    /// written.
    pub fn build_pack(
        &self,
        manifest: &Manifest,
        target: &Target,
        shard: (usize, usize),
        path: &Path,
        progress: impl FnMut(WarmProgress<'_>),
    ) -> Result<usize> {
        let mut summary = self.warm(manifest, std::slice::from_ref(target), progress)?;
        if let Some((name, error)) = summary.failed.pop() {
            return Err(error.context(name));
        }
        let mut seen = HashSet::new();
        let (shard_at, shards) = shard;
        // A kernel that does not compile is packed as a refusal, so that the pack's users need not
        // try.
        let mine: Vec<&Warmed> = summary
            .warmed
            .iter()
            .chain(&summary.refused)
            .filter(|warmed| seen.insert(Key::of(&warmed.request)))
            .enumerate()
            .filter(|(position, _)| position % shards == shard_at)
            .map(|(_, warmed)| warmed)
            .collect();
        let simulator = self.canary_device(target, None)?;
        let mut canaries = Canaries::new();
        let mut line = |warmed: &&Warmed| catalog_line(&simulator, &mut canaries, warmed);
        let catalog: Vec<CatalogLine> = mine.iter().map(&mut line).collect::<Result<_>>()?;
        let items: Vec<PackItem> = mine
            .iter()
            .map(|warmed| PackItem {
                key: Key::of(&warmed.request),
                // Without times, so that equal kernels give an equal pack.
                entry: Entry::encode(&warmed.request, &warmed.image, Duration::ZERO),
            })
            .collect();
        let catalog = serde_json::to_string(&catalog).expect("plain data is JSON");
        Pack::write(path, target.arch, &self.toolchain()?, items, &catalog)?;
        Ok(mine.len())
    }

    /// A Kiln on a simulated device of a target, with a pack alone or with this Kiln's cache.
    fn canary_device(&self, target: &Target, pack: Option<&Pack>) -> Result<Kiln> {
        let key = Manifest::name_of(target).ok_or_else(|| {
            Error::bad_param(format!("target `{}` is not in the table of GPUs", target.name))
        })?;
        Kiln::open(Config {
            device: Some(format!("sim:{key}").parse()?),
            cache_dir: self.disk_cache().map(|disk| disk.folder().to_owned()),
            no_disk_cache: pack.is_some() || self.disk_cache().is_none(),
            packs: Some(pack.into_iter().cloned().collect()),
            no_jit: Some(pack.is_some()),
            // The pack is verified whoever signed it.
            trust_roots: Some(Vec::new()),
            trust_version: Some(0),
            trust_expiry: Some(false),
            trust_all: Some(false),
            nvrtc: self.nvrtc().ok().map(|located| located.path),
            // Canaries are not part of what the program plans.
            record: Some(PathBuf::new()),
            ..Config::default()
        })
    }

    /// Verifies a pack: checks every byte and the signature, runs the canaries on the simulator
    /// from the pack alone, and recompiles the sources if this NVRTC is the one that built it.
    /// Canaries run the PTX; only recompilation shows that the cubin belongs to it.
    ///
    /// # Errors
    /// `BadParam` when the catalog cannot be read.
    pub fn verify_pack(&self, pack: &Pack) -> Result<Verified> {
        let mut verified = Verified::default();
        if let Err(error) = pack.require_trust(&self.inner.trust) {
            verified.problems.push(error.to_string());
        }
        let damaged = pack.verify();
        verified.sound = pack.len() - damaged.len().min(pack.len());
        verified.problems.extend(damaged.iter().map(ToString::to_string));
        let lines = catalog(pack)?;
        verified.problems.extend(belongs_together(pack, &lines));
        self.rebuild(pack, &mut verified);
        for line in lines {
            let Some(expected) = &line.canary else {
                verified.without_canary += 1;
                continue;
            };
            let ran = self.canary_device(&line.target, Some(pack)).and_then(|simulator| {
                let graph = OperationGraph::from_json(&line.document)?;
                canary(&simulator, &graph, &line.config.parse()?)
            });
            match ran {
                Ok(digest) if digest == *expected => verified.canaries += 1,
                Ok(digest) => verified.problems.push(format!(
                    "{} ({}): the canary gives {}, expected {}",
                    line.stem,
                    line.problem,
                    &digest[..16],
                    expected.get(..16).unwrap_or(expected)
                )),
                Err(error) => {
                    verified.problems.push(format!("{} ({}): {error}", line.stem, line.problem));
                }
            }
        }
        Ok(verified)
    }

    /// Recompiles every source of a pack and compares the results.
    fn rebuild(&self, pack: &Pack, verified: &mut Verified) {
        let (compiler, toolchain) = match self.compiler_and_toolchain() {
            Ok(found) => found,
            Err(_) => return verified.not_rebuilt = Some("there is no NVRTC".to_owned()),
        };
        if toolchain != pack.toolchain() {
            let by = pack.toolchain();
            return verified.not_rebuilt = Some(format!("built by {by}, here is {toolchain}"));
        }
        // Damaged entries have been reported.
        let entries = pack.keys().filter_map(|key| pack.get(key).ok().flatten());
        let (mut sources, mut images) = (Vec::new(), Vec::new());
        for Entry { request, image, .. } in entries {
            let Request { stem, entry, source, options: asked, arch, .. } = request;
            if asked != options(arch) {
                let asked = asked.join(" ");
                verified.problems.push(format!("{stem} was compiled with other options: {asked}"));
                continue;
            }
            sources.push(KernelSource { stem, entry, arch, text: source });
            images.push(image);
        }
        let again = compile_all(compiler, &sources, |_, _| {});
        for ((source, packed), again) in sources.iter().zip(&images).zip(again) {
            let differs = match again {
                Ok(_) if packed.refusal().is_some() => "its source compiles here".to_owned(),
                Ok(again) if again.ptx != packed.ptx => "its source gives other PTX".to_owned(),
                Ok(again) if again.cubin != packed.cubin => {
                    "its source gives another cubin".to_owned()
                }
                Ok(_) => {
                    verified.rebuilt += 1;
                    continue;
                }
                Err(_) if packed.refusal().is_some() => {
                    verified.rebuilt += 1;
                    continue;
                }
                Err(error) => error.to_string(),
            };
            verified.problems.push(format!("{}: {differs}", source.stem));
        }
    }

    /// Checks whether a program that plans the problems of a manifest on this target needs kernels
    /// that are not in these packs.
    ///
    /// The check follows the steps of [`Kiln::plan`] for every problem with each pack's toolchain,
    /// including configurations that spill, both with this Kiln's tuning records and without.
    ///
    /// # Errors
    /// `BadParam` for a bad manifest and for a pack that no trust root of this Kiln has signed,
    /// `NotSupported` for a problem no engine runs.
    pub fn covers(&self, packs: &[Pack], manifest: &Manifest, target: &Target) -> Result<Coverage> {
        packs.iter().try_for_each(|pack| pack.require_trust(&self.inner.trust))?;
        let mut coverage = Coverage::default();
        for instance in manifest.instances()? {
            if !instance.is_for(target)? {
                continue;
            }
            let mut missing = None;
            for (_, way) in self.parts_of(&instance, target)? {
                missing = missing.or(self.missing(packs, way, target)?);
            }
            match missing {
                Some(key) => coverage.missing.push((instance.name, key)),
                None => coverage.covered += 1,
            }
        }
        Ok(coverage)
    }

    /// The first kernel of a part's fallback sequence that is not in the packs.
    fn missing(&self, packs: &[Pack], mut way: StepDown, target: &Target) -> Result<Option<Key>> {
        loop {
            let Part { graph, config } = way.part();
            let mut attempt = Attempt::Built { spills: false };
            for source in self.inner.sources(graph, target, config)? {
                let Some(Entry { image, .. }) = entry_in(packs, &source) else {
                    let toolchain = packs.first().map(Pack::toolchain).cloned();
                    let toolchain = toolchain.map_or_else(|| self.toolchain(), Ok)?;
                    return Ok(Some(Key::of(&Request::new(&source, &toolchain))));
                };
                if let Some(reason) = image.refusal() {
                    attempt = Attempt::Refused(Error::compile(escaped(reason)));
                } else if let Attempt::Built { spills } = &mut attempt {
                    *spills |= image.resources.spill_bytes > 0;
                }
            }
            if !way.next(attempt, &self.inner, target)? {
                return Ok(None);
            }
        }
    }
}

/// Reads the catalog of a pack.
///
/// # Errors
/// `BadParam` when it is damaged.
pub fn catalog(pack: &Pack) -> Result<Vec<CatalogLine>> {
    serde_json::from_str(&pack.catalog()?).map_err(|error| {
        let name = pack.name().display();
        Error::bad_param(format!("pack `{name}`: its catalog is damaged: {error}"))
    })
}

/// The differences between a pack's entries and the digests in its catalog.
fn belongs_together(pack: &Pack, lines: &[CatalogLine]) -> Vec<String> {
    let entry = |key: Key| pack.get(key).ok().flatten();
    let wrong = |line: &CatalogLine| {
        let found = entry(Key::from_hex(&line.key)?)?;
        let differs = CodeDigests::of(&found.request.source, &found.image) != line.code;
        differs.then(|| format!("{} ({}): it is not what was packed", line.stem, line.problem))
    };
    let listed: HashSet<Key> = lines.iter().filter_map(|line| Key::from_hex(&line.key)).collect();
    let unlisted = pack.keys().filter(|key| !listed.contains(key));
    let unlisted = unlisted.map(|key| format!("entry {key} is not in the catalog"));
    lines.iter().filter_map(wrong).chain(unlisted).collect()
}

/// Merges packs of the same architecture and toolchain into one and returns the number of kernels
/// in it. Of two entries with the same key the first is kept.
///
/// # Errors
/// `BadParam` when architectures or toolchains differ or a pack is damaged, `Io` when the file
/// cannot be written.
pub fn merge_packs(packs: &[Pack], path: &Path) -> Result<usize> {
    let first = packs.first().ok_or_else(|| Error::bad_param("no pack to merge"))?;
    let (mut items, mut lines) = (Vec::new(), Vec::<CatalogLine>::new());
    for pack in packs {
        if (pack.arch(), pack.toolchain()) != (first.arch(), first.toolchain()) {
            return Err(Error::bad_param(format!(
                "packs differ: `{}` is for {} by {}, `{}` for {} by {}",
                first.name().display(),
                first.arch(),
                first.toolchain(),
                pack.name().display(),
                pack.arch(),
                pack.toolchain()
            )));
        }
        items.extend(pack.items()?);
        for line in catalog(pack)? {
            if !lines.iter().any(|known| known.key == line.key) {
                lines.push(line);
            }
        }
    }
    lines.sort_by(|a, b| a.key.cmp(&b.key));
    let text = serde_json::to_string(&lines).expect("plain data is JSON");
    Pack::write(path, first.arch(), first.toolchain(), items, &text)?;
    Ok(lines.len())
}

/// Digests of outputs by graph and configuration, which the kernels of a configuration share.
type Canaries = HashMap<(GraphDigest, EngineConfig), String>;

fn catalog_line(simulator: &Kiln, canaries: &mut Canaries, warmed: &Warmed) -> Result<CatalogLine> {
    let Warmed { name, target, part: Part { graph, config }, request, image, .. } = warmed;
    let elements = |graph: &OperationGraph| {
        graph.tensors().iter().filter_map(|tensor| tensor.elements()).max().unwrap_or(0)
    };
    let small = elements(graph) <= CANARY_ELEMENTS_MAX;
    // A configuration that spills is packed as part of the fallback sequence; no plan runs it.
    let runs = small && image.resources.spill_bytes == 0 && image.refusal().is_none();
    let canary = match canaries.entry((graph.digest(), config.clone())) {
        _ if !runs => None,
        hash_map::Entry::Occupied(known) => Some(known.get().clone()),
        hash_map::Entry::Vacant(free) => {
            Some(free.insert(canary(simulator, graph, config)?).clone())
        }
    };
    Ok(CatalogLine {
        key: Key::of(request).to_hex(),
        stem: request.stem.clone(),
        problem: name.clone(),
        document: graph.to_json(),
        target: target.clone(),
        config: config.to_string(),
        canary,
        code: CodeDigests::of(&request.source, image),
    })
}

/// Runs a configuration on the canary inputs and returns the digest of its outputs.
fn canary(simulator: &Kiln, graph: &OperationGraph, config: &EngineConfig) -> Result<String> {
    let plan = simulator.plan_with(graph, config)?;
    let mut inputs = random_tensors(graph.inputs(), CANARY_SEED)?;
    set_awaited(graph, &mut inputs);
    let outputs = simulator.trial(&plan, &inputs)?.outputs;
    Ok(digest(graph, &outputs))
}

fn digest(graph: &OperationGraph, outputs: &Values) -> String {
    let mut hasher = blake3::Hasher::new_derive_key("kiln 2026-11 canary outputs");
    for tensor in graph.outputs() {
        hasher.update(tensor.name.as_bytes());
        for value in &outputs[&tensor.uid] {
            hasher.update(&value.to_bits().to_le_bytes());
        }
    }
    hasher.finalize().to_hex().to_string()
}
