//! `--profile`: where the server's time goes, by `perf`, as a flame graph for each case.
//!
//! One more round of each case runs while perf samples the stacks of our server; that round isn't counted. The graph is
//! an SVG of its own beside the report, and the functions that cost most by themselves are listed in the report.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use crate::report::escape;

/// Samples a second and thread: a prime, so that nothing periodic is in step with it.
const FREQUENCY: &str = "499";
/// How stacks are found: unwinding by tables, as the binary has no frame pointers; so many bytes of a stack are kept.
const STACKS: &str = "dwarf,16384";
/// How many of the most expensive functions a profile names.
const NAMED: usize = 12;
/// What is drawn at least, in parts of the whole.
const DRAWN: f64 = 0.002;

/// What one case cost.
#[derive(Clone, Debug)]
pub(crate) struct Profile {
    pub(crate) benchmark: &'static str,
    pub(crate) case: String,
    /// Where the flame graph is.
    pub(crate) file: PathBuf,
    /// Functions by the share of samples in which they themselves ran.
    pub(crate) most: Vec<(String, f64)>,
}

/// perf while it samples.
pub(crate) struct Recording {
    child: Child,
    data: PathBuf,
}

impl Recording {
    /// Begins to sample a process.
    pub(crate) fn start(process: u32, out: &Path) -> Result<Self, String> {
        let data = out.join("perf.data");
        let child = Command::new("perf")
            .args(["record", "--quiet", "-F", FREQUENCY, "--call-graph", STACKS, "-p", &process.to_string(), "-o"])
            .arg(&data)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| format!("--profile needs perf: {error}"))?;
        Ok(Recording { child, data })
    }

    /// Ends sampling and writes the flame graph.
    pub(crate) fn finish(mut self, benchmark: &'static str, case: &str, out: &Path) -> Result<Profile, String> {
        // perf writes its file when it is interrupted.
        let _ = Command::new("kill").arg("-INT").arg(self.child.id().to_string()).status();
        self.child.wait().map_err(|error| format!("perf: {error}"))?;
        let script = Command::new("perf")
            .args(["script", "--no-inline", "-F", "comm,ip,sym", "-i"])
            .arg(&self.data)
            .stderr(Stdio::null())
            .output()
            .map_err(|error| format!("perf script: {error}"))?;
        let _ = fs::remove_file(&self.data);
        let stacks = fold(&String::from_utf8_lossy(&script.stdout));
        if stacks.is_empty() {
            return Err("perf found no samples: may this user profile? (kernel.perf_event_paranoid)".to_owned());
        }
        let name: String =
            case.chars().map(|letter| if letter.is_alphanumeric() { letter } else { '-' }).collect::<String>();
        let file = out.join(format!("{benchmark}-{name}.svg"));
        fs::write(&file, draw(&stacks, &format!("{benchmark} {case}")))
            .map_err(|error| format!("cannot write {}: {error}", file.display()))?;
        Ok(Profile { benchmark, case: case.to_owned(), file, most: most(&stacks) })
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Stacks from the outermost function in, with how often each was seen.
type Stacks = BTreeMap<Vec<String>, u64>;

/// Reads what `perf script` prints: a line with the thread, then a line for each frame from the innermost out, then an
/// empty one.
fn fold(script: &str) -> Stacks {
    let mut stacks = Stacks::new();
    for sample in script.split("\n\n") {
        let frames = sample.lines().filter(|line| line.starts_with(char::is_whitespace));
        let mut stack: Vec<String> =
            frames.filter_map(|line| line.trim().split_once(' ')).map(|(_, symbol)| short(symbol.trim())).collect();
        if stack.is_empty() {
            continue;
        }
        stack.reverse();
        *stacks.entry(stack).or_default() += 1;
    }
    stacks
}

/// A symbol without its hash.
fn short(symbol: &str) -> String {
    let hash = |tail: &str| tail.len() == 16 && tail.bytes().all(|byte| byte.is_ascii_hexdigit());
    match symbol.rsplit_once("::h") {
        Some((name, tail)) if hash(tail) => name.to_owned(),
        _ => symbol.to_owned(),
    }
}

/// The functions that ran most often themselves.
fn most(stacks: &Stacks) -> Vec<(String, f64)> {
    let all = stacks.values().sum::<u64>() as f64;
    let mut own: BTreeMap<&str, u64> = BTreeMap::new();
    for (stack, count) in stacks {
        *own.entry(stack.last().map_or("", String::as_str)).or_default() += count;
    }
    let mut own: Vec<(String, f64)> =
        own.into_iter().map(|(name, count)| (name.to_owned(), count as f64 / all)).collect();
    own.sort_by(|one, other| other.1.total_cmp(&one.1));
    own.truncate(NAMED);
    own
}

/// A function in the graph, with those it called.
#[derive(Default)]
struct Frame<'a> {
    count: u64,
    called: BTreeMap<&'a str, Frame<'a>>,
}

impl Frame<'_> {
    fn depth(&self, least: u64) -> usize {
        let called = self.called.values().filter(|frame| frame.count >= least);
        called.map(|frame| 1 + frame.depth(least)).max().unwrap_or(0)
    }
}

/// The graph: the outermost functions at the bottom, each as wide as its share.
fn draw(stacks: &Stacks, title: &str) -> String {
    let mut root = Frame::default();
    for (stack, count) in stacks {
        root.count += count;
        let mut frame = &mut root;
        for name in stack {
            frame = frame.called.entry(name).or_default();
            frame.count += count;
        }
    }
    let least = ((root.count as f64 * DRAWN) as u64).max(1);
    let height = (root.depth(least) + 2) as f64 * ROW;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"monospace\" \
         font-size=\"11\"><rect width=\"100%\" height=\"100%\" fill=\"#fff\"/><text x=\"4\" y=\"13\">{}, {} \
         samples</text>\n",
        escape(title),
        root.count,
    );
    let whole = root.count;
    children(&mut out, &root, 0.0, height - ROW, whole, least);
    out + "</svg>\n"
}

const WIDTH: f64 = 1400.0;
const ROW: f64 = 16.0;
/// How wide a letter is, about.
const LETTER: f64 = 6.7;

fn children(out: &mut String, frame: &Frame<'_>, mut x: f64, y: f64, whole: u64, least: u64) {
    for (name, called) in &frame.called {
        let width = WIDTH * called.count as f64 / whole as f64;
        if called.count >= least {
            let fit = (width / LETTER) as usize;
            let text: String = if fit < 4 { String::new() } else { name.chars().take(fit).collect() };
            // The colour tells functions apart; it comes from the name so that it is the same in every graph.
            let hue = name.bytes().fold(7_u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(u32::from(byte))) % 50;
            let _ = writeln!(
                out,
                "<g><title>{0}: {1:.1} %</title><rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{2:.1}\" height=\"15\" \
                 fill=\"hsl({hue},80%,70%)\"/><text x=\"{3:.1}\" y=\"{4:.1}\">{5}</text></g>",
                escape(name),
                100.0 * called.count as f64 / whole as f64,
                (width - 0.5).max(0.3),
                x + 2.0,
                y + 11.5,
                escape(&text),
            );
            children(out, called, x, y - ROW, whole, least);
        }
        x += width;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCRIPT: &str = "capstan \n\t  55d0 serde::parse::h0123456789abcdef\n\t  55aa main\n\n\
                          capstan \n\t  55d1 serde::parse::h0123456789abcdef\n\t  55aa main\n\n\
                          capstan \n\t  55d1 a<b>::write\n\t  55aa main\n\n";

    #[test]
    fn samples_are_folded_into_stacks() {
        let stacks = fold(SCRIPT);
        let stack = |inner: &str| vec!["main".to_owned(), inner.to_owned()];
        assert_eq!(stacks, Stacks::from([(stack("serde::parse"), 2), (stack("a<b>::write"), 1)]));
        assert_eq!(most(&stacks)[0], ("serde::parse".to_owned(), 2.0 / 3.0));
    }

    #[test]
    fn the_graph_shows_each_function_with_its_share() {
        let graph = draw(&fold(SCRIPT), "B3 create");
        assert!(graph.contains("<title>main: 100.0 %</title>"), "{graph}");
        assert!(graph.contains("<title>serde::parse: 66.7 %</title>"), "{graph}");
        assert!(graph.contains("<title>a&lt;b&gt;::write: 33.3 %</title>"), "{graph}");
    }
}
