//! Kernels of a part: of the configuration expected to be fastest, or of the next one if that does
//! not compile, spills registers, or has more blocks that wait for each other than the device
//! holds.

use std::sync::Arc;
use std::thread;

use crate::compile::at_once;
use crate::engine::Part;
use crate::error::{ErrorKind, Result};
use crate::plan::context::kernel_store::Reach;
use crate::plan::context::planner::Planner;
use crate::plan::context::step_down::{Attempt, StepDown};
use crate::plan::recipe::BuiltPart;

impl Planner {
    /// The kernels of a part, loaded on the device. `None` if one of them would have to be compiled
    /// and `reach` excludes that.
    ///
    /// # Errors
    /// The compilation error of the part's own engine if no other engine's kernels compile either.
    pub(super) fn best(&self, part: Part, reach: Reach) -> Result<Option<BuiltPart>> {
        Ok(self.stepped_down(part, reach)?.1)
    }

    /// The part with the configuration that is run, and its kernels. If `reach` excludes a
    /// compilation that is needed, the part has the configuration that needs it, and there are no
    /// kernels.
    pub(super) fn stepped_down(
        &self,
        part: Part,
        reach: Reach,
    ) -> Result<(Part, Option<BuiltPart>)> {
        let mut way = StepDown::from(part);
        loop {
            let (built, attempt) = match self.built(Arc::new(way.part().clone()), reach) {
                Ok(None) => return Ok((way.into_part(), None)),
                Ok(Some(built)) => match built.check() {
                    Ok(()) => {
                        let spills = built.spill_bytes() > 0;
                        (Some(built), Attempt::Built { spills })
                    }
                    Err(error) if error.kind() == ErrorKind::NotSupported => {
                        (None, Attempt::Refused(error))
                    }
                    Err(error) => return Err(error),
                },
                Err(error) if error.kind() == ErrorKind::Compile => (None, Attempt::Refused(error)),
                Err(error) => return Err(error),
            };
            if !way.next(attempt, self, self.store.device.target())? {
                return Ok((way.into_part(), built));
            }
        }
    }

    /// As [`Planner::best`] for every part, compiling what is missing in parallel.
    pub(super) fn compiled_best(&self, parts: Vec<Part>) -> Result<Vec<BuiltPart>> {
        let best = |part: &Part| {
            let best = self.best(part.clone(), Reach::Compiled)?;
            Ok(best.expect("nothing is out of the compiler's reach"))
        };
        if let [part] = &parts[..] {
            return Ok(vec![best(part)?]);
        }
        let here = thread::current().id();
        let work = |at: usize| {
            if thread::current().id() != here {
                self.store.device.enter_background()?;
            }
            best(&parts[at])
        };
        let built = at_once(parts.len(), work, |_, _| {});
        built.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::cache::{Key, Pack};
    use crate::codegen::Templates;
    use crate::device::Device;
    use crate::dtype::DType;
    use crate::graph::{Matmul, OperationGraph};
    use crate::plan::build::Kiln;
    use crate::plan::context::config::Config;
    use crate::plan::deploy::manifest::{Manifest, ManifestProblem};
    use crate::plan::execute::ExecutionPlan;
    use crate::target::Target;

    const BROKEN: &str = "#error no such luck\n";

    /// A Kiln on a null device with the limits of an H200, with replaced template texts.
    fn kiln(config: Config, texts: &[(&str, &str)], steps_down: bool) -> Kiln {
        let device = Device::null(Target::named("h200").expect("known"));
        let resolved = config.resolve().expect("nothing is wrong with it");
        let mut kiln = Kiln::on(device, resolved).expect("there is nothing to open");
        let planner = Arc::get_mut(&mut kiln.inner).expect("nobody else has it");
        let change = |templates: Templates, (name, text): &(&str, &str)| templates.with(name, text);
        planner.templates = texts.iter().fold(planner.templates.clone(), change);
        planner.steps_down = steps_down;
        kiln
    }

    /// A Kiln whose named GEMM templates do not compile.
    fn without(broken: &[&str], steps_down: bool) -> Kiln {
        let texts: Vec<_> = broken.iter().map(|name| (*name, BROKEN)).collect();
        kiln(Config { no_disk_cache: true, ..Config::default() }, &texts, steps_down)
    }

    fn manifest(graph: &OperationGraph) -> Manifest {
        let inline = Some(graph.to_json());
        let mut manifest = Manifest::default();
        manifest.problems.push(ManifestProblem { inline, ..ManifestProblem::default() });
        manifest
    }

    fn product() -> OperationGraph {
        square(256)
    }

    fn square(size: i64) -> OperationGraph {
        let mut graph = OperationGraph::builder();
        let a = graph.input("a", &[size, size], DType::Bf16);
        let b = graph.input("b", &[size, size], DType::Bf16);
        let c = graph.matmul(Matmul::default(), a, b).expect("valid");
        graph.output(c, "c", DType::Bf16);
        graph.build().expect("valid")
    }

    const ENGINES: [(&str, &str); 3] = [
        ("gemm_wgmma", "gemm/sm90_gemm_wgmma.cu"),
        ("gemm_mma", "gemm/sm75_gemm_mma.cu"),
        ("gemm_simt", "gemm/sm75_gemm_simt.cu"),
    ];

    #[test]
    fn an_engine_that_does_not_compile_gives_way_to_the_next() {
        let templates = ENGINES.map(|(_, template)| template);
        for (broken, (expected, _)) in ENGINES.iter().enumerate() {
            let plan = without(&templates[..broken], true).plan(&product()).expect("one compiles");
            assert_eq!(plan.kernels()[0].config().engine, *expected);
        }
        let error = without(&templates, true).plan(&product()).expect_err("none compiles");
        assert_eq!(error.kind(), ErrorKind::Compile);
        let text = error.to_string();
        assert!(text.contains("sm90_gemm_bf16_wgmma") && text.contains("no such luck"), "{text}");
        let error = without(&templates[..1], false).plan(&product()).expect_err("it stays");
        assert!(error.to_string().contains("sm90_gemm_bf16_wgmma"), "{error}");
    }

    #[test]
    fn warming_up_takes_the_engine_that_a_plan_takes() {
        for (broken, left) in [(1, 1), (3, 0)] {
            let kiln = without(&ENGINES.map(|(_, template)| template)[..broken], true);
            let summary = kiln.warm(&manifest(&product()), &[], |_| ()).expect("a manifest");
            let engines: Vec<_> = summary.warmed.iter().map(|of| &*of.part.config.engine).collect();
            assert_eq!(engines, &["gemm_mma"][..left]);
            assert_eq!(summary.failed.len(), 1 - left, "{:?}", summary.failed);
        }
    }

    /// A template text that limits registers so far that large tiles spill.
    fn short_of_registers(name: &str) -> String {
        let path = format!("{}/templates/{name}.tera", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(path).expect("readable");
        let short = text.replace("__launch_bounds__(THREADS, 1)", "__maxnreg__(128)");
        assert_ne!(text, short);
        short
    }

    /// Planning, warm-up, pack building and the coverage check need the same kernels if those of
    /// the first configuration do not compile or spill.
    #[test]
    fn all_step_down_to_the_same_kernels() {
        let h200 = Target::named("h200").expect("known");
        let [(_, wgmma), (_, mma), _] = ENGINES;
        // Large enough for large tiles, too large for canaries.
        let graph = square(2048);
        let manifest = manifest(&graph);
        let short = short_of_registers(mma);
        let broken = [(wgmma, BROKEN)];
        let spilling = [(wgmma, BROKEN), (mma, &*short)];
        for (texts, spills) in [(&broken[..], false), (&spilling, true)] {
            let folder = tempfile::tempdir().expect("temporary folder");
            let cache_dir = Some(folder.path().to_owned());
            let config = Config { cache_dir, ..Config::default() };
            let builder = kiln(config, texts, true);
            let path = folder.path().join("a.kilnpack");
            let summary = builder.warm(&manifest, &[], |_| ()).expect("a manifest");
            assert!(summary.failed.is_empty(), "{:?}", summary.failed);
            let warmed = |spilled: bool| -> BTreeSet<Key> {
                let all = summary.warmed.iter();
                let own = all.filter(|of| (of.image.resources.spill_bytes > 0) == spilled);
                own.map(|of| Key::of(&of.request)).collect()
            };
            assert_eq!(!warmed(true).is_empty(), spills, "take fewer registers");
            builder
                .build_pack(&manifest, &h200, (0, 1), &path, |_| ())
                .expect("what was warmed is packed");
            let pack = Pack::open(&path).expect("a pack");
            let verified = builder.verify_pack(&pack).expect("its catalog is sound");
            assert_eq!((verified.rebuilt, &verified.problems[..]), (pack.len(), &[][..]));
            let refused: BTreeSet<Key> =
                summary.refused.iter().map(|of| Key::of(&of.request)).collect();
            let all = warmed(true).into_iter().chain(warmed(false)).chain(refused.clone());
            assert_eq!(pack.keys().collect::<BTreeSet<_>>(), all.collect());
            // Coverage needs every kernel of the sequence: those that were tried and those that
            // run.
            let packs = [pack];
            let covered = |packs: &[Pack]| {
                builder.covers(packs, &manifest, &h200).expect("a manifest").missing
            };
            assert_eq!(covered(&packs), []);
            for gone in packs[0].keys() {
                let items = packs[0].items().expect("sound").into_iter();
                let items = items.filter(|item| item.key != gone).collect();
                let path = folder.path().join("less.kilnpack");
                let toolchain = packs[0].toolchain();
                Pack::write(&path, packs[0].arch(), toolchain, items, "[]").expect("writable");
                let missing = covered(&[Pack::open(&path).expect("a pack")]);
                assert_eq!(missing.iter().map(|(_, key)| *key).collect::<Vec<_>>(), [gone]);
            }
            let launched = |plan: &ExecutionPlan| -> BTreeSet<Key> {
                plan.kernels().iter().map(|kernel| kernel.report().key).collect()
            };
            let plan = builder.plan(&graph).expect("one compiles");
            assert_eq!(launched(&plan), warmed(false));
            assert_eq!(plan.kernels()[0].config().engine, "gemm_mma");
            // Without a compiler, in strict mode.
            let strict = Config {
                packs: Some(packs.to_vec()),
                no_jit: Some(true),
                no_disk_cache: true,
                nvrtc: Some("/nowhere".into()),
                ..Config::default()
            };
            let strict = kiln(strict, texts, true);
            assert_eq!(launched(&strict.plan(&graph).expect("packed")), warmed(false));
        }
    }
}
