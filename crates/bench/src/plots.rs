//! Plots: time and rate over size, one line a contender, with what the links can carry.

use std::{path::Path, sync::Once};

use plotters::{
    coord::{
        Shift,
        ranged1d::{AsRangedCoord, ValueFormatter},
    },
    prelude::*,
    style::register_font,
};

use super::{CollectiveWorkload, Launching, MatmulWorkload, Scenario, Section, Side, Workload, link_limit, side};
use passmuster_collectives::machine::MachineInfo;

/// Width and height in pixels.
const EXTENT: (u32, u32) = (900, 520);

/// Colours that people of any sight tell apart (Okabe and Ito), and black.
const COLOURS: [RGBColor; 8] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(120, 94, 60),
    RGBColor(0, 0, 0),
];

/// A plot of some quantity over sizes.
#[derive(Clone, Debug, PartialEq)]
pub struct Plot {
    /// For its file: `all_reduce-w8-busbw`.
    pub name: String,
    title: String,
    /// What the sizes are of.
    of: Workload,
    unit: &'static str,
    lines: Vec<Line>,
    /// What it cannot exceed, and what that is.
    limit: Option<(f64, String)>,
    logarithmic: bool,
}

#[derive(Clone, Debug, PartialEq)]
struct Line {
    contender: String,
    /// Dashed.
    peer: bool,
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

/// Time of one world size in a graph, of pipelines eagerly; of collectives bus bandwidth as well, of products what each rank computes. Contenders without
/// times have no line.
pub fn plots(section: &Section<'_>, machine: &MachineInfo) -> Vec<Plot> {
    // What hosts are told is in no graph.
    let (launching, unit) = match section.workload {
        Workload::Pipeline(_) => (Launching::Eager, "microseconds for all batches"),
        Workload::Fsdp(_) => (Launching::Graph, "microseconds a step"),
        _ => (Launching::Graph, "microseconds a call"),
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
            let peer = side(&section.workload, contender) != Side::Ours;
            (!points.is_empty()).then(|| Line { contender: contender.to_owned(), peer, points })
        };
        section.contenders.iter().filter_map(of).collect()
    };
    let plot = |what: &str, unit, lines, limit, logarithmic| Plot {
        name: format!("{}-{what}", section.workload.file_name()),
        title: format!("{}, {}", section.name(), launching.name()),
        of: section.workload,
        unit,
        lines,
        limit,
        logarithmic,
    };
    let mut plots = vec![plot("time", unit, line(&|_, time| time), None, true)];
    match section.workload {
        Workload::Collective(of) => {
            let limit = link_limit(machine).map(|limit| (limit.gbps, format!("links: {}", limit.name())));
            let busbw = |bytes, time| CollectiveWorkload { bytes, ..of }.bandwidths(time).1;
            plots.push(plot("busbw", "busbw, GB/s", line(&busbw), limit, false));
        }
        Workload::Matmul(MatmulWorkload { scenario: Scenario::Overlap, .. }) | Workload::Pipeline(_) => {}
        of @ (Workload::Matmul(_) | Workload::Fsdp(_)) => {
            let rate = |size, time| of.with_size(size).teraflops(time).unwrap_or_default();
            plots.push(plot("rate", "TFLOP/s a GPU", line(&rate), None, false));
        }
    }
    plots
}

impl Plot {
    /// The plot as an SVG document. The same plot gives the same text.
    ///
    /// # Errors
    /// Where there is nothing to draw.
    pub fn svg(&self) -> Result<String, PlotError> {
        let mut text = String::new();
        self.draw(SVGBackend::with_string(&mut text, EXTENT).into_drawing_area())?;
        // What is the default need not be said, and reports have many plots.
        Ok(text.replace(" opacity=\"1\"", ""))
    }

    /// Writes the plot as a PNG.
    ///
    /// # Errors
    /// Where there is nothing to draw, or the file cannot be written.
    pub fn write_png(&self, path: &Path) -> Result<(), PlotError> {
        self.draw(BitMapBackend::new(path, EXTENT).into_drawing_area())
    }

    fn error(&self, reason: impl ToString) -> PlotError {
        PlotError { name: self.name.clone(), reason: reason.to_string() }
    }

    fn draw<B: DrawingBackend>(&self, area: DrawingArea<B, Shift>) -> Result<(), PlotError> {
        register();
        let points = || self.lines.iter().flat_map(|line| &line.points);
        let least = |of: &dyn Fn(&Point) -> f64| points().map(of).fold(f64::INFINITY, f64::min);
        let most = |of: &dyn Fn(&Point) -> f64| points().map(of).fold(0.0, f64::max);
        if points().next().is_none() {
            return Err(self.error("no contender has a time"));
        }
        // A line of one point is drawn in the middle.
        let sizes = (least(&|point| point.size) / 1.5)..(most(&|point| point.size) * 1.5);
        let (low, high) = (
            least(&|point| point.noise.map_or(point.value, |noise| noise.0)),
            most(&|point| point.noise.map_or(point.value, |noise| noise.1)),
        );
        if self.logarithmic {
            self.draw_on(area, sizes, ((low / 1.5)..(high * 1.5)).log_scale())
        } else {
            let top = self.limit.as_ref().map_or(high, |(limit, _)| limit.max(high));
            self.draw_on(area, sizes, 0.0..top * 1.08)
        }
        .map_err(|reason| self.error(reason))
    }

    fn draw_on<B, Y>(&self, area: DrawingArea<B, Shift>, sizes: std::ops::Range<f64>, values: Y) -> Result<(), String>
    where
        B: DrawingBackend,
        Y: AsRangedCoord<Value = f64>,
        Y::CoordDescType: ValueFormatter<f64>,
    {
        let text = |error: DrawingAreaErrorKind<B::ErrorType>| error.to_string();
        area.fill(&WHITE).map_err(text)?;
        let mut chart = ChartBuilder::on(&area)
            .caption(&self.title, ("sans-serif", 18))
            .margin(12)
            .x_label_area_size(44)
            .y_label_area_size(64)
            .build_cartesian_2d(sizes.clone().log_scale().base(2.0), values)
            .map_err(text)?;
        chart
            .configure_mesh()
            .x_desc(self.of.axis())
            .y_desc(self.unit)
            .x_labels(16)
            .x_label_formatter(&|size| self.of.with_size(size.round() as u64).size_name())
            .y_label_formatter(&|value| if *value < 10.0 && value.fract() > 0.0 { format!("{value:.1}") } else { format!("{value:.0}") })
            .light_line_style(TRANSPARENT)
            .bold_line_style(BLACK.mix(0.12))
            .label_style(("sans-serif", 13))
            .draw()
            .map_err(text)?;
        if let Some((limit, name)) = &self.limit {
            let ends = [(sizes.start, *limit), (sizes.end, *limit)];
            let style = RED.stroke_width(1);
            let drawn = chart.draw_series(LineSeries::new(ends, style)).map_err(text)?;
            drawn.label(name).legend(move |(x, y)| PathElement::new([(x, y), (x + 24, y)], style));
        }
        for (line, colour) in self.lines.iter().zip(COLOURS.into_iter().cycle()) {
            let style = colour.stroke_width(2);
            let path = || line.points.iter().map(|point| (point.size, point.value));
            let drawn = match line.peer {
                true => chart.draw_series(DashedLineSeries::new(path(), 14, 8, style)),
                false => chart.draw_series(LineSeries::new(path(), style)),
            };
            let peer = line.peer;
            drawn.map_err(text)?.label(&line.contender).legend(move |at| {
                // Two pieces, with a gap between them for a peer.
                let (end, begin) = if peer { (9, 15) } else { (12, 12) };
                EmptyElement::at(at) + PathElement::new([(0, 0), (end, 0)], style) + PathElement::new([(begin, 0), (24, 0)], style)
            });
            chart.draw_series(path().map(|at| Circle::new(at, 3, colour.filled()))).map_err(text)?;
            let noise = line.points.iter().filter_map(|point| Some((point.size, point.noise?)));
            chart
                .draw_series(noise.map(|(bytes, (low, high))| PathElement::new([(bytes, low), (bytes, high)], colour.stroke_width(1))))
                .map_err(text)?;
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperLeft)
            .background_style(WHITE.mix(0.85))
            .border_style(BLACK.mix(0.3))
            .label_font(("sans-serif", 13))
            .draw()
            .map_err(text)?;
        area.present().map_err(text)
    }
}

/// Makes a font known, once: plotters measures text with it, in SVG too.
fn register() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // It fails for what is no font, and this one is.
        let registered = register_font("sans-serif", FontStyle::Normal, dejavu::sans::regular());
        assert!(registered.is_ok(), "DejaVu Sans is a font");
    });
}
