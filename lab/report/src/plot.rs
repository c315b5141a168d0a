//! Curves as pictures in SVG.

use anyhow::anyhow;
use plotters::prelude::*;

/// A curve: its name and its points.
pub(crate) struct Series {
    pub(crate) name: String,
    pub(crate) points: Vec<(f64, f64)>,
}

/// Titles of the axes.
pub(crate) struct Axes<'a> {
    pub(crate) x: &'a str,
    pub(crate) y: &'a str,
}

/// Pixels.
const SIZE: (u32, u32) = (760, 420);

/// Draws curves on logarithmic axes. Returns nothing if no curve has two points.
///
/// # Errors
///
/// If the picture cannot be drawn.
pub(crate) fn curves(axes: &Axes<'_>, series: &[Series]) -> anyhow::Result<Option<String>> {
    let drawn: Vec<&Series> = series.iter().filter(|s| s.points.len() > 1).collect();
    let points = || drawn.iter().flat_map(|s| &s.points).filter(|(x, y)| *x > 0.0 && *y > 0.0);
    if points().next().is_none() {
        return Ok(None);
    }
    let range = |value: fn(&(f64, f64)) -> f64| {
        let low = points().map(value).fold(f64::MAX, f64::min);
        (low, points().map(value).fold(0.0, f64::max))
    };
    let ((left, right), (low, high)) = (range(|point| point.0), range(|point| point.1));
    let mut text = String::new();
    draw(&mut text, axes, &drawn, (left, right * 1.05), (low * 0.7, high * 1.4))
        .map_err(|error| anyhow!("a plot: {error}"))?;
    Ok(Some(text))
}

/// Returns 1, 2 and 5 times each power of ten in a range.
fn ticks((low, high): (f64, f64)) -> Vec<f64> {
    let exponents = low.log10().floor() as i32..=high.log10().ceil() as i32;
    let all = exponents.flat_map(|exponent| [1.0, 2.0, 5.0].map(|n| n * 10f64.powi(exponent)));
    all.filter(|tick| (low..=high).contains(tick)).collect()
}

fn draw(
    text: &mut String,
    axes: &Axes<'_>,
    series: &[&Series],
    x: (f64, f64),
    y: (f64, f64),
) -> Result<(), Box<dyn std::error::Error>> {
    let root = SVGBackend::with_string(text, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&root)
        .margin(10)
        .margin_right(200)
        .x_label_area_size(36)
        .y_label_area_size(72)
        .build_cartesian_2d(
            (x.0..x.1).log_scale().with_key_points(ticks(x)),
            (y.0..y.1).log_scale().with_key_points(ticks(y)),
        )?;
    chart
        .configure_mesh()
        .x_desc(format!("{}, logarithmic", axes.x))
        .y_desc(format!("{}, logarithmic", axes.y))
        .light_line_style(TRANSPARENT)
        .bold_line_style(BLACK.mix(0.15))
        .x_label_formatter(&f64::to_string)
        .y_label_formatter(&f64::to_string)
        .draw()?;
    for (i, curve) in series.iter().enumerate() {
        let colour = HSLColor(i as f64 / series.len() as f64, 0.7, 0.4);
        let points = curve.points.iter().copied().filter(|(x, y)| *x > 0.0 && *y > 0.0);
        chart.draw_series(LineSeries::new(points, colour.stroke_width(2)))?;
        // The names stand beside the plot, one below the other, so that none covers a curve.
        let line = 14 + 15 * i as i32;
        let at = (SIZE.0 as i32 - 184, line);
        root.draw(&PathElement::new([(at.0, at.1), (at.0 + 16, at.1)], colour.stroke_width(3)))?;
        let style = ("sans-serif", 12).into_font();
        root.draw(&Text::new(curve.name.clone(), (at.0 + 22, at.1 - 6), style))?;
    }
    root.present()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plot_names_its_curves() {
        let series = |name: &str, points: &[(f64, f64)]| Series {
            name: name.to_owned(),
            points: points.to_vec(),
        };
        let axes = Axes { x: "CPUs", y: "s" };
        let many = [series("reported", &[(1.0, 1.5), (8.0, 27.0)]), series("dot", &[(1.0, 1.0)])];
        let svg = curves(&axes, &many).expect("it can be drawn").expect("there is a curve");
        assert!(svg.starts_with("<svg") && svg.contains("reported") && !svg.contains("dot"));
        assert!(curves(&axes, &many[1..]).expect("nothing to draw").is_none());
    }

    /// Each tick of an axis has a label of its own.
    #[test]
    fn no_two_ticks_of_an_axis_have_one_label() {
        let points = vec![(1.0, 1_409_371.0), (12.0, 33_991.0)];
        let axes = Axes { x: "CPUs", y: "1/s" };
        let series = [Series { name: "ours".to_owned(), points }];
        let svg = curves(&axes, &series).expect("it can be drawn").expect("there is a curve");
        let labels: Vec<&str> =
            svg.lines().map(str::trim).filter(|line| line.parse::<f64>().is_ok()).collect();
        let ticks = ["50000", "100000", "200000", "500000", "1000000", "1", "2", "5", "10"];
        assert_eq!(labels, ticks);
    }
}
