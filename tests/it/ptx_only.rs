//! Kernels that only the simulator runs are compiled to PTX, where that is asked for.

use std::path::Path;

use kiln::compile::{Image, Resources};
use kiln::expr::{Mode, Pointwise};
use kiln::plan::{Manifest, ManifestProblem, Origin};
use kiln::{Config, DType, Kiln, OperationGraph};

use crate::harness::{self, Values};

fn graph() -> OperationGraph {
    let mut graph = OperationGraph::builder();
    let x = graph.input("x", &[777], DType::F32);
    let y = graph.pointwise(Pointwise::new(Mode::Sqrt), &[x]).unwrap();
    graph.output(y, "y", DType::F32);
    graph.build().unwrap()
}

fn open(folder: &Path, ptx_only: bool) -> Kiln {
    let device = Some("sim".parse().unwrap());
    let (cache_dir, ptx_only) = (Some(folder.to_owned()), Some(ptx_only));
    Kiln::open(Config { device, cache_dir, ptx_only, ..Config::default() }).unwrap()
}

/// Plans and runs: where the kernel came from, and its image.
fn planned(kiln: &Kiln) -> (Origin, Image) {
    let graph = graph();
    let fill = |tensor: &kiln::TensorDesc| (tensor.uid, harness::fill(tensor, 1, 3.0));
    let inputs: Values = graph.inputs().map(fill).collect();
    harness::check(kiln, &graph, None, &inputs, "compiled");
    let plan = kiln.plan(&graph).unwrap();
    let kernel = &plan.kernels()[0];
    (kernel.report().origin, kernel.image().clone())
}

#[test]
fn nothing_is_assembled_and_the_ptx_is_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let (origin, text) = planned(&open(folder.path(), true));
    assert_eq!((origin, text.resources), (Origin::Compiled, Resources::default()));
    assert!(text.cubin.is_empty() && text.log.is_empty(), "{}", text.log);
    assert_eq!(planned(&open(folder.path(), true)).0, Origin::Disk);
    // What has no cubin does not stand in for what has one; the other way round it does.
    let (origin, whole) = planned(&open(folder.path(), false));
    assert_eq!((origin, &whole.ptx), (Origin::Compiled, &text.ptx));
    assert!(!whole.cubin.is_empty() && whole.resources.registers > 0);
    let folder = tempfile::tempdir().unwrap();
    let compiled = planned(&open(folder.path(), false));
    assert_eq!(planned(&open(folder.path(), true)), (Origin::Disk, compiled.1));
}

/// What is warmed is for any device of the architecture: it has its cubin.
#[test]
fn what_is_warmed_is_assembled() {
    let folder = tempfile::tempdir().unwrap();
    let kiln = open(folder.path(), true);
    let problem = ManifestProblem { inline: Some(graph().to_json()), ..Default::default() };
    let summary = kiln.warm(&Manifest::of(vec![problem]), &[], |_| {}).unwrap();
    assert_eq!(summary.kernels()["compiled"], 1);
    assert!(!summary.warmed[0].image.cubin.is_empty());
    assert_eq!(planned(&kiln).0, Origin::Disk);
}
