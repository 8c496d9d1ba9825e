//! Plots: time, rate and how far ours is ahead over size, as SVG and PNG.
//!
//! Ours are in blues with solid lines and filled marks, peers in yellows and reds with dashes and hollow marks, which people of any sight tell apart; parts of
//! the work that nobody competes in are grey and dotted. A contender has one colour on a whole page ([`Inks`]). Colours are of classes: those of [`INKS`]
//! in a file of its own, and the page's, light or dark, within a page.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
    fs,
    path::Path,
    sync::{Arc, LazyLock},
};

use resvg::{
    tiny_skia::{Pixmap, Transform},
    usvg::{self, fontdb},
};

use super::{CollectiveWorkload, Contest, MatmulWorkload, Scenario, Section, Side, Workload, link_limit, median, side};
use passmuster_plan::machine::MachineInfo;

/// Width of an SVG's view box. A plot can be read at this many pixels, and at fewer.
const WIDTH: f64 = 460.0;
/// Where the axes are within it.
const LEFT: f64 = 44.0;
const RIGHT: f64 = 438.0;
const TOP: f64 = 54.0;
const BOTTOM: f64 = 276.0;
/// Height of a line of text.
const LINE: f64 = 16.0;
/// About the width of a letter.
const LETTER: f64 = 6.3;
/// Pixels of a PNG for each unit.
const SCALE: f32 = 2.0;

/// How much slower than the fastest a time may be to be within the axis: one that is far slower is not to squeeze the others.
const SLOWEST: f64 = 4.0;
/// How many times the median a ratio may be, or that it.
const FARTHEST: f64 = 3.0;

/// Colours of a family of lines: its letter in classes, on white, and on the page's dark ground.
pub struct Ink {
    /// `o` of ours, `p` of peers, `x` of parts, `r` of ratios.
    pub letter: char,
    /// On white.
    pub light: &'static [&'static str],
    /// On [`DARK`].
    pub dark: &'static [&'static str],
}

/// The page's ground in the dark.
pub const DARK: &str = "#15181c";

/// All families. People who do not see red and green apart see blues in the first and yellows in the second.
pub const INKS: [Ink; 4] = [
    Ink {
        letter: 'o',
        light: &["#0060a8", "#1794d1", "#312a7a", "#7a52b3", "#00838c", "#4a6fe3", "#8a86c9", "#0b3c5d"],
        dark: &["#5aaef0", "#8fd3ff", "#8e88f0", "#c3a2f0", "#3fc2c9", "#8aa4ff", "#c5c2f2", "#4f93c7"],
    },
    Ink {
        letter: 'p',
        light: &["#c8500a", "#b98300", "#7a3b10", "#c2252b", "#9a7300", "#e0682f", "#a8612f", "#6d1a1a"],
        dark: &["#ff8a3d", "#f2bd3a", "#c98a57", "#ff7b78", "#d3b34a", "#ffae80", "#e0a070", "#d56a5c"],
    },
    Ink { letter: 'x', light: &["#6b7178", "#8b9198", "#4a4f55", "#757575"], dark: &["#9aa1a8", "#7c838a", "#bcc2c8", "#8e8e8e"] },
    Ink {
        letter: 'r',
        light: &["#20262d", "#1a7f4b", "#7a8087", "#5b8c2a", "#4a4f55", "#2f9e77"],
        dark: &["#f2f4f6", "#56c98a", "#9aa1a8", "#a5d46a", "#bcc2c8", "#7fe0bd"],
    },
];

/// What is not of colours, of a plot wherever it stands.
pub(super) const SHAPES: &str = ".l,.n,.g,.e{fill:none;stroke:currentColor}.l{stroke-width:2;stroke-linejoin:round}.m{fill:currentColor;stroke:currentColor;stroke-width:1.5}\
                          .p .l,.r1 .l,.r4 .l{stroke-dasharray:7 3}.x .l,.r2 .l,.r5 .l{stroke-dasharray:2 3}.g{stroke-opacity:.14}.e{stroke-dasharray:1 2}\
                          .b{font-weight:bold;font-size:13px}.k{text-anchor:middle}.y{text-anchor:end}.z{fill-opacity:.07;fill:currentColor}";

/// The classes of the families' colours.
pub(super) fn colours(of: impl Fn(&Ink) -> &'static [&'static str]) -> String {
    let classes = |ink: &Ink| {
        let class = |(at, colour): (usize, &&str)| format!(".{}{at}{{color:{colour}}}", ink.letter);
        of(ink).iter().enumerate().map(class).collect::<String>()
    };
    INKS.iter().map(classes).collect()
}

/// Which colour of its side's family each contender has: contenders that meet in a section have different ones, as long as there are any.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inks(BTreeMap<String, usize>);

impl Inks {
    /// The colours of all contenders of these sections.
    pub fn of<'a>(sections: impl IntoIterator<Item = &'a Section<'a>>) -> Inks {
        let mut order: Vec<(&str, Side)> = Vec::new();
        let mut meet: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for section in sections {
            let all: Vec<(&str, Side)> = section.contenders.iter().map(|name| (algorithm(name), side(&section.workload, name))).collect();
            for &(name, side) in &all {
                if !order.contains(&(name, side)) {
                    order.push((name, side));
                }
                meet.entry(name).or_default().extend(all.iter().filter(|other| other.1 == side).map(|other| other.0));
            }
        }
        let mut inks = Inks::default();
        for (name, _) in order {
            let taken: BTreeSet<usize> = meet[name].iter().filter_map(|other| inks.0.get(*other)).copied().collect();
            let free = (0..).find(|at| !taken.contains(at)).unwrap_or_default();
            inks.0.entry(name.to_owned()).or_insert(free);
        }
        inks
    }

    fn at(&self, contender: &str) -> usize {
        self.0.get(algorithm(contender)).copied().unwrap_or_default()
    }
}

/// What gathers or scatters in a contender that multiplies, too: `nccl_ring` of `nccl_ring+matmul`.
fn algorithm(contender: &str) -> &str {
    contender.split('+').find(|part| *part != "matmul").unwrap_or(contender)
}

/// A plot of some quantity over sizes.
#[derive(Clone, Debug, PartialEq)]
pub struct Plot {
    /// For its file: `all_reduce-w8-busbw`.
    pub name: String,
    title: String,
    /// What the sizes are of.
    of: Workload,
    unit: String,
    lines: Vec<Line>,
    /// What it cannot exceed, and what that is.
    limit: Option<(f64, String)>,
    scale: Scale,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Scale {
    /// From 0.
    Linear,
    /// Of times, up to `most` microseconds.
    Logarithmic { most: f64 },
    /// Of ratios, about 1, from `least` to `most`.
    Ratio { least: f64, most: f64 },
}

#[derive(Clone, Debug, PartialEq)]
struct Line {
    name: String,
    /// A letter of [`INKS`], and which of its colours.
    ink: (char, usize),
    points: Vec<Point>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Point {
    size: f64,
    value: f64,
    noise: Option<(f64, f64)>,
}

/// Why a plot could not be made.
#[derive(Debug, thiserror::Error)]
#[error("cannot draw {name}: {reason}")]
pub struct PlotError {
    name: String,
    reason: String,
}

/// Time of one world size in a graph, of pipelines eagerly, and the same over the fastest contender's of each size; of collectives bus bandwidth as well, of
/// products what each rank computes. Contenders without times have no line.
pub fn plots(section: &Section<'_>, machine: &MachineInfo, inks: &Inks) -> Vec<Plot> {
    let launching = section.launching();
    let unit = match section.workload {
        Workload::Pipeline(_) => "microseconds for all batches",
        Workload::Fsdp(_) => "microseconds a step",
        _ => "microseconds a call",
    };
    let line = |value: &dyn Fn(u64, f64) -> f64| {
        let of = |&contender: &&str| {
            let point = |bytes| {
                let estimate = section.at(bytes, contender).and_then(|timing| launching.of(timing))?.estimate();
                let ends = estimate.interval.map(|(low, high)| (value(bytes, low), value(bytes, high)));
                let noise = ends.map(|(a, b)| (a.min(b), a.max(b)));
                // A time of 0, as the emulator has it, is on no logarithmic axis and no bandwidth.
                let shown = |value: f64| value > 0.0 && value.is_finite();
                let noise = noise.filter(|&(low, high)| shown(low) && shown(high));
                Some(Point { size: bytes as f64, value: value(bytes, estimate.value), noise }).filter(|point| shown(point.value))
            };
            let points: Vec<Point> = section.sizes().filter_map(point).collect();
            let letter = match side(&section.workload, contender) {
                Side::Ours => 'o',
                Side::Peer => 'p',
                Side::Part => 'x',
            };
            (!points.is_empty()).then(|| Line { name: contender.to_owned(), ink: (letter, inks.at(contender)), points })
        };
        section.contenders.iter().filter_map(of).collect::<Vec<Line>>()
    };
    let plot = |what: &str, unit: &str, lines, limit, scale| Plot {
        name: format!("{}-{what}", section.workload.file_name()),
        title: section.name(),
        of: section.workload,
        unit: format!("{unit}, {}", launching.name()),
        lines,
        limit,
        scale,
    };
    let times = line(&|_, time| time);
    let fastest = fastest(&times);
    let most = SLOWEST * fastest.values().copied().fold(0.0, f64::max);
    let behind = line(&|size, time| time / fastest.get(&size).copied().unwrap_or(time));
    let mut plots = vec![
        plot("time", unit, times, None, Scale::Logarithmic { most }),
        plot("behind", "times as long as the fastest", behind, None, Scale::Ratio { least: 0.97, most: SLOWEST }),
    ];
    match section.workload {
        Workload::Collective(of) => {
            let limit = link_limit(machine).map(|limit| (limit.gbps, format!("links: {}", limit.name())));
            let busbw = |bytes, time| CollectiveWorkload { bytes, ..of }.bandwidths(time).1;
            plots.push(plot("busbw", "busbw, GB/s", line(&busbw), limit, Scale::Linear));
        }
        Workload::Matmul(MatmulWorkload { scenario: Scenario::Overlap, .. }) | Workload::Pipeline(_) => {}
        of @ (Workload::Matmul(_) | Workload::Fsdp(_)) => {
            let rate = |size, time| of.with_size(size).teraflops(time).unwrap_or_default();
            plots.push(plot("rate", "TFLOP/s a GPU", line(&rate), None, Scale::Linear));
        }
    }
    plots
}

/// The least time of each size.
fn fastest(lines: &[Line]) -> BTreeMap<u64, f64> {
    let mut fastest: BTreeMap<u64, f64> = BTreeMap::new();
    for point in lines.iter().flat_map(|line| &line.points) {
        let least = fastest.entry(point.size as u64).or_insert(f64::INFINITY);
        *least = least.min(point.value);
    }
    fastest
}

/// How far ours is ahead of the best of the peers over size, a line for each number of ranks and each shape; `None` where nothing can be compared.
pub fn ahead(contest: &Contest<'_>) -> Option<Plot> {
    let (worlds, of) = (contest.worlds(), contest.sections.first()?.workload);
    let line = |(at, section): (usize, &Section<'_>)| {
        let extents = if contest.has_extents() { section.workload.extents() } else { String::new() };
        let world = if worlds.len() > 1 || extents.is_empty() { format!("w={}", section.workload.world()) } else { String::new() };
        let standings = section.standings().into_iter();
        let point = |(size, ahead): (u64, super::Estimate)| Point { size: size as f64, value: ahead.value, noise: ahead.interval };
        let points = standings.filter_map(|standing| Some(point((standing.size, standing.ahead?)))).collect();
        Line { name: format!("{world}{extents}").trim().to_owned(), ink: ('r', at), points }
    };
    let lines: Vec<Line> = contest.sections.iter().enumerate().map(line).filter(|line| !line.points.is_empty()).collect();
    let ratios: Vec<f64> = lines.iter().flat_map(|line| &line.points).map(|point| point.value).collect();
    let middle = median(&ratios)?;
    Some(Plot {
        name: format!("{}-ahead", contest.family.replace(' ', "-")),
        title: contest.family.clone(),
        of,
        unit: "best peer's time over ours: above 1 ours is faster".into(),
        lines,
        limit: None,
        scale: Scale::Ratio { least: (middle / FARTHEST).min(0.5), most: (middle * FARTHEST).max(2.0) },
    })
}

/// A range of values, and where they are drawn.
struct Axis {
    low: f64,
    high: f64,
    logarithmic: bool,
    from: f64,
    to: f64,
}

impl Axis {
    /// Where a value is; one beyond the axis is at its end.
    fn at(&self, value: f64) -> f64 {
        let of = |value: f64| if self.logarithmic { value.ln() } else { value };
        let share = (of(value.clamp(self.low, self.high)) - of(self.low)) / (of(self.high) - of(self.low));
        self.from + share * (self.to - self.from)
    }

    /// Whether a value is beyond the axis: above or below.
    fn beyond(&self, value: f64) -> bool {
        value > self.high || value < self.low
    }

    /// Round values, at least `apart` units from each other.
    fn ticks(&self, apart: f64) -> Vec<f64> {
        if !self.logarithmic {
            let step = round_steps().find(|step| self.high / step * apart <= (self.to - self.from).abs()).unwrap_or(self.high);
            return (0..).map(|n| f64::from(n) * step).take_while(|value| *value <= self.high).collect();
        }
        let within = |value: &f64| !self.beyond(*value);
        // What is rounder comes first, and keeps others away: 1, then powers of ten, then 2 and 5 of each.
        let mut kept: Vec<f64> = Vec::new();
        let decades = || (-3..=9).map(|power| 10f64.powi(power));
        let coarse = std::iter::once(1.0)
            .chain(decades())
            .chain([2.0, 5.0, 1.5, 3.0, 7.0].into_iter().flat_map(|n| decades().map(move |ten| n * ten)));
        let fine = [0.9, 1.1, 1.2, 0.8, 1.3, 0.6, 1.4, 1.7, 0.95, 1.05];
        for value in coarse.chain(fine).filter(within) {
            if kept.iter().all(|other| (self.at(*other) - self.at(value)).abs() >= apart) {
                kept.push(value);
            }
        }
        kept
    }
}

/// 1, 2, 5, 10, 20, ..., from small to large.
fn round_steps() -> impl Iterator<Item = f64> {
    (-3..=9).flat_map(|power| [1.0, 2.0, 5.0].map(|n| n * 10f64.powi(power)))
}

/// A number of an axis or a remark, as short as it can be.
fn short(value: f64) -> String {
    let text = if value < 10.0 { format!("{value:.2}") } else { format!("{value:.0}") };
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// A coordinate, to a tenth.
fn place(value: f64) -> String {
    let text = format!("{value:.1}");
    text.strip_suffix(".0").unwrap_or(&text).to_owned()
}

/// The `n`-th kind of mark about a point: circle, square, triangle, diamond, triangle on its head.
fn mark(n: usize, x: f64, y: f64) -> String {
    let (x0, y0) = (place(x), place(y));
    match n % 5 {
        0 => format!("M{} {y0}a3 3 0 1 0 6 0a3 3 0 1 0-6 0", place(x - 3.0)),
        1 => format!("M{} {}h5v5h-5z", place(x - 2.5), place(y - 2.5)),
        2 => format!("M{x0} {}l3.5 6h-7z", place(y - 3.7)),
        3 => format!("M{x0} {}l3.5 3.5l-3.5 3.5l-3.5-3.5z", place(y - 3.5)),
        _ => format!("M{x0} {}l-3.5-6h7z", place(y + 3.7)),
    }
}

/// Text for an element.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

impl Plot {
    /// Whether lines have a course: points at more than one size.
    pub fn has_course(&self) -> bool {
        self.lines.iter().any(|line| line.points.len() > 1)
    }

    /// The plot as an SVG document of its own, on white. The same plot gives the same text.
    ///
    /// # Errors
    /// Where there is nothing to draw.
    pub fn svg(&self) -> Result<String, PlotError> {
        let style = format!("svg{{color:#222}}.w,.p .m{{fill:#fff}}{}{SHAPES}", colours(|ink| ink.light));
        self.draw(&format!("<style>{style}</style>"), r#"<rect class="w" width="100%" height="100%"/>"#)
    }

    /// The plot as part of a page, which has the classes of [`colours`] and [`SHAPES`] under `.plot`.
    ///
    /// # Errors
    /// Where there is nothing to draw.
    pub fn inline(&self) -> Result<String, PlotError> {
        self.draw("", "")
    }

    /// Writes the plot as a PNG.
    ///
    /// # Errors
    /// Where there is nothing to draw, or the file cannot be written.
    pub fn write_png(&self, path: &Path) -> Result<(), PlotError> {
        static FONTS: LazyLock<Arc<fontdb::Database>> = LazyLock::new(|| {
            let mut fonts = fontdb::Database::new();
            fonts.load_font_data(dejavu::sans::regular().to_vec());
            fonts.load_font_data(dejavu::sans::bold().to_vec());
            fonts.set_sans_serif_family("DejaVu Sans");
            Arc::new(fonts)
        });
        let options = usvg::Options { fontdb: FONTS.clone(), ..usvg::Options::default() };
        let tree = usvg::Tree::from_str(&self.svg()?, &options).map_err(|error| self.error(error))?;
        let size = tree.size();
        let [width, height] = [size.width(), size.height()].map(|side| (side * SCALE).ceil() as u32);
        let mut picture = Pixmap::new(width, height).ok_or_else(|| self.error("it has no extent"))?;
        resvg::render(&tree, Transform::from_scale(SCALE, SCALE), &mut picture.as_mut());
        let bytes = picture.encode_png().map_err(|error| self.error(error))?;
        fs::write(path, bytes).map_err(|error| self.error(error))
    }

    fn error(&self, reason: impl ToString) -> PlotError {
        PlotError { name: self.name.clone(), reason: reason.to_string() }
    }

    fn points(&self) -> impl Iterator<Item = (&Line, &Point)> {
        self.lines.iter().flat_map(|line| line.points.iter().map(move |point| (line, point)))
    }

    /// Sizes that have a point, ascending.
    fn sizes(&self) -> Vec<f64> {
        let sizes: BTreeSet<u64> = self.points().map(|(_, point)| point.size as u64).collect();
        sizes.into_iter().map(|size| size as f64).collect()
    }

    fn size_name(&self, size: f64) -> String {
        self.of.with_size(size.round() as u64).size_name()
    }

    fn axes(&self, sizes: &[f64]) -> (Axis, Axis) {
        let (first, last) = (sizes[0], sizes[sizes.len() - 1]);
        // A line of one point is drawn in the middle.
        let margin = (last / first).powf(0.03).max(1.05);
        let x = Axis { low: first / margin, high: last * margin, logarithmic: true, from: LEFT, to: RIGHT };
        let least = self.points().map(|(_, point)| point.noise.map_or(point.value, |noise| noise.0)).fold(f64::INFINITY, f64::min);
        let most = self.points().map(|(_, point)| point.noise.map_or(point.value, |noise| noise.1)).fold(0.0, f64::max);
        let (low, high) = match self.scale {
            Scale::Linear => (0.0, self.limit.as_ref().map_or(most, |(limit, _)| limit.max(most)) * 1.05),
            Scale::Logarithmic { most: end } => (least / 1.1, (most * 1.1).min(end)),
            Scale::Ratio { least: begin, most: end } => ((least / 1.04).min(0.9).max(begin), (most * 1.04).max(1.1).min(end)),
        };
        (x, Axis { low, high, logarithmic: self.scale != Scale::Linear, from: BOTTOM, to: TOP })
    }

    /// What is beyond the axis, in words.
    fn clipped(&self, y: &Axis) -> Vec<String> {
        let of = |(line, point): (&Line, &Point)| format!("{} at {}: {}", line.name, self.size_name(point.size), short(point.value));
        let mut all: Vec<String> = self.points().filter(|(_, point)| y.beyond(point.value)).map(of).collect();
        if all.len() > 4 {
            let more = all.len() - 3;
            all.truncate(3);
            all.push(format!("{more} more"));
        }
        if let Some(first) = all.first_mut() {
            first.insert_str(0, "beyond the axis (arrows): ");
        }
        all
    }

    /// In words, for those who do not see it.
    fn description(&self) -> String {
        let of = |line: &Line| {
            let at = |point: &Point| format!("{} at {}", short(point.value), self.size_name(point.size));
            match &line.points[..] {
                [first, .., last] => format!("{}: {} to {}", line.name, at(first), at(last)),
                [only] => format!("{}: {}", line.name, at(only)),
                [] => line.name.clone(),
            }
        };
        self.lines.iter().map(of).collect::<Vec<_>>().join("; ")
    }

    fn draw(&self, style: &str, ground: &str) -> Result<String, PlotError> {
        let sizes = self.sizes();
        if sizes.is_empty() {
            return Err(self.error("no contender has a time"));
        }
        let (x, y) = self.axes(&sizes);
        let mut body = String::new();
        let legend_end = self.legend(&mut body, BOTTOM + 2.0 * LINE + 20.0);
        let mut height = legend_end;
        for remark in wrapped(&self.clipped(&y)) {
            height += LINE;
            let _ = write!(body, r#"<text x="{LEFT}" y="{height}">{}</text>"#, escaped(&remark));
        }
        height += 8.0;
        self.grid(&mut body, &x, &y, &sizes);
        for (at, line) in self.lines.iter().enumerate() {
            self.line(&mut body, line, at, &x, &y);
        }
        Ok(format!(
            concat!(
                r#"<svg xmlns="http://www.w3.org/2000/svg" class="plot" role="img" viewBox="0 0 {w} {h}" width="{w}" height="{h}" "#,
                r#"font-family="system-ui,sans-serif" font-size="11.5" fill="currentColor">{style}<title>{title}: {unit}</title><desc>{desc}</desc>"#,
                r#"{ground}<text class="b" x="8" y="17">{title}</text><text x="8" y="34">{unit}</text>{body}</svg>"#
            ),
            w = WIDTH,
            h = place(height),
            style = style,
            title = escaped(&self.title),
            unit = escaped(&self.unit),
            desc = escaped(&self.description()),
            ground = ground,
            body = body,
        ))
    }

    fn grid(&self, out: &mut String, x: &Axis, y: &Axis, sizes: &[f64]) {
        if let Scale::Ratio { .. } = self.scale {
            let level = y.at(1.0);
            let _ = write!(
                out,
                r#"<rect class="z" x="{LEFT}" y="{}" width="{}" height="{}"/>"#,
                place(level),
                RIGHT - LEFT,
                place(BOTTOM - level)
            );
            let _ = write!(out, r#"<path class="n" d="M{LEFT} {}H{RIGHT}"/>"#, place(level));
        }
        let (mut lines, mut names) = (String::new(), String::new());
        for value in y.ticks(18.0) {
            let at = y.at(value);
            let _ = write!(lines, "M{LEFT} {}H{RIGHT}", place(at));
            let _ = write!(names, r#"<text class="y" x="{}" y="{}">{}</text>"#, LEFT - 5.0, place(at + 4.0), short(value));
        }
        let mut free = f64::NEG_INFINITY;
        for &size in sizes {
            let (at, name) = (x.at(size), self.size_name(size));
            let half = name.len() as f64 * LETTER / 2.0;
            let _ = write!(lines, "M{} {BOTTOM}v4", place(at));
            if at - half > free {
                let _ = write!(names, r#"<text class="k" x="{}" y="{}">{name}</text>"#, place(at), BOTTOM + LINE);
                free = at + half + 2.0;
            }
        }
        let _ = write!(out, r#"<path class="g" d="{lines}"/><path class="n" d="M{LEFT} {BOTTOM}H{RIGHT}"/>{names}"#);
        let _ =
            write!(out, r#"<text class="k" x="{}" y="{}">{}</text>"#, (LEFT + RIGHT) / 2.0, BOTTOM + 2.0 * LINE, escaped(self.of.axis()));
        if let Some((limit, name)) = &self.limit {
            let at = y.at(*limit);
            let _ = write!(
                out,
                r#"<path class="e" d="M{LEFT} {at:.1}H{RIGHT}"/><text class="y" x="{RIGHT}" y="{:.1}">{}</text>"#,
                at - 4.0,
                escaped(name)
            );
        }
    }

    fn line(&self, out: &mut String, line: &Line, number: usize, x: &Axis, y: &Axis) {
        let (letter, ink) = line.ink;
        let colours = INKS.iter().find(|of| of.letter == letter).map_or(1, |of| of.light.len());
        let _ = write!(out, r#"<g class="{letter} {letter}{}"><title>{}</title>"#, ink % colours, escaped(&line.name));
        let (mut course, mut noise, mut marks, mut arrows) = (String::new(), String::new(), String::new(), String::new());
        for (at, point) in line.points.iter().enumerate() {
            let (px, py) = (x.at(point.size), y.at(point.value));
            let _ = write!(course, "{}{} {}", if at == 0 { 'M' } else { 'L' }, place(px), place(py));
            if y.beyond(point.value) {
                // An arrow that leaves the plot.
                let up = if point.value > y.high { -1.0 } else { 1.0 };
                let _ = write!(arrows, "M{} {}l4 0l-4 {}l-4 {}z", place(px), place(py), place(9.0 * up), place(-9.0 * up));
            } else {
                marks += &mark(if letter == 'r' { number } else { ink }, px, py);
                if let Some((low, high)) = point.noise.filter(|(low, high)| (y.at(*low) - y.at(*high)).abs() > 1.0) {
                    let _ = write!(noise, "M{} {}V{}", place(px), place(y.at(low)), place(y.at(high)));
                }
            }
        }
        if line.points.len() > 1 {
            let _ = write!(out, r#"<path class="l" d="{course}"/>"#);
        }
        for (class, path) in [("n", noise), ("m", marks), ("m a", arrows)] {
            if !path.is_empty() {
                let _ = write!(out, r#"<path class="{class}" d="{path}"/>"#);
            }
        }
        out.push_str("</g>");
    }

    /// Writes names and marks from a height on, in columns. Returns where they end.
    fn legend(&self, out: &mut String, top: f64) -> f64 {
        const SAMPLE: f64 = 30.0;
        let longest = self.lines.iter().map(|line| line.name.chars().count()).max().unwrap_or_default();
        let wanted = SAMPLE + longest as f64 * LETTER + 10.0;
        let columns = ((WIDTH - 16.0) / wanted).floor().max(1.0) as usize;
        let width = (WIDTH - 16.0) / columns as f64;
        for (at, line) in self.lines.iter().enumerate() {
            let (letter, ink) = line.ink;
            let colours = INKS.iter().find(|of| of.letter == letter).map_or(1, |of| of.light.len());
            let (left, y) = (8.0 + (at % columns) as f64 * width, top + (at / columns) as f64 * LINE);
            let shape = mark(if letter == 'r' { at } else { ink }, left + 12.0, y - 4.0);
            let _ = write!(
                out,
                r#"<g class="{letter} {letter}{}"><path class="l" d="M{} {}h24"/><path class="m" d="{shape}"/></g><text x="{}" y="{}">{}</text>"#,
                ink % colours,
                place(left),
                place(y - 4.0),
                place(left + SAMPLE),
                place(y),
                escaped(&line.name)
            );
        }
        top + (self.lines.len().div_ceil(columns).max(1) - 1) as f64 * LINE
    }
}

/// Remarks joined by semicolons, in lines that are not wider than a plot.
fn wrapped(remarks: &[String]) -> Vec<String> {
    let most = ((WIDTH - LEFT) / LETTER) as usize;
    let mut lines: Vec<String> = Vec::new();
    for (at, remark) in remarks.iter().enumerate() {
        let remark = if at + 1 < remarks.len() { format!("{remark};") } else { remark.clone() };
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + remark.chars().count() <= most => *line = format!("{line} {remark}"),
            _ => lines.push(remark),
        }
    }
    lines
}
