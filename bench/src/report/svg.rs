//! Plots as SVG: bars with spread, and lines over linear or logarithmic axes.
//!
//! Colours come from the page (`.capstan`, `.upstream`), so that a dark screen and paper both get theirs; the sides
//! differ in shape as well (filled and hollow marks), so that no plot depends on colour alone.

use std::fmt::Write as _;

use super::figure;

/// The width that everything is drawn for; the page scales it.
const WIDTH: f64 = 640.0;
/// The room to the left of a plot of lines.
const LEFT: f64 = 64.0;
/// The room to its right.
const RIGHT: f64 = 16.0;
/// The height of a plot of lines, with its axes.
const HEIGHT: f64 = 280.0;
/// The room above and below it.
const TOP: f64 = 36.0;
const BOTTOM: f64 = 44.0;

/// One side's value with the least and the most of its rounds.
pub(super) struct Bar {
    pub(super) side: &'static str,
    pub(super) value: f64,
    pub(super) low: f64,
    pub(super) high: f64,
}

/// The bars of one case; they share a scale that nothing else does.
pub(super) fn bars(bars: &[Bar], unit: &str) -> String {
    const ROW: f64 = 22.0;
    const NAME: f64 = 96.0;
    const VALUE: f64 = 200.0;
    let most = bars.iter().map(|bar| bar.high).fold(0.0, f64::max);
    let width = |value: f64| if most > 0.0 { (WIDTH - NAME - VALUE) * value / most } else { 0.0 };
    let mut out = open(ROW * bars.len() as f64, "bars");
    for (at, bar) in bars.iter().enumerate() {
        let y = ROW * at as f64;
        let (middle, text) = (y + ROW / 2.0, y + ROW / 2.0 + 4.5);
        let (side, end) = (bar.side, NAME + width(bar.high) + 8.0);
        let _ = write!(
            out,
            r#"<text x="0" y="{text:.1}">{side}</text><rect class="fill {side}" x="{NAME}" y="{:.1}" width="{:.1}" height="{:.1}" rx="2"/>"#,
            y + 4.0,
            width(bar.value).max(1.0),
            ROW - 8.0,
        );
        if bar.high > bar.low {
            let (low, high) = (NAME + width(bar.low), NAME + width(bar.high));
            let _ = write!(out, r#"<path class="spread" d="M{low:.1} {middle:.1}H{high:.1}"/>"#);
            for x in [low, high] {
                let _ = write!(out, r#"<path class="spread" d="M{x:.1} {:.1}V{:.1}"/>"#, middle - 4.0, middle + 4.0);
            }
        }
        let _ = write!(out, r#"<text x="{end:.1}" y="{text:.1}">{} {unit}</text>"#, figure(bar.value));
    }
    out + "</svg>"
}

/// A line of one side.
pub(super) struct Line {
    pub(super) side: &'static str,
    pub(super) points: Vec<(f64, f64)>,
}

/// How an axis goes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Scale {
    /// From zero.
    Linear,
    /// In powers of ten.
    Log,
}

/// What a plot of lines shows.
pub(super) struct Plot {
    pub(super) x: (&'static str, Scale),
    pub(super) y: (&'static str, Scale),
    /// Where the horizontal axis has which text; by its figures when there are none.
    pub(super) marks: Vec<(f64, &'static str)>,
    /// Whether each point is marked.
    pub(super) dots: bool,
}

struct Axis {
    scale: Scale,
    from: f64,
    to: f64,
}

impl Axis {
    fn new(scale: Scale, values: impl Iterator<Item = f64> + Clone) -> Self {
        let most = values.clone().fold(f64::NEG_INFINITY, f64::max);
        let least = values.filter(|value| *value > 0.0).fold(f64::INFINITY, f64::min);
        match scale {
            Scale::Linear => Axis { scale, from: 0.0, to: if most > 0.0 { most } else { 1.0 } },
            Scale::Log => {
                let from = if least.is_finite() { least } else { 1.0 };
                let (from, to) = (10_f64.powf(from.log10().floor()), 10_f64.powf(most.max(from).log10().ceil()));
                Axis { scale, from, to: if to > from { to } else { from * 10.0 } }
            }
        }
    }

    /// Where a value is, from 0 to 1.
    fn place(&self, value: f64) -> f64 {
        match self.scale {
            Scale::Linear => value / self.to,
            Scale::Log => (value.max(self.from) / self.from).log10() / (self.to / self.from).log10(),
        }
    }

    fn ticks(&self) -> Vec<f64> {
        match self.scale {
            Scale::Log => {
                let decades = (self.to / self.from).log10().round() as i32;
                (0..=decades).map(|decade| self.from * 10_f64.powi(decade)).collect()
            }
            Scale::Linear => {
                let step = self.to / 4.0;
                let unit = 10_f64.powf(step.log10().floor());
                let step = [1.0, 2.0, 5.0, 10.0].map(|times| times * unit).into_iter().find(|round| *round >= step);
                let step = step.unwrap_or(unit * 10.0);
                (0..=(self.to / step) as usize).map(|at| at as f64 * step).collect()
            }
        }
    }
}

/// Lines on axes.
pub(super) fn lines(plot: &Plot, lines: &[Line]) -> String {
    let points = || lines.iter().flat_map(|line| line.points.iter());
    let x_axis = Axis::new(plot.x.1, points().map(|point| point.0));
    let y_axis = Axis::new(plot.y.1, points().map(|point| point.1));
    let x = |value: f64| LEFT + (WIDTH - LEFT - RIGHT) * x_axis.place(value);
    let y = |value: f64| HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * y_axis.place(value);
    let mut out = open(HEIGHT, "lines");
    for tick in y_axis.ticks() {
        let at = y(tick);
        let _ = write!(out, r#"<path class="grid" d="M{LEFT} {at:.1}H{:.1}"/>"#, WIDTH - RIGHT);
        let _ = write!(out, r#"<text class="end" x="{:.1}" y="{:.1}">{}</text>"#, LEFT - 6.0, at + 4.0, short(tick));
    }
    let marks: Vec<(f64, String)> = if plot.marks.is_empty() {
        x_axis.ticks().into_iter().map(|tick| (tick, short(tick))).collect()
    } else {
        plot.marks.iter().map(|(at, text)| (*at, (*text).to_owned())).collect()
    };
    for (tick, text) in marks {
        let (at, below) = (x(tick), HEIGHT - BOTTOM + 17.0);
        let _ = write!(out, r#"<text class="middle" x="{at:.1}" y="{below:.1}">{text}</text>"#);
    }
    let (middle, bottom) = (LEFT + (WIDTH - LEFT - RIGHT) / 2.0, HEIGHT - 8.0);
    let _ = write!(out, r#"<text class="middle" x="{middle:.1}" y="{bottom:.1}">{}</text>"#, plot.x.0);
    let _ = write!(out, r#"<text x="0" y="14">{}</text>"#, plot.y.0);
    for line in lines {
        let mut path = String::new();
        for (at, point) in line.points.iter().enumerate() {
            let _ = write!(path, "{}{:.1} {:.1}", if at == 0 { 'M' } else { 'L' }, x(point.0), y(point.1));
        }
        let _ = write!(out, r#"<path class="line {}" d="{path}"/>"#, line.side);
        for point in line.points.iter().filter(|_| plot.dots) {
            let _ = write!(
                out,
                r#"<circle class="dot {}" cx="{:.1}" cy="{:.1}" r="4"/>"#,
                line.side,
                x(point.0),
                y(point.1)
            );
        }
    }
    out + "</svg>"
}

fn open(height: f64, class: &str) -> String {
    format!(r#"<svg class="{class}" viewBox="0 0 {WIDTH} {height:.0}" role="img">"#)
}

/// A figure for an axis: 10k instead of 10,000.
fn short(value: f64) -> String {
    match value {
        value if value >= 1e6 => format!("{}M", value / 1e6),
        value if value >= 1e3 => format!("{}k", value / 1e3),
        value => format!("{}", (value * 1e6).round() / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_have_round_ticks() {
        let check = |scale, values: &[f64], ticks: &[f64]| {
            assert_eq!(Axis::new(scale, values.iter().copied()).ticks(), ticks, "{values:?}");
        };
        check(Scale::Linear, &[3.0, 90.0], &[0.0, 50.0]);
        check(Scale::Linear, &[100.0], &[0.0, 50.0, 100.0]);
        check(Scale::Linear, &[], &[0.0, 0.5, 1.0]);
        check(Scale::Log, &[3.0, 90.0], &[1.0, 10.0, 100.0]);
        check(Scale::Log, &[10.0], &[10.0, 100.0]);
        check(Scale::Log, &[0.0], &[1.0, 10.0]);
    }

    #[test]
    fn plots_stay_inside_their_frame() {
        let points = vec![(0.0, 0.0), (10.0, 5.0), (1e5, 1e-3)];
        for scale in [Scale::Linear, Scale::Log] {
            let plot = Plot { x: ("x", scale), y: ("y", scale), marks: Vec::new(), dots: true };
            let svg = lines(&plot, &[Line { side: "capstan", points: points.clone() }]);
            for part in svg.split("cx=\"").skip(1) {
                let at: f64 = part.split('"').next().unwrap().parse().unwrap();
                assert!((LEFT..=WIDTH - RIGHT).contains(&at), "{at} in {svg}");
            }
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        }
        let none = Bar { side: "capstan", value: 0.0, low: 0.0, high: 0.0 };
        assert!(!bars(&[none], "s").contains("NaN"));
    }
}
