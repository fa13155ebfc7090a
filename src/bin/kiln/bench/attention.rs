//! `kiln bench attention`.

use clap::Args;
use kiln::graph::{Attention, Band, Diagonal, MatmulMath, Op};
use kiln::{DType, OperationGraph};

use super::graph::MeasureArgs;

const EXAMPLES: &str = "\
Examples:
  kiln bench attention --heads 32 --kv-heads 8 --queries 4096 --depth 128 --causal --dtype bf16
  kiln bench attention --batch 32 --heads 32 --kv-heads 8 --queries 1 --keys 8192 --depth 128
  kiln bench attention --queries 1 --keys 256 --device null    host overhead of a call";

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct AttentionArgs {
    /// Batch size
    #[arg(long, default_value_t = 1)]
    batch: i64,
    /// Number of query heads
    #[arg(long, default_value_t = 8)]
    heads: i64,
    /// Number of KV heads; default: the number of query heads
    #[arg(long)]
    kv_heads: Option<i64>,
    /// Queries per sequence
    #[arg(long, default_value_t = 128)]
    queries: i64,
    /// Keys per sequence; default: the number of queries
    #[arg(long)]
    keys: Option<i64>,
    /// Head dimension
    #[arg(long, default_value_t = 64)]
    depth: i64,
    /// Causal mask, aligned to the last query and key
    #[arg(long)]
    causal: bool,
    /// Type of the tensors: f64, f32, f16 or bf16
    #[arg(long, default_value = "bf16")]
    dtype: DType,
    #[command(flatten)]
    measure: MeasureArgs,
}

impl AttentionArgs {
    fn keys(&self) -> i64 {
        self.keys.unwrap_or(self.queries)
    }

    fn graph(&self) -> kiln::Result<OperationGraph> {
        let math = if self.dtype == DType::F64 { MatmulMath::F64 } else { MatmulMath::F32 };
        let band = if self.causal { Band::causal(Diagonal::BottomRight) } else { Band::default() };
        let op = Attention { band, ..Attention::new(math) };
        let mut graph = OperationGraph::builder();
        let mut input = |name: &str, heads: i64, rows: i64| {
            graph.input(name, &[self.batch, heads, rows, self.depth], self.dtype)
        };
        let kv_heads = self.kv_heads.unwrap_or(self.heads);
        let q = input("q", self.heads, self.queries);
        let [k, v] = ["k", "v"].map(|name| input(name, kv_heads, self.keys()));
        let o = graph.operation(Op::Attention(op), &[q, k, v])?[0];
        graph.output(o, "o", self.dtype);
        graph.build()
    }

    /// Number of unmasked scores.
    fn scores(&self) -> f64 {
        let (queries, keys) = (self.queries, self.keys());
        let attended = |query: i64| match self.causal {
            true => (keys - queries + query + 1).clamp(0, keys),
            false => keys,
        };
        let of_head: f64 = (0..queries).map(|query| attended(query) as f64).sum();
        of_head * (self.batch * self.heads) as f64
    }
}

pub fn attention(args: &AttentionArgs) -> kiln::Result<()> {
    // Two GEMMs per score, each a multiply-add.
    args.measure.run(&args.graph()?, 4.0 * args.scores() * args.depth as f64)
}
