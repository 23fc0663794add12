//! Prints the figures as a table or as JSON.

pub struct Report {
    json: bool,
    lines: Vec<String>,
}

pub fn median(figures: &[f64]) -> f64 {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

impl Report {
    pub fn new(json: bool) -> Self {
        if !json {
            println!("{:<64} {:>9} {:>9} {:>8} {:>6}", "figure", "ours, ns", "peer, ns", "ratio", "goal");
        }
        Report { json, lines: Vec::new() }
    }

    /// Ours beside a peer; the ratio is the median of the ratios of the rounds.
    pub fn line(&mut self, figure: &str, ours: &[f64], peer: &[f64], goal: Option<f64>) {
        let ratios: Vec<f64> = ours.iter().zip(peer).map(|(ours, peer)| ours / peer).collect();
        let (ours, peer, ratio) = (median(ours), median(peer), median(&ratios));
        let met = goal.is_none_or(|goal| ratio <= goal);
        if !self.json {
            let goal = goal.map_or(String::from("-"), |goal| format!("{goal:.1}x"));
            let missed = if met { "" } else { "  MISSED" };
            println!("{figure:<64} {ours:>9.1} {peer:>9.1} {ratio:>7.2}x {goal:>6}{missed}");
        }
        let goal = goal.map_or(String::from("null"), |goal| goal.to_string());
        self.lines.push(format!(
            r#"{{"figure":"{figure}","ours_ns":{ours:.1},"peer_ns":{peer:.1},"ratio":{ratio:.3},"goal":{goal},"met":{met}}}"#
        ));
    }

    /// A figure without a peer: at least `goal`, or at most `-goal` if that is negative.
    pub fn rate(&mut self, figure: &str, ours: f64, goal: f64) {
        let met = if goal < 0.0 { ours <= -goal } else { ours >= goal };
        let bound = if goal < 0.0 { "at most" } else { "at least" };
        let goal = goal.abs();
        if !self.json {
            let missed = if met { "" } else { "  MISSED" };
            println!("{figure:<64} {ours:>9.0}   {bound} {goal}{missed}");
        }
        self.lines
            .push(format!(r#"{{"figure":"{figure}","ours":{ours:.1},"goal":"{bound} {goal}","met":{met}}}"#));
    }

    pub fn end(&self) {
        if self.json {
            println!("[\n  {}\n]", self.lines.join(",\n  "));
        }
    }
}
