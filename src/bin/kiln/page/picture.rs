//! SVG drawing of an operation graph, in layers from inputs to outputs.

use std::collections::HashMap;

use kiln::{OperationGraph, TensorDesc};

const CHARACTER: f64 = 6.6;
const HEIGHT: f64 = 40.0;
const GAP_X: f64 = 18.0;
const GAP_Y: f64 = 30.0;
/// Maximum length of a label; longer ones are truncated.
const CHARACTERS_MAX: usize = 30;

struct Node {
    class: &'static str,
    title: String,
    detail: String,
    layer: usize,
    /// Position of the left edge.
    x: f64,
    width: f64,
}

/// Nodes and edges; an edge across several layers passes through bend nodes.
#[derive(Default)]
struct Picture {
    nodes: Vec<Node>,
    edges: Vec<(usize, usize)>,
    layers: Vec<Vec<usize>>,
}

/// The drawing as an `svg` element.
pub fn svg(graph: &OperationGraph) -> String {
    let mut picture = Picture::of(graph);
    picture.bend();
    picture.arrange();
    picture.draw()
}

impl Picture {
    fn of(graph: &OperationGraph) -> Picture {
        let mut picture = Picture::default();
        let mut producer: HashMap<i64, usize> = HashMap::new();
        for tensor in graph.inputs() {
            producer.insert(tensor.uid, picture.tensor("input", tensor, 0));
        }
        let inputs = picture.nodes.len();
        for operation in graph.operations() {
            let from: Vec<usize> = operation.inputs.iter().map(|uid| producer[uid]).collect();
            let layer = from.iter().map(|node| picture.nodes[*node].layer + 1).max().unwrap_or(0);
            let output = |uid: &i64| graph.tensor(*uid).expect("the graph is valid");
            let values: Vec<String> =
                operation.outputs.iter().map(|uid| value_text(output(uid))).collect();
            let node =
                picture.node("operation", operation.op.to_string(), values.join(", "), layer);
            picture.edges.extend(from.into_iter().map(|from| (from, node)));
            producer.extend(operation.outputs.iter().map(|uid| (*uid, node)));
        }
        // Inputs are placed directly above their first reader.
        for input in 0..inputs {
            let readers = picture.edges.iter().filter(|(from, _)| *from == input);
            let first = readers.map(|(_, to)| picture.nodes[*to].layer).min();
            picture.nodes[input].layer = first.map_or(0, |layer| layer - 1);
        }
        for tensor in graph.outputs() {
            let from = producer[&tensor.uid];
            let node = picture.tensor("output", tensor, picture.nodes[from].layer + 1);
            picture.edges.push((from, node));
        }
        picture
    }

    fn tensor(&mut self, class: &'static str, tensor: &TensorDesc, layer: usize) -> usize {
        let kind = if tensor.by_value { "value" } else { class };
        self.node(class, tensor.name.clone(), format!("{kind} {}", type_text(tensor)), layer)
    }

    fn node(&mut self, class: &'static str, title: String, detail: String, layer: usize) -> usize {
        let characters = title.chars().count().max(detail.chars().count()).min(CHARACTERS_MAX);
        let width = characters as f64 * CHARACTER + 22.0;
        self.nodes.push(Node { class, title, detail, layer, x: 0.0, width });
        self.nodes.len() - 1
    }

    /// Splits every edge across several layers at bend nodes.
    fn bend(&mut self) {
        for (from, to) in std::mem::take(&mut self.edges) {
            let mut last = from;
            for layer in self.nodes[from].layer + 1..self.nodes[to].layer {
                let bend = self.node("bend", String::new(), String::new(), layer);
                self.nodes[bend].width = 6.0;
                self.edges.push((last, bend));
                last = bend;
            }
            self.edges.push((last, to));
        }
    }

    /// Orders each layer by the positions of its neighbours, then centres it.
    fn arrange(&mut self) {
        let layers = self.nodes.iter().map(|node| node.layer + 1).max().unwrap_or(0);
        self.layers = vec![Vec::new(); layers];
        for (at, node) in self.nodes.iter().enumerate() {
            self.layers[node.layer].push(at);
        }
        self.place();
        for round in 0..8 {
            for layer in 0..layers {
                let layer = if round % 2 == 0 { layer } else { layers - 1 - layer };
                let mut keyed: Vec<(f64, usize)> = self.layers[layer]
                    .iter()
                    .map(|node| (self.pull(*node, round % 2 == 0), *node))
                    .collect();
                keyed.sort_by(|a, b| a.0.total_cmp(&b.0));
                self.layers[layer] = keyed.into_iter().map(|(_, node)| node).collect();
                self.place();
            }
        }
    }

    /// Mean centre of a node's neighbours above or below; its own if there are none.
    fn pull(&self, node: usize, above: bool) -> f64 {
        let neighbour = |(from, to): &(usize, usize)| match above {
            true if *to == node => Some(*from),
            false if *from == node => Some(*to),
            _ => None,
        };
        let places: Vec<f64> =
            self.edges.iter().filter_map(neighbour).map(|at| self.centre(at)).collect();
        match places.len() {
            0 => self.centre(node),
            count => places.iter().sum::<f64>() / count as f64,
        }
    }

    fn place(&mut self) {
        let width = self.width();
        for layer in &self.layers {
            let mut x = (width - self.layer_width(layer)) / 2.0;
            for node in layer {
                self.nodes[*node].x = x;
                x += self.nodes[*node].width + GAP_X;
            }
        }
    }

    fn layer_width(&self, layer: &[usize]) -> f64 {
        let nodes: f64 = layer.iter().map(|node| self.nodes[*node].width).sum();
        nodes + GAP_X * layer.len().saturating_sub(1) as f64
    }

    fn width(&self) -> f64 {
        self.layers.iter().map(|layer| self.layer_width(layer)).fold(0.0, f64::max)
    }

    fn centre(&self, node: usize) -> f64 {
        self.nodes[node].x + self.nodes[node].width / 2.0
    }

    fn draw(&self) -> String {
        let (margin, step) = (2.0, HEIGHT + GAP_Y);
        let width = self.width() + 2.0 * margin;
        let height = self.layers.len() as f64 * step - GAP_Y + 2.0 * margin;
        let mut svg = format!(
            "<svg class=\"graph\" role=\"img\" aria-label=\"operation graph\" \
             viewBox=\"{} {} {width:.0} {height:.0}\" width=\"{width:.0}\" height=\"{height:.0}\">",
            -margin, -margin
        );
        let top = |node: &Node| node.layer as f64 * step;
        for (from, to) in &self.edges {
            let (a, b) = (&self.nodes[*from], &self.nodes[*to]);
            let (x1, x2, y2) = (self.centre(*from), self.centre(*to), top(b));
            // Edges pass bends from top to bottom.
            let y1 = top(a) + HEIGHT;
            let middle = (y1 + y2) / 2.0;
            let through = match b.class {
                "bend" => format!(" V{:.1}", y2 + HEIGHT),
                _ => String::new(),
            };
            svg += &format!(
                "<path class=\"edge\" d=\"M{x1:.1} {y1:.1} C{x1:.1} {middle:.1} \
                 {x2:.1} {middle:.1} {x2:.1} {y2:.1}{through}\"/>"
            );
        }
        for node in self.nodes.iter().filter(|node| node.class != "bend") {
            let (x, y, width) = (node.x, top(node), node.width);
            let (class, centre) = (node.class, node.x + node.width / 2.0);
            let radius = if class == "operation" { 5 } else { 19 };
            let (title, detail) = (cut(&node.title), cut(&node.detail));
            svg += &format!(
                "<g class=\"{class}\"><title>{}: {}</title><rect x=\"{x:.1}\" y=\"{y:.1}\" \
                 width=\"{width:.1}\" height=\"{HEIGHT}\" rx=\"{radius}\"/>\
                 <text x=\"{centre:.1}\" y=\"{:.1}\">{title}</text>\
                 <text class=\"detail\" x=\"{centre:.1}\" y=\"{:.1}\">{detail}</text></g>",
                escape(&node.title),
                escape(&node.detail),
                y + 17.0,
                y + 31.0,
            );
        }
        svg + "</svg>"
    }
}

/// Formats as `bf16[64, 768]`.
fn type_text(tensor: &TensorDesc) -> String {
    format!("{}{:?}", tensor.dtype, tensor.dims)
}

/// Formats as `sum: f32[64, 768]`.
fn value_text(tensor: &TensorDesc) -> String {
    match tensor.name.as_str() {
        "" => type_text(tensor),
        name => format!("{name}: {}", type_text(tensor)),
    }
}

fn cut(text: &str) -> String {
    match text.chars().count() > CHARACTERS_MAX {
        true => escape(&text.chars().take(CHARACTERS_MAX - 1).chain(['…']).collect::<String>()),
        false => escape(text),
    }
}

pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
