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
    let kiln = Kiln::open(Config {
        nvrtc: Some("/tmp/w/x/nvidia/cu13/lib".into()),
        cache_dir: Some("/tmp/w/cache".into()),
        ..Config::default()
    })
    .unwrap();
    let plan = kiln.plan(&g).unwrap();
    println!("{plan:?} {:?}", plan.report());
    let mut pack = VariantPack::new();
    let mut inputs = std::collections::HashMap::new();
    let mut bufs = vec![];
    for t in g.inputs() {
        let n = t.elements().unwrap() as usize;
        let vals: Vec<f64> =
            (0..n).map(|i| t.dtype.round(((i * 7919 % 251) as f64 - 125.0) / 40.0)).collect();
        if t.by_value {
            pack.set_value(t.uid, vals[0]);
        } else {
            let mut bytes = vec![0u8; n * t.dtype.bytes()];
            for (i, v) in vals.iter().enumerate() {
                t.dtype.write(*v, &mut bytes[i * t.dtype.bytes()..]);
            }
            let b = kiln.device().upload(&bytes).unwrap();
            pack = pack.with(t.uid, &b);
            bufs.push(b);
        }
        inputs.insert(t.uid, vals);
    }
    let out = g.outputs().next().unwrap();
    let b = kiln.device().alloc(out.span_bytes().unwrap()).unwrap();
    pack = pack.with(out.uid, &b);
    let t = std::time::Instant::now();
    plan.execute(&kiln.stream(), &pack).unwrap();
    println!("ran in {:?}", t.elapsed());
    let bytes = b.to_vec().unwrap();
    let actual: Vec<f64> = bytes.chunks(2).map(|c| out.dtype.read(c)).collect();
    let expected = reference::evaluate(&g, &inputs).unwrap();
    println!("{:?}", expected[&out.uid].worst(&actual));
}
