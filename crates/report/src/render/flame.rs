//! Memory by call stack as a flame graph: the width of a function is its resident memory, its colours the
//! heat of its parts. The SVG file is self-contained. In a browser, a click on a function enlarges it, and a click on the lowest
//! line restores the whole.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::color::Rgb;
use super::svg::{escaped, hex, shown};
use super::words::span;
use crate::code::{Code, StackRow};
use crate::units::{self, bytes};

const WIDTH: f64 = 1200.0;
const ROW: f64 = 18.0;
/// Space above the flames, for the title and the legend.
const TOP: f64 = 64.0;
const MARGIN: f64 = 10.0;
/// Functions that are narrower are not drawn.
const NARROWEST: f64 = 0.2;
/// Mean width of a character of the labels.
const CHARACTER: f64 = 6.6;
/// Maximum number of lines; deeper stacks are cut.
const DEEPEST: usize = 96;

const HOT: Rgb = [217, 72, 1];
const WARM: Rgb = [253, 190, 94];
const COLD: Rgb = [107, 155, 209];
const UNKNOWN: Rgb = [190, 190, 190];

/// Bytes by heat.
#[derive(Debug, Clone, Copy, Default)]
struct Heat {
    hot: f64,
    warm: f64,
    cold: f64,
    unknown: f64,
}

impl Heat {
    fn total(&self) -> f64 {
        self.hot + self.warm + self.cold + self.unknown
    }

    fn add(&mut self, row: &StackRow) {
        self.hot += row.memory.hot.bytes;
        self.warm += row.memory.warm.bytes;
        self.cold += row.memory.cold.bytes;
        self.unknown += row.memory.unknown.bytes;
    }

    /// The colours of its parts, the coldest first: from which share of the whole on, and how much of it.
    fn parts(&self) -> Vec<(Rgb, f64, f64)> {
        let total = self.total().max(f64::MIN_POSITIVE);
        let all = [(COLD, self.cold), (WARM, self.warm), (HOT, self.hot), (UNKNOWN, self.unknown)];
        let mut from = 0.0;
        let mut part = |(color, bytes): (Rgb, f64)| {
            let part = (color, from, bytes / total);
            from += part.2;
            part
        };
        all.into_iter().map(&mut part).filter(|(.., share)| *share > 0.0).collect()
    }
}

/// A function, and those that it calls.
#[derive(Debug, Default)]
struct Node {
    heat: Heat,
    /// bytes times idle age of the cold memory
    idle: f64,
    called: BTreeMap<String, Node>,
}

impl Node {
    fn add(&mut self, row: &StackRow) {
        self.heat.add(row);
        self.idle += row.memory.cold.bytes * row.memory.idle_ms;
    }

    fn depth(&self) -> usize {
        1 + self.called.values().map(Node::depth).max().unwrap_or(0)
    }
}

fn tree(stacks: &[StackRow]) -> Node {
    let mut root = Node::default();
    for row in stacks {
        root.add(row);
        let mut at = &mut root;
        for frame in row.frames.iter().take(DEEPEST) {
            at = at.called.entry(frame.function.to_string()).or_default();
            at.add(row);
        }
    }
    root
}

/// The flame graph as an SVG document.
#[must_use]
pub fn flame_graph(c: &Code) -> String {
    let root = tree(&c.stacks);
    let height = TOP + root.depth() as f64 * ROW + MARGIN;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
         viewBox=\"0 0 {WIDTH} {height}\" font-family=\"DejaVu Sans, Verdana, sans-serif\" font-size=\"11\">\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#ffffff\"/>\n\
         <text x=\"{MARGIN}\" y=\"22\" font-size=\"15\" font-weight=\"bold\">{}</text>\n",
        escaped(&shown(&c.title))
    );
    let all = c.all.resident.bytes.round() as u64;
    let _ = writeln!(
        out,
        "<text x=\"{MARGIN}\" y=\"40\" fill=\"#444444\">resident memory by the call stack that touched it first: \
         {} of {} have a stack. Width: bytes; colours: heat</text>",
        bytes(root.heat.total().round() as u64),
        bytes(all)
    );
    legend(&mut out, c);
    let name = format!("all stacks, {} samples", units::count(c.samples));
    node(&mut out, &root, &name, (MARGIN, WIDTH - 2.0 * MARGIN), height - MARGIN - ROW);
    out + SCRIPT + "</svg>\n"
}

fn legend(out: &mut String, c: &Code) {
    let hot = units::hz(c.basis.hot_hz);
    let words = [
        (HOT, format!("hot: {hot} or more")),
        (WARM, "warm".to_owned()),
        (COLD, format!("cold: untouched for {} or more", span(c.basis.cold_ms))),
        (UNKNOWN, "unknown".to_owned()),
    ];
    let mut x = MARGIN;
    for (color, text) in words {
        let _ = writeln!(
            out,
            "<rect x=\"{x}\" y=\"47\" width=\"11\" height=\"11\" fill=\"{}\"/><text x=\"{}\" y=\"57\">{}</text>",
            hex(color),
            x + 16.0,
            escaped(&text)
        );
        x += 40.0 + CHARACTER * text.chars().count() as f64;
    }
}

/// Draws a function whose lower line begins at `y`, and above it those that it calls, the coldest first.
fn node(out: &mut String, node_: &Node, name: &str, (x, width): (f64, f64), y: f64) {
    if width < NARROWEST {
        return;
    }
    let h = &node_.heat;
    let size = |n: f64| bytes(n.round() as u64);
    let idle = if h.cold > 0.0 { span(node_.idle / h.cold) } else { "-".to_owned() };
    let tip = format!(
        "{name}\nresident {}: cold {} (idle {idle}), warm {}, hot {}, unknown {}",
        size(h.total()),
        size(h.cold),
        size(h.warm),
        size(h.hot),
        size(h.unknown)
    );
    let name = escaped(&shown(name));
    // Half a unit separates neighbours, if there is room.
    let inner = if width > 2.0 { width - 0.5 } else { width };
    let part = |(color, from, share): (Rgb, f64, f64)| {
        format!(
            "<rect x=\"{:.2}\" y=\"{y:.1}\" width=\"{:.2}\" height=\"{:.1}\" fill=\"{}\" data-a=\"{from:.4}\" \
             data-b=\"{share:.4}\"/>",
            x + from * inner,
            share * inner,
            ROW - 1.0,
            hex(color)
        )
    };
    let parts: String = h.parts().into_iter().map(part).collect();
    let _ = writeln!(
        out,
        "<g class=\"f\" data-x=\"{x:.2}\" data-w=\"{width:.2}\" data-n=\"{name}\"><title>{}</title>{parts}<text x=\"{:.2}\" y=\"{:.1}\">{}</text></g>",
        tip.lines().map(|line| escaped(&shown(line))).collect::<Vec<_>>().join("&#10;"),
        x + 3.0,
        y + 12.5,
        fitted(&name, width)
    );
    let cold = |n: &Node| n.heat.cold / n.heat.total().max(1.0);
    let mut called: Vec<(&String, &Node)> = node_.called.iter().collect();
    called.sort_by(|a, b| cold(b.1).total_cmp(&cold(a.1)));
    let mut at = x;
    for (name, child) in called {
        let part = width * child.heat.total() / h.total().max(1.0);
        node(out, child, name, (at, part), y - ROW);
        at += part;
    }
}

/// As much of a name as fits; an escaped character is not cut.
fn fitted(name: &str, width: f64) -> String {
    let most = ((width - 6.0) / CHARACTER).max(0.0) as usize;
    let len = name.chars().count();
    match most {
        _ if len <= most => name.to_owned(),
        _ if most < 4 || name.contains('&') => String::new(),
        _ => name.chars().take(most - 1).chain(['…']).collect(),
    }
}

/// Enlarges the function that was clicked, and those above and below it.
const SCRIPT: &str = r#"<script><![CDATA[
const all=[...document.querySelectorAll("g.f")],left=10,full=1180;
const fit=(n,w)=>{const m=Math.floor((w-6)/6.6);return n.length<=m?n:m<4?"":n.slice(0,m-1)+"…"};
function zoom(g){const x=+g.dataset.x,w=+g.dataset.w;
for(const f of all){const a=+f.dataset.x,b=+f.dataset.w,t=f.querySelector("text");
const from=Math.max(a,x),to=Math.min(a+b,x+w),shown=to-from>w*1e-6;
f.style.display=shown?"":"none";if(!shown)continue;
const p=left+(from-x)/w*full,q=(to-from)/w*full;
for(const r of f.querySelectorAll("rect")){r.setAttribute("x",p+r.dataset.a*q);r.setAttribute("width",r.dataset.b*q);}
t.setAttribute("x",p+3);t.textContent=fit(f.dataset.n,q);}}
for(const g of all){g.style.cursor="pointer";g.addEventListener("click",()=>zoom(g));}
]]></script>
"#;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_is_drawn_in_the_parts_of_its_heat() {
        let heat = Heat { hot: 1.0, cold: 3.0, ..Heat::default() };
        assert_eq!(heat.parts(), [(COLD, 0.0, 0.75), (HOT, 0.75, 0.25)]);
        assert_eq!(Heat::default().parts(), []);
    }

    #[test]
    fn names_are_cut_to_fit() {
        assert_eq!(fitted("abcdefgh", 100.0), "abcdefgh");
        assert_eq!(fitted("abcdefghijklmnop", 60.0), "abcdefg…");
        assert_eq!(fitted("abcdefgh", 20.0), "");
        assert_eq!(fitted("a&lt;b&gt;cdefgh", 60.0), "");
    }
}
