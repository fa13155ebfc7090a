//! The kernels expected to run best that the compiler makes well: fewer registers where it spills,
//! another engine where it fails.

use std::sync::Arc;
use std::thread;

use tracing::warn;

use crate::compile::at_once;
use crate::engine::{EngineConfig, Part};
use crate::error::{Error, ErrorKind, Result};
use crate::plan::recipe::BuiltPart;
use crate::plan::tiers::{Reach, Tiers};
use crate::target::{Arch, Target};

/// Says that an engine takes the place of one that does not compile.
pub(super) fn step_down(failed: &EngineConfig, arch: &Arch, next: &EngineConfig, error: &Error) {
    warn!("{failed} does not compile for {arch}, {next} runs instead: {error}");
}

impl Tiers {
    /// The kernels of a part, on the device; `None` when one would have to be compiled and `reach`
    /// forbids that.
    ///
    /// # Errors
    /// The error of the part's own engine, where no other compiles either.
    pub(super) fn best(&self, part: Part, reach: Reach) -> Result<Option<BuiltPart>> {
        let failed = match self.without_spills(part.clone(), reach) {
            // Without a compiler no engine is better off.
            Err(error) if error.kind() == ErrorKind::Compile && self.compiler().is_ok() => error,
            result => return result,
        };
        let target = self.device.target();
        let (mut part, mut latest) = (part, failed.clone());
        while let Some(next) = self.next_engine(&part, target)? {
            step_down(&part.config, &target.arch, &next.config, &latest);
            match self.without_spills(next.clone(), reach) {
                Err(error) if error.kind() == ErrorKind::Compile => {
                    (part, latest) = (next, error);
                }
                result => return result,
            }
        }
        Err(failed)
    }

    /// The part with the next engine that runs it, where one may take the place of another.
    pub(super) fn next_engine(&self, part: &Part, target: &Target) -> Result<Option<Part>> {
        match self.steps_down {
            true => part.next_engine(target, &self.selection),
            false => Ok(None),
        }
    }

    /// The kernels of the part's setting, or of a smaller one where the assembler had to spill
    /// registers. The heuristic estimates them, the assembler knows.
    fn without_spills(&self, part: Part, reach: Reach) -> Result<Option<BuiltPart>> {
        let target = self.device.target();
        let mut built = self.built(Arc::new(part), reach)?;
        while let Some(BuiltPart { part, .. }) = built.as_ref().filter(|of| of.spill_bytes() > 0)
            && let Some(smaller) = part.smaller(target)?
        {
            built = self.built(Arc::new(smaller), reach)?;
        }
        Ok(built)
    }

    /// As [`Tiers::best`] of every part, compiled now if they must be, several at once.
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
                self.device.enter_background()?;
            }
            best(&parts[at])
        };
        let built = at_once(parts.len(), work, |_, _| {});
        built.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codegen::Templates;
    use crate::device::Device;
    use crate::dtype::DType;
    use crate::graph::{Matmul, OperationGraph};
    use crate::plan::build::Kiln;
    use crate::plan::config::Config;
    use crate::plan::manifest::{Manifest, ManifestProblem};

    const BROKEN: &str = "#error no such luck\n";

    /// Without the kernels of these engines for products; nothing runs.
    fn without(broken: &[&str], steps_down: bool) -> Kiln {
        let config = Config { no_disk_cache: true, ..Config::default() };
        let device = Device::null(Target::named("h200").expect("known"));
        let resolved = config.resolve().expect("nothing is wrong with it");
        let mut kiln = Kiln::on(device, resolved).expect("there is nothing to open");
        let tiers = Arc::get_mut(&mut kiln.inner).expect("nobody else has it");
        let break_one = |templates: Templates, name: &&str| templates.with(name, BROKEN);
        tiers.templates = broken.iter().fold(tiers.templates.clone(), break_one);
        tiers.steps_down = steps_down;
        kiln
    }

    fn product() -> OperationGraph {
        let mut graph = OperationGraph::builder();
        let a = graph.input("a", &[256, 256], DType::Bf16);
        let b = graph.input("b", &[256, 256], DType::Bf16);
        let c = graph.matmul(Matmul::default(), a, b).expect("valid");
        graph.output(c, "c", DType::Bf16);
        graph.build().expect("valid")
    }

    const ENGINES: [(&str, &str); 3] = [
        ("gemm_wgmma", "gemm/sm90_gemm_wgmma.cu"),
        ("gemm_mma", "gemm/sm80_gemm_mma.cu"),
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
        let inline = Some(product().to_json());
        let problem = ManifestProblem { inline, ..ManifestProblem::default() };
        let mut manifest = Manifest::default();
        manifest.problems.push(problem);
        for (broken, left) in [(1, 1), (3, 0)] {
            let kiln = without(&ENGINES.map(|(_, template)| template)[..broken], true);
            let summary = kiln.warm(&manifest, &[], |_| ()).expect("a manifest");
            let engines: Vec<_> = summary.warmed.iter().map(|of| &*of.config.engine).collect();
            assert_eq!(engines, &["gemm_mma"][..left]);
            assert_eq!(summary.failed.len(), 1 - left, "{:?}", summary.failed);
        }
    }
}
