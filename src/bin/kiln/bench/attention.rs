//! `kiln bench attention`.

use clap::Args;
use kiln::graph::{Attention, Band, Diagonal, MatmulMath, Op};
use kiln::{DType, OperationGraph};

use super::graph::MeasureArgs;

const EXAMPLES: &str = "\
Examples:
  kiln bench attention --heads 32 --kv-heads 8 --queries 4096 --depth 128 --causal --dtype bf16
  kiln bench attention --batch 32 --heads 32 --kv-heads 8 --queries 1 --keys 8192 --depth 128
  kiln bench attention --queries 1 --keys 256 --device null    what the host pays for a call";

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct AttentionArgs {
    /// Sequences
    #[arg(long, default_value_t = 1)]
    batch: i64,
    /// Heads of queries
    #[arg(long, default_value_t = 8)]
    heads: i64,
    /// Heads of keys and values; default: as many as of queries
    #[arg(long)]
    kv_heads: Option<i64>,
    /// Queries of a sequence
    #[arg(long, default_value_t = 128)]
    queries: i64,
    /// Keys of a sequence; default: as many as queries
    #[arg(long)]
    keys: Option<i64>,
    /// Elements of a query, a key and a value
    #[arg(long, default_value_t = 64)]
    depth: i64,
    /// Queries attend to keys up to their own, the last query to all
    #[arg(long)]
    causal: bool,
    /// The type: f64, f32, f16 or bf16
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

    /// Scores that take part.
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
    // Two products of every score, two operations each.
    args.measure.run(&args.graph()?, 4.0 * args.scores() * args.depth as f64)
}
