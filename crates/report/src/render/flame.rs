//! Memory by call stack as a flame graph: the width of a function is its resident memory, its colours the
//! heat of its parts, or what of it has changed. The SVG file is self-contained. In a browser, a click on a function enlarges it, and a click on the lowest
//! line restores the whole.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::color::Rgb;
use super::svg::{escaped, hex, shown};
use super::words::{memory_name, span};
use crate::code::{ALLOCATION, ChangedStack, Code, CodeChange, StackRow};
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
const MAX_STACK_LINES: usize = 96;

const HOT: Rgb = [217, 72, 1];
const WARM: Rgb = [253, 190, 94];
const COLD: Rgb = [107, 155, 209];
const UNKNOWN: Rgb = [190, 190, 190];

/// The colours of a graph, and what they mean.
struct Legend([(Rgb, String); 4]);

/// The figures of a function.
#[derive(Debug, Default)]
struct Node {
    /// bytes by colour
    parts: [f64; 4],
    /// bytes times idle age of the cold memory
    idle: f64,
    called: BTreeMap<String, Node>,
}

impl Node {
    /// Adds a call stack, the outermost function first.
    fn add<'a>(&mut self, functions: impl Iterator<Item = &'a str>, parts: [f64; 4], idle: f64) {
        let mut at = self;
        at.count(parts, idle);
        for function in functions.take(MAX_STACK_LINES) {
            at = at.called.entry(function.to_owned()).or_default();
            at.count(parts, idle);
        }
    }

    fn count(&mut self, parts: [f64; 4], idle: f64) {
        self.parts.iter_mut().zip(parts).for_each(|(all, part)| *all += part);
        self.idle += idle;
    }

    fn total(&self) -> f64 {
        self.parts.iter().sum()
    }

    fn depth(&self) -> usize {
        1 + self.called.values().map(Node::depth).max().unwrap_or(0)
    }

    /// From which share of the whole on each colour goes, and how much of it is there.
    fn shares(&self) -> Vec<(usize, f64, f64)> {
        let total = self.total().max(f64::MIN_POSITIVE);
        let mut from = 0.0;
        let mut share = |(i, bytes): (usize, &f64)| {
            let share = (i, from, bytes / total);
            from += share.2;
            share
        };
        self.parts.iter().enumerate().map(&mut share).filter(|(.., share)| *share > 0.0).collect()
    }
}

/// A flame graph of functions with up to four colours.
struct Graph {
    title: String,
    /// description of the drawn quantity
    subtitle: String,
    legend: Legend,
    /// name of the lowest line
    base: String,
    root: Node,
    /// the sizes of a function in words
    tip: fn(&Node) -> String,
    /// Of neighbours, the one with the greatest share of this stands first.
    first: fn(&Node) -> f64,
}

fn size(n: f64) -> String {
    bytes(n.round() as u64)
}

/// Memory by call stack and heat as an SVG document.
#[must_use]
pub fn flame_graph(c: &Code) -> String {
    let mut root = Node::default();
    for StackRow { frames, memory: m, .. } in &c.stacks {
        let parts = [m.cold, m.warm, m.hot, m.unknown].map(|e| e.bytes);
        root.add(frames.iter().map(|f| &*f.function), parts, m.cold.bytes * m.idle_ms);
    }
    let hot = units::hz(c.basis.hot_hz);
    let graph = Graph {
        title: c.title.clone(),
        subtitle: format!(
            "{} by the call stack that {}: {} of {} have a stack. Width: bytes; colours: heat",
            memory_name(&c.all),
            if c.owner == ALLOCATION {
                "allocated it or touched it first"
            } else {
                "touched it first"
            },
            size(root.total()),
            size(c.all.of_any_heat.bytes)
        ),
        legend: Legend([
            (COLD, format!("cold: untouched for {} or more", span(c.basis.cold_ms))),
            (WARM, "warm".to_owned()),
            (HOT, format!("hot: {hot} or more")),
            (UNKNOWN, "unknown".to_owned()),
        ]),
        base: format!("all stacks, {} samples", units::count(c.samples)),
        root,
        tip: |n| {
            let [cold, warm, hot, unknown] = n.parts;
            let idle = if cold > 0.0 { span(n.idle / cold) } else { "-".to_owned() };
            format!(
                "{} in all: cold {} (idle {idle}), warm {}, hot {}, unknown {}",
                size(n.total()),
                size(cold),
                size(warm),
                size(hot),
                size(unknown)
            )
        },
        first: |n| n.parts[0],
    };
    graph.svg()
}

/// What has changed by call stack as an SVG document. A function is as wide as its memory before and after: what has
/// stayed, what is new, and what is gone.
#[must_use]
pub fn change_graph(c: &CodeChange) -> String {
    let mut root = Node::default();
    for ChangedStack { functions, before_bytes, after_bytes } in &c.stacks {
        let stayed = before_bytes.min(*after_bytes);
        let parts = [after_bytes - stayed, before_bytes - stayed, stayed, 0.0];
        root.add(functions.iter().map(String::as_str), parts, 0.0);
    }
    let graph = Graph {
        title: format!("{}: what has changed", c.after.title),
        subtitle: format!(
            "{} by call stack: {} before, {} after. Width: bytes before and after",
            memory_name(&c.after.all),
            size(c.before.all.of_any_heat.bytes),
            size(c.after.all.of_any_heat.bytes)
        ),
        legend: Legend([
            (HOT, "new".to_owned()),
            (COLD, "gone".to_owned()),
            (UNKNOWN, "as before".to_owned()),
            (WARM, String::new()),
        ]),
        base: "all stacks".to_owned(),
        root,
        tip: |n| {
            let [new, gone, stayed, _] = n.parts;
            format!("before {}, after {}", size(stayed + gone), size(stayed + new))
        },
        first: |n| n.parts[0] + n.parts[1],
    };
    graph.svg()
}

impl Graph {
    fn svg(&self) -> String {
        let height = TOP + self.root.depth() as f64 * ROW + MARGIN;
        let mut out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
             viewBox=\"0 0 {WIDTH} {height}\" font-family=\"DejaVu Sans, Verdana, sans-serif\" font-size=\"11\">\n\
             <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#ffffff\"/>\n\
             <text x=\"{MARGIN}\" y=\"22\" font-size=\"15\" font-weight=\"bold\">{}</text>\n\
             <text x=\"{MARGIN}\" y=\"40\" fill=\"#444444\">{}</text>\n",
            escaped(&shown(&self.title)),
            escaped(&self.subtitle)
        );
        self.legend.draw(&mut out);
        let whole = (MARGIN, WIDTH - 2.0 * MARGIN);
        self.node(&mut out, &self.root, &self.base, whole, height - MARGIN - ROW);
        out + SCRIPT + "</svg>\n"
    }

    /// Draws a function whose lower line begins at `y`, and above it those that it calls.
    fn node(&self, out: &mut String, n: &Node, name: &str, (x, width): (f64, f64), y: f64) {
        if width < NARROWEST {
            return;
        }
        let tip = format!("{name}\n{}", (self.tip)(n));
        let name = escaped(&shown(name));
        // Half a unit separates neighbours, if there is room.
        let inner = if width > 2.0 { width - 0.5 } else { width };
        let part = |(color, from, share): (usize, f64, f64)| {
            format!(
                "<rect x=\"{:.2}\" y=\"{y:.1}\" width=\"{:.2}\" height=\"{:.1}\" fill=\"{}\" data-a=\"{from:.4}\" \
                 data-b=\"{share:.4}\"/>",
                x + from * inner,
                share * inner,
                ROW - 1.0,
                self.legend.color(color)
            )
        };
        let parts: String = n.shares().into_iter().map(part).collect();
        let _ = writeln!(
            out,
            "<g class=\"f\" data-x=\"{x:.2}\" data-w=\"{width:.2}\" data-n=\"{name}\"><title>{}</title>{parts}<text x=\"{:.2}\" y=\"{:.1}\">{}</text></g>",
            tip.lines().map(|line| escaped(&shown(line))).collect::<Vec<_>>().join("&#10;"),
            x + 3.0,
            y + 12.5,
            fitted(&name, width)
        );
        let first = |n: &Node| (self.first)(n) / n.total().max(1.0);
        let mut called: Vec<(&String, &Node)> = n.called.iter().collect();
        called.sort_by(|a, b| first(b.1).total_cmp(&first(a.1)));
        let mut at = x;
        for (name, child) in called {
            let part = width * child.total() / n.total().max(1.0);
            self.node(out, child, name, (at, part), y - ROW);
            at += part;
        }
    }
}

impl Legend {
    fn color(&self, i: usize) -> String {
        self.0.get(i).map_or_else(String::new, |(color, _)| hex(*color))
    }

    fn draw(&self, out: &mut String) {
        let mut x = MARGIN;
        for (color, text) in self.0.iter().filter(|(_, text)| !text.is_empty()) {
            let _ = writeln!(
                out,
                "<rect x=\"{x}\" y=\"47\" width=\"11\" height=\"11\" fill=\"{}\"/><text x=\"{}\" y=\"57\">{}</text>",
                hex(*color),
                x + 16.0,
                escaped(text)
            );
            x += 40.0 + CHARACTER * text.chars().count() as f64;
        }
    }
}

/// A web page with a flame graph, and below it the figures as text.
#[must_use]
pub fn page(title: &str, graph: &str, text: &str) -> String {
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<title>{}</title>\n\
         <style>body{{margin:1em;font-family:sans-serif}} svg{{max-width:100%;height:auto}} pre{{overflow-x:auto}}</style>\n\
         {graph}<pre>{}</pre>\n</html>\n",
        escaped(&shown(title)),
        escaped(text)
    )
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
        let mut node = Node::default();
        node.add(["main", "fill"].into_iter(), [3.0, 0.0, 1.0, 0.0], 6.0);
        assert_eq!(node.shares(), [(0, 0.0, 0.75), (2, 0.75, 0.25)]);
        assert_eq!((node.depth(), node.called["main"].called["fill"].total()), (3, 4.0));
        assert_eq!(Node::default().shares(), []);
    }

    #[test]
    fn names_are_cut_to_fit() {
        assert_eq!(fitted("abcdefgh", 100.0), "abcdefgh");
        assert_eq!(fitted("abcdefghijklmnop", 60.0), "abcdefg…");
        assert_eq!(fitted("abcdefgh", 20.0), "");
        assert_eq!(fitted("a&lt;b&gt;cdefgh", 60.0), "");
    }
}
