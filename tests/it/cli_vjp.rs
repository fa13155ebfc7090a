//! `kiln vjp` and `kiln engines --vjp`.

use kiln::graph::{Reduction, ReductionOp};
use kiln::{DType, OperationGraph};

use crate::cli;
use crate::vjp::mlp;

#[test]
fn the_tool_writes_both_graphs() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let [problem, forward, backward] = ["mlp.json", "forward.json", "backward.json"].map(path);
    std::fs::write(&problem, mlp().to_json()).unwrap();
    let text = cli::succeeds(&[
        "vjp",
        &problem,
        "--by",
        "w,bias",
        "--forward",
        &forward,
        "--backward",
        &backward,
    ]);
    assert!(text.contains("8192  c: bf16[1, 32, 128]  (kept)"), "{text}");
    assert!(text.contains("output d_w: bf16[1, 64, 128]"), "{text}");
    for written in [&forward, &backward] {
        cli::succeeds(&["run", written, "--check"]);
    }
    let shown = cli::json(&cli::succeeds(&["engines", &problem, "--vjp", "--json"]));
    assert_eq!(shown["saved"][0][3]["tensor"], "c");
    assert_eq!(shown["saved"][0][3]["kept"], true);
    assert!(shown["parts"].as_array().unwrap().len() >= 3);
    // What has no gradient is said, not left out.
    let product = path("product.json");
    let mut graph = OperationGraph::builder();
    let x = graph.input("x", &[2, 4], DType::F32);
    let y = graph.reduction(Reduction::new(ReductionOp::Mul), x, &[2, 1]).unwrap();
    graph.output(y, "y", DType::F32);
    std::fs::write(&product, graph.build().unwrap().to_json()).unwrap();
    cli::fails(3, "vjp: reduction, which writes `y`, has no gradient", &["vjp", &product]);
    cli::fails(2, "vjp: `w` is no output of the graph", &["vjp", &problem, "--of", "w"]);
    cli::fails(2, "no tensor of the graph is named `v`", &["vjp", &problem, "--by", "v"]);
}
