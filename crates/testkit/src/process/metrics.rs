//! Reading the text format of Prometheus.

/// The samples of one scrape.
#[derive(Debug, Clone, PartialEq)]
pub struct Metrics(Vec<Sample>);

/// One sample.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// The metric's name.
    pub name: String,
    /// Its labels.
    pub labels: Vec<(String, String)>,
    /// Its value.
    pub value: f64,
}

impl Metrics {
    /// Reads a scrape; the line that is no sample when there is one.
    pub fn parse(text: &str) -> Result<Self, String> {
        text.lines()
            .filter(|line| !line.is_empty() && !line.starts_with('#'))
            .map(|line| parse_sample(line).ok_or_else(|| line.to_owned()))
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// All samples.
    pub fn samples(&self) -> &[Sample] {
        &self.0
    }

    /// The sum over the samples of that name that have all of `labels`; `None` when there is none.
    pub fn sum(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let mut matching = self
            .0
            .iter()
            .filter(|sample| sample.name == name && sample.has(labels))
            .map(|sample| sample.value)
            .peekable();
        matching.peek()?;
        Some(matching.sum())
    }

    /// As [`Metrics::sum`], as the whole number that a count is.
    ///
    /// # Panics
    /// When it is none.
    pub fn whole(&self, name: &str, labels: &[(&str, &str)]) -> Option<u64> {
        let sum = self.sum(name, labels)?;
        let whole = format!("{sum}").parse();
        Some(whole.unwrap_or_else(|_| panic!("{name} is {sum}, not a whole number")))
    }

    /// As [`Metrics::sum`], and 0 when there is no such sample: a counter that was not touched.
    pub fn count(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        self.sum(name, labels).unwrap_or(0.0)
    }
}

impl Sample {
    fn has(&self, labels: &[(&str, &str)]) -> bool {
        labels.iter().all(|(name, value)| {
            let mut own = self.labels.iter();
            own.any(|(n, v)| n == name && v == value)
        })
    }
}

fn parse_sample(line: &str) -> Option<Sample> {
    let end = line.find(['{', ' '])?;
    let (name, rest) = line.split_at(end);
    let (labels, rest) = match rest.strip_prefix('{') {
        Some(rest) => parse_labels(rest)?,
        None => (Vec::new(), rest),
    };
    // A timestamp may follow.
    let value = match rest.split_whitespace().next()? {
        "+Inf" => f64::INFINITY,
        "-Inf" => f64::NEG_INFINITY,
        number => number.parse().ok()?,
    };
    Some(Sample {
        name: name.to_owned(),
        labels,
        value,
    })
}

/// The labels, and what follows their closing brace.
fn parse_labels(mut rest: &str) -> Option<(Vec<(String, String)>, &str)> {
    let mut labels = Vec::new();
    loop {
        rest = rest.trim_start_matches([',', ' ']);
        if let Some(rest) = rest.strip_prefix('}') {
            return Some((labels, rest));
        }
        let (name, after) = rest.split_once("=\"")?;
        let mut value = String::new();
        let mut chars = after.char_indices();
        let end = loop {
            match chars.next()? {
                (at, '"') => break at,
                (_, '\\') => value.push(match chars.next()?.1 {
                    'n' => '\n',
                    other => other,
                }),
                (_, other) => value.push(other),
            }
        };
        labels.push((name.to_owned(), value));
        rest = &after[end + 1..];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_read_with_their_labels_and_summed() {
        let text = "# HELP m help\n# TYPE m counter\n\
            m{route=\"a\",reason=\"x\"} 1\nm{route=\"a\",reason=\"y\"} 2.5\n\
            m{route=\"b,}\\\"\\n\\\\\"} 4 1700000000\nplain 7\nup +Inf\n";
        let metrics = Metrics::parse(text).unwrap();
        assert_eq!(metrics.sum("m", &[]), Some(7.5));
        assert_eq!(metrics.sum("m", &[("route", "a")]), Some(3.5));
        assert_eq!(metrics.sum("m", &[("route", "b,}\"\n\\")]), Some(4.0));
        assert_eq!(metrics.sum("plain", &[]), Some(7.0));
        assert_eq!(metrics.sum("up", &[]), Some(f64::INFINITY));
        assert_eq!(metrics.sum("m", &[("route", "c")]), None);
        assert!(metrics.count("none", &[]).abs() < f64::EPSILON);
        assert_eq!(metrics.whole("m", &[("route", "b,}\"\n\\")]), Some(4));
        assert_eq!(metrics.whole("none", &[]), None);
    }

    #[test]
    fn a_line_that_is_no_sample_is_named() {
        assert_eq!(Metrics::parse("m{a=\"b} 1").unwrap_err(), "m{a=\"b} 1");
        assert_eq!(Metrics::parse("m one").unwrap_err(), "m one");
    }
}
