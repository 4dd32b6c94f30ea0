//! Draws curves against message size as one SVG file that needs no other: no script, no font but the viewer's own.

mod file;
mod scale;
pub mod svg;

pub use file::PlotFile;
use scale::Axis;
use std::fmt::{self, Write};
use svg::{Escaped, INK, PAPER, begin};

const LEFT: f64 = 84.0;
const RIGHT: f64 = 832.0;
const TOP: f64 = 52.0;
const BOTTOM: f64 = 440.0;
const LEGEND_TOP: f64 = 514.0;
const LEGEND_LINE: f64 = 22.0;
/// Characters of a legend's line that fit beside its curve's sample.
const LEGEND_CHARACTERS: usize = 100;
/// Colours that people who see fewer colours tell apart, too.
const COLOURS: [&str; 7] = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#222222"];

/// Curves and what they show.
#[derive(Debug, Clone, PartialEq)]
pub struct Chart {
    /// Stands above them.
    pub title: String,
    /// Label of the value axis, with the unit.
    pub values: String,
    /// Whether values are placed by powers of ten, instead of from 0.
    pub logarithmic: bool,
    /// The curves, in the legend's order.
    pub curves: Vec<Curve>,
}

/// A curve of a chart.
#[derive(Debug, Clone, PartialEq)]
pub struct Curve {
    /// Text in the legend.
    pub label: String,
    /// Curves of one number have one colour and one mark.
    pub number: usize,
    /// Whether its line is broken.
    pub dashed: bool,
    /// Message size in bytes, and the value.
    pub points: Vec<(u64, f64)>,
}

/// Charts one below the other.
#[derive(Debug, Clone, PartialEq)]
pub struct Charts(pub Vec<Chart>);

/// The whole SVG file.
impl fmt::Display for Chart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        begin(f, self.height(), &self.title)?;
        self.draw(f)?;
        writeln!(f, "</svg>")
    }
}

/// The whole SVG file.
impl fmt::Display for Charts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let titles: Vec<_> = self.0.iter().map(|chart| chart.title.as_str()).collect();
        begin(f, self.0.iter().map(Chart::height).sum(), &titles.join("; "))?;
        let mut top = 0.0;
        for chart in &self.0 {
            writeln!(f, r#"<g transform="translate(0 {top})">"#)?;
            chart.draw(f)?;
            writeln!(f, "</g>")?;
            top += chart.height();
        }
        writeln!(f, "</svg>")
    }
}

const GRID: &str = "#e2e2e2";

impl Chart {
    fn height(&self) -> f64 {
        LEGEND_TOP + LEGEND_LINE * self.curves.len() as f64
    }

    fn draw(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            r#"<text x="{LEFT}" y="30" font-size="17" font-weight="600">{}</text>"#,
            Escaped(&self.title)
        )?;
        let (sizes, values) = self.axes();
        grid(f, &sizes, &values, &self.values)?;
        for curve in &self.curves {
            curve.draw(f, &sizes, &values, self.logarithmic)?;
        }
        for (line, curve) in self.curves.iter().enumerate() {
            curve.name(f, LEGEND_TOP + LEGEND_LINE * line as f64)?;
        }
        Ok(())
    }

    fn axes(&self) -> (Axis, Axis) {
        let points = || self.curves.iter().flat_map(|curve| &curve.points);
        let sizes = points().map(|(size, _)| *size);
        let sizes = Axis::sizes(sizes.clone().min().unwrap_or(1), sizes.max().unwrap_or(1));
        let most = points().map(|(_, value)| *value).fold(0.0, f64::max);
        let least = points().map(|(_, value)| *value).filter(|value| *value > 0.0).fold(most, f64::min);
        let logarithmic = self.logarithmic && least > 0.0;
        (sizes, if logarithmic { Axis::logarithmic(least, most) } else { Axis::from_zero(most) })
    }
}

fn across(sizes: &Axis, size: f64) -> f64 {
    LEFT + sizes.place(size) * (RIGHT - LEFT)
}

fn down(values: &Axis, value: f64) -> f64 {
    BOTTOM - values.place(value) * (BOTTOM - TOP)
}

/// Both axes with their labels and names.
fn grid(f: &mut fmt::Formatter<'_>, sizes: &Axis, values: &Axis, name: &str) -> fmt::Result {
    for (value, label) in &values.labels {
        let y = down(values, *value);
        writeln!(f, r#"<path d="M{LEFT} {y:.1}H{RIGHT}" stroke="{GRID}"/>"#)?;
        writeln!(f, r#"<text x="{:.1}" y="{:.1}" text-anchor="end">{label}</text>"#, LEFT - 8.0, y + 4.5)?;
    }
    for (size, label) in &sizes.labels {
        let x = across(sizes, *size);
        writeln!(f, r#"<path d="M{x:.1} {TOP}V{BOTTOM}" stroke="{GRID}"/>"#)?;
        writeln!(f, r#"<text x="{x:.1}" y="{:.1}" text-anchor="middle">{label}</text>"#, BOTTOM + 20.0)?;
    }
    writeln!(f, r#"<path d="M{LEFT} {TOP}V{BOTTOM}H{RIGHT}" fill="none" stroke="{INK}"/>"#)?;
    let (middle, centre) = ((LEFT + RIGHT) / 2.0, (TOP + BOTTOM) / 2.0);
    writeln!(f, r#"<text x="{middle}" y="{}" text-anchor="middle">message size</text>"#, BOTTOM + 44.0)?;
    writeln!(
        f,
        r#"<text transform="translate(22 {centre}) rotate(-90)" text-anchor="middle">{}</text>"#,
        Escaped(name)
    )
}

impl Curve {
    fn draw(
        &self,
        f: &mut fmt::Formatter<'_>,
        sizes: &Axis,
        values: &Axis,
        logarithmic: bool,
    ) -> fmt::Result {
        // A logarithmic axis has no 0.
        let shown = self.points.iter().filter(|(_, value)| !logarithmic || *value > 0.0);
        let places: Vec<_> =
            shown.map(|(size, value)| (across(sizes, *size as f64), down(values, *value))).collect();
        let mut path = String::new();
        for (x, y) in &places {
            write!(path, "{}{x:.1} {y:.1}", if path.is_empty() { 'M' } else { 'L' })?;
        }
        self.line(f, &path)?;
        places.iter().try_for_each(|(x, y)| self.mark(f, *x, *y))
    }

    /// Draws the line and the text of the legend.
    fn name(&self, f: &mut fmt::Formatter<'_>, y: f64) -> fmt::Result {
        self.line(f, &format!("M{LEFT} {y:.1}h36"))?;
        self.mark(f, LEFT + 18.0, y)?;
        let mut label: String = self.label.chars().take(LEGEND_CHARACTERS).collect();
        if label.len() < self.label.len() {
            label.push('…');
        }
        writeln!(f, r#"<text x="{}" y="{:.1}">{}</text>"#, LEFT + 46.0, y + 4.5, Escaped(&label))
    }

    fn colour(&self) -> &'static str {
        COLOURS[self.number % COLOURS.len()]
    }

    fn line(&self, f: &mut fmt::Formatter<'_>, path: &str) -> fmt::Result {
        let dashes = if self.dashed { r#" stroke-dasharray="6 4""# } else { "" };
        let colour = self.colour();
        writeln!(f, r#"<path d="{path}" fill="none" stroke="{colour}" stroke-width="2"{dashes}/>"#)
    }

    /// Curves whose colours are alike have different marks; that of a broken line is hollow.
    fn mark(&self, f: &mut fmt::Formatter<'_>, x: f64, y: f64) -> fmt::Result {
        let shape = ["m-3.5 -3.5h7v7h-7z", "m0 -5l5 5l-5 5l-5 -5z", "m0 -5l4.6 8h-9.2z", "m0 5l4.6 -8h-9.2z"];
        let (colour, shape) = (self.colour(), shape[self.number % shape.len()]);
        let fill = if self.dashed { PAPER } else { colour };
        writeln!(f, r#"<path d="M{x:.1} {y:.1}{shape}" fill="{fill}" stroke="{colour}"/>"#)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart() -> Chart {
        let points = [(64, 1.7), (4096, 3.4), (65_536, 21.0)];
        let curve = |label: &str, number, dashed, times: f64| Curve {
            label: label.into(),
            number,
            dashed,
            points: points.map(|(size, value)| (size, value * times)).to_vec(),
        };
        Chart {
            title: "RDMA_Write Latency Test".into(),
            values: "latency (us)".into(),
            logarithmic: true,
            curves: vec![
                curve("write_lat, soft0, tcp: typical", 0, false, 1.0),
                curve("write_lat, soft0, tcp: 99 %", 0, true, 1.5),
                curve("before <&> \"after\"", 1, false, 0.5),
            ],
        }
    }

    #[test]
    fn the_file_is_what_it_was() {
        insta::assert_snapshot!(chart().to_string());
    }

    #[test]
    fn it_needs_nothing_else_and_tags_are_closed() {
        let text = chart().to_string();
        for foreign in ["<script", "href", "@import", "url(", "<style"] {
            assert!(!text.contains(foreign), "{foreign}");
        }
        assert_eq!(text.matches("http").count(), 1, "the name space alone");
        assert!(text.contains("before &lt;&amp;&gt; \"after\"") && !text.contains("<&>"));
        for tag in ["svg", "text", "title"] {
            let (open, close) =
                (text.matches(&format!("<{tag}")).count(), text.matches(&format!("</{tag}>")).count());
            assert_eq!(open, close, "{tag}");
        }
        assert!(
            text.matches("<path").count() == text.lines().filter(|line| line.ends_with("/>")).count() - 1
        );
    }

    #[test]
    fn charts_are_one_below_the_other_as_they_are_alone() {
        let other = Chart { title: "Another".into(), curves: vec![], ..chart() };
        let text = Charts(vec![chart(), other.clone()]).to_string();
        let height = |text: &str| -> f64 {
            let (_, after) = text.split_once(" height=\"").unwrap();
            after.split('"').next().unwrap().parse().unwrap()
        };
        let (first, second) = (chart().to_string(), other.to_string());
        assert_eq!(height(&text), height(&first) + height(&second));
        assert!(text.contains(&format!("<g transform=\"translate(0 {})\">", height(&first))), "{text}");
        for alone in [first, second] {
            let drawn: Vec<_> = alone.lines().skip(3).take_while(|line| *line != "</svg>").collect();
            assert!(text.contains(&drawn.join("\n")), "{alone}");
        }
    }

    #[test]
    fn one_point_none_and_zeros_are_drawn() {
        for points in [vec![], vec![(1, 0.0)], vec![(65_536, 2000.0)]] {
            for logarithmic in [false, true] {
                let curve = Curve { points: points.clone(), ..chart().curves[0].clone() };
                let text = Chart { logarithmic, curves: vec![curve], ..chart() }.to_string();
                assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
            }
        }
    }

    #[test]
    fn a_name_that_is_too_long_is_cut() {
        let mut chart = chart();
        chart.curves[0].label = "ü".repeat(500);
        let text = chart.to_string();
        assert!(text.contains(&format!("{}…<", "ü".repeat(LEGEND_CHARACTERS))), "{text}");
    }
}
