//! The picture of a pipeline: steps from left to right, each after those that it needs, with what would be done.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::planner::{Decision, Status};
use super::spec::Pipeline;

const WIDTH: usize = 180;
const HEIGHT: usize = 52;
const ACROSS: usize = 60;
const DOWN: usize = 20;
const MARGIN: usize = 20;
/// Characters that fit into a box.
const NAME: usize = 20;
const DETAIL: usize = 28;

/// Draws a pipeline; `statuses` are the planner's.
pub fn draw(pipeline: &Pipeline, statuses: &[Status]) -> String {
    let columns = columns(pipeline);
    let mut rows = BTreeMap::<usize, usize>::new();
    let mut places = BTreeMap::new();
    for (step, column) in pipeline.steps.iter().zip(&columns) {
        let row = rows.entry(*column).or_default();
        let x = MARGIN + column * (WIDTH + ACROSS);
        let y = MARGIN + *row * (HEIGHT + DOWN);
        places.insert(step.name.as_str(), SvgPoint { x, y });
        *row += 1;
    }
    let width = 2 * MARGIN + columns.iter().max().map_or(0, |last| last * (WIDTH + ACROSS) + WIDTH);
    let tallest = rows.values().max().copied().unwrap_or(1);
    let height = 2 * MARGIN + tallest * HEIGHT + (tallest - 1) * DOWN;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
         height=\"{height}\" font-family=\"sans-serif\" font-size=\"13\">\n<title>{}</title>\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n",
        escaped(&pipeline.name)
    );
    for step in &pipeline.steps {
        for other in &step.after {
            if let (Some(from), Some(to)) =
                (places.get(other.as_str()), places.get(step.name.as_str()))
            {
                edge(&mut svg, *from, *to);
            }
        }
    }
    for step in &pipeline.steps {
        if let Some(place) = places.get(step.name.as_str()) {
            let of_step: Vec<&Status> =
                statuses.iter().filter(|status| status.step == step.name).collect();
            let (colour, word, why) = shown(&of_step);
            let kind = match step.is_fan_out() {
                true => format!("{} for each, {word}", step.kind.name),
                false => format!("{}, {word}", step.kind.name),
            };
            node(&mut svg, *place, &Shown { name: &step.name, kind: &kind, colour, why: &why });
        }
    }
    svg.push_str("</svg>\n");
    svg
}

/// How far right each step stands: behind all that it needs.
fn columns(pipeline: &Pipeline) -> Vec<usize> {
    let mut known = BTreeMap::<&str, usize>::new();
    let mut columns = Vec::new();
    for step in &pipeline.steps {
        let before = step.after.iter().filter_map(|name| known.get(name.as_str())).max();
        let column = before.map_or(0, |before| before + 1);
        known.insert(&step.name, column);
        columns.push(column);
    }
    columns
}

/// Colour, word and reason: of a fan-out those of the first that has something to do.
fn shown(statuses: &[&Status]) -> (&'static str, &'static str, String) {
    let words = statuses.iter().map(|status| {
        let (rank, colour, word) = match status.decision {
            Decision::Failed | Decision::Refused => (0, "#f6c6c6", "failed"),
            Decision::Running => (1, "#fbe3a6", "runs"),
            Decision::Run(_) => (2, "#fbe3a6", "due"),
            Decision::Wait => (3, "#fdf3d7", "waits"),
            Decision::Blocked => (4, "#f6c6c6", "blocked"),
            Decision::Skip => (5, "#e4e4e4", "skipped"),
            Decision::Unchanged(..) | Decision::Done(_) => (6, "#cdeccd", "done"),
        };
        (rank, colour, word, &status.why)
    });
    let first = words.min_by_key(|(rank, ..)| *rank);
    first.map_or(("#e4e4e4", "nothing to do", String::new()), |(_, colour, word, why)| {
        (colour, word, why.clone())
    })
}

/// The left upper corner of a step's box.
#[derive(Clone, Copy)]
struct SvgPoint {
    x: usize,
    y: usize,
}

struct Shown<'a> {
    name: &'a str,
    kind: &'a str,
    colour: &'a str,
    why: &'a str,
}

fn node(svg: &mut String, at: SvgPoint, shown: &Shown<'_>) {
    let (name, kind) = (escaped(&cut(shown.name, NAME)), escaped(&cut(shown.kind, DETAIL)));
    let SvgPoint { x, y } = at;
    let (text, upper, lower) = (x + 10, y + 21, y + 40);
    let (title, colour) = (escaped(&format!("{}: {}", shown.name, shown.why)), shown.colour);
    // Writing to a text cannot fail.
    let _ = writeln!(
        svg,
        "<g><title>{title}</title><rect x=\"{x}\" y=\"{y}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" rx=\"6\" \
         fill=\"{colour}\" stroke=\"#555555\"/><text x=\"{text}\" y=\"{upper}\" font-weight=\"bold\">{name}</text>\
         <text x=\"{text}\" y=\"{lower}\" font-size=\"11\" fill=\"#333333\">{kind}</text></g>"
    );
}

fn edge(svg: &mut String, from: SvgPoint, to: SvgPoint) {
    let (x1, y1, x2, y2) = (from.x + WIDTH, from.y + HEIGHT / 2, to.x, to.y + HEIGHT / 2);
    let middle = (x1 + x2) / 2;
    let (tip, above, below) = (x2.saturating_sub(7), y2 - 4, y2 + 4);
    let _ = writeln!(
        svg,
        "<path d=\"M{x1} {y1}C{middle} {y1} {middle} {y2} {x2} {y2}\" fill=\"none\" stroke=\"#888888\"/>\
         <path d=\"M{x2} {y2}L{tip} {above}L{tip} {below}Z\" fill=\"#888888\"/>"
    );
}

fn cut(text: &str, limit: usize) -> String {
    match text.chars().count() > limit {
        true => text.chars().take(limit - 2).chain("..".chars()).collect(),
        false => text.to_string(),
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
