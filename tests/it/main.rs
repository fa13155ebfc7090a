//! t
use kiln::expr::{Mode, Pointwise};
use kiln::graph::OperationGraph;
use kiln::*;
#[test]
fn probe() {
    let mut g = OperationGraph::builder();
    let x = g.input("x", &[64, 768], DType::Bf16);
    let bias = g.input("bias", &[1, 768], DType::Bf16);
    let res = g.input("residual", &[64, 768], DType::Bf16);
    let s = g.scalar("scale", 2, DType::F32);
    let sum = g.pointwise(Pointwise::new(Mode::Add), &[x, bias]).unwrap();
    let h = g.pointwise(Pointwise::new(Mode::GeluFwd), &[sum]).unwrap();
    g.name(h, "hidden", DType::Bf16);
    let r = g.pointwise(Pointwise::new(Mode::Add).alphas(1.0, 0.5), &[h, res]).unwrap();
    let r = g.pointwise(Pointwise::new(Mode::Mul), &[r, s]).unwrap();
    let y = g.pointwise(Pointwise::new(Mode::ReluFwd).relu(-1.0, 6.0, 0.0), &[r]).unwrap();
    g.output(y, "y", DType::Bf16);
    let g = g.build().unwrap();
    println!("{g}");
    let t = target::Target::named("h200").unwrap();
    for grid in [0, 1] {
        let cfg = engine::choose(g.canonical(), &t).unwrap().with("grid", grid);
        println!("{cfg}");
        let p = engine::engine_named("pointwise").unwrap().lower(g.canonical(), &t, &cfg).unwrap();
        let start = std::time::Instant::now();
        let src = codegen::Templates::embedded().render(&p.spec).unwrap();
        println!("{:?}", start.elapsed());
        std::fs::write(format!("/tmp/w/k{grid}.cu"), &src.text).unwrap();
        println!("{:?}", p.launch);
    }
}
