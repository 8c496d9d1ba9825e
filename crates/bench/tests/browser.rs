//! The report in a headless browser, at the width of a phone and of a desk, light and dark: that nothing is off the screen, that the verdict is above the
//! fold, that ours and peers are seen in colours of their own, and that the browser has nothing to complain about.
//!
//! The width is the page's, set by the DevTools protocol: the window of a full browser keeps 500 pixels at least.
//!
//! Without a browser the tests are ignored, and their names say so. CI installs one. `cargo xtask test` says by `PASSMUSTER_BROWSER` which one it is.

use std::{
    collections::{BTreeMap, BTreeSet},
    env, fs,
    io::{self, BufRead, BufReader, Cursor, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc::{Receiver, channel},
    thread,
    time::{Duration, Instant},
};

use base64::{Engine, engine::general_purpose::STANDARD};

use libtest_mimic::{Arguments, Failed, Trial};
use passmuster_bench::{Contents, DARK, INKS, Judged, Timing, page};
use passmuster_harness::conformance::report::{Record, packed};
use serde_json::{Value, json};

/// Names under which a headless Chromium is installed.
const BROWSERS: [&str; 4] = ["chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"];

/// The browser to use, by its path; empty if none is to be used. Unset, it is looked for.
const BROWSER: &str = "PASSMUSTER_BROWSER";

/// How long a browser may take for one answer, on a machine with other things to do.
const PATIENCE: Duration = Duration::from_secs(120);

/// Where the first screen ends, in pixels.
const FOLD: u32 = 900;

/// How much is looked at of what is unfolded: on a phone, plots of the first section, of three world sizes, come after this many pixels at most.
const UNFOLDED: u32 = 5600;

/// What is measured within the page: an expression for JSON.
const MEASURE: &str = r#"(() => {
    const unfold = UNFOLD;
    if (unfold) document.querySelectorAll('details').forEach(fold => fold.open = true);
    const all = selector => [...document.querySelectorAll(selector)];
    const rect = selector => document.querySelector(selector)?.getBoundingClientRect() ?? null;
    const colours = selector => [...new Set(all(selector).map(line => getComputedStyle(line).stroke))];
    const within = (element, selector) => element.closest(selector) !== null;
    const texts = all('svg.plot').filter(plot => plot.checkVisibility()).map(plot => 11.5 * plot.getBoundingClientRect().width / plot.viewBox.baseVal.width);
    const cut = all('h1, h2, h3, p, li, summary, .verdict td, .verdict th, .scores td, .scores th, figure svg').filter(
        element => element.checkVisibility() && (element.getBoundingClientRect().right > innerWidth + 0.5 || element.scrollWidth > element.clientWidth + 1 && getComputedStyle(element).display != 'inline'));
    // As text: rectangles are not passed as values.
    return JSON.stringify({
        width: innerWidth,
        scroll: document.documentElement.scrollWidth,
        scores: rect('.scores'),
        cut: cut.map(element => element.tagName + ' ' + element.textContent.slice(0, 60)),
        ids: all('[id]').map(element => element.id),
        headings: all('h1, h2, h3, h4').map(heading => [heading.tagName, heading.textContent]),
        ours: colours('.plot .o .l'),
        peers: colours('.plot .p .l'),
        dashed: all('.plot .p .l').every(line => getComputedStyle(line).strokeDasharray != 'none') && all('.plot .o .l').every(line => getComputedStyle(line).strokeDasharray == 'none'),
        plots: all('svg.plot').length,
        unnamed: all('svg.plot').filter(plot => plot.getAttribute('role') != 'img' || !plot.querySelector('title')?.textContent).length,
        smallest: Math.min(...texts),
        ground: getComputedStyle(document.body).backgroundColor,
        ink: getComputedStyle(document.body).color,
        plotted: getComputedStyle(document.querySelector('svg.plot')).color,
        bold: all('.verdict td strong').length,
    });
})()"#;

fn main() {
    let browser = browser();
    let missing = browser.is_none();
    let trial = |name: &str, test: fn(&Path) -> Result<(), Failed>| {
        let name = format!("{name}{}", if missing { " (needs a headless browser, found none)" } else { "" });
        let browser = browser.clone();
        let test = Trial::test(name, move || match browser {
            Some(browser) => test(&browser),
            None => Err(Failed::from(format!("none of {} is on the path", BROWSERS.join(", ")))),
        });
        test.with_ignored_flag(missing)
    };
    let trials = vec![
        trial("the_report_is_read_on_a_phone_and_at_a_desk", the_report_is_read),
        trial("the_committed_report_is_read_on_a_phone_and_at_a_desk", the_committed_report_is_read),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

fn browser() -> Option<PathBuf> {
    if let Some(path) = env::var_os(BROWSER) {
        return (!path.is_empty()).then(|| path.into());
    }
    let path = env::var_os("PATH")?;
    let places = || env::split_paths(&path);
    BROWSERS.iter().find_map(|name| places().map(|place| place.join(name)).find(|file| file.is_file()))
}

/// All kinds of workloads, two machines, records of other commands with a finding.
fn the_report_is_read(browser: &Path) -> Result<(), Failed> {
    let timed = ["h100x4-bench-all_reduce", "h100x4-bench-all_gather_matmul", "h200x2-bench-overlap", "h200x2-bench-fsdp"];
    let timed: Vec<Record<Timing>> = timed.iter().map(|name| recorded(name)).collect::<Result<_, _>>()?;
    let read = |name: &str| Ok::<_, Failed>(Judged::read(&fixture(name)?)?);
    let judged = [read("h200x2-merge")?, read("h200x2-mutants-value")?];
    is_read(browser, "report", &page(&Contents { timed: &timed, judged: &judged, ..Contents::default() }))
}

fn the_committed_report_is_read(browser: &Path) -> Result<(), Failed> {
    is_read(browser, "committed", &fs::read_to_string(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join("docs/report.html"))?)
}

fn is_read(browser: &Path, name: &str, page: &str) -> Result<(), Failed> {
    for (width, dark, unfold) in [(1280, false, false), (400, true, false), (1280, true, true), (400, false, true)] {
        let sight = Sight { width, height: if unfold { UNFOLDED } else { FOLD }, dark, unfold };
        let (facts, pixels) = sight.of(browser, name, page)?;
        fits(&facts, &sight)
            .and_then(|()| is_coloured(&facts, &pixels, &sight))
            .map_err(|error| Failed::from(format!("{sight:?}: {error}")))?;
    }
    Ok(())
}

/// Whether all of it is on the screen, and the verdict above the fold.
fn fits(facts: &Value, sight: &Sight) -> Result<(), String> {
    let number = |value: &Value| value.as_f64().unwrap_or(f64::NAN);
    let names =
        |value: &Value| value.as_array().into_iter().flatten().filter_map(|name| Some(name.as_str()?.to_owned())).collect::<Vec<_>>();
    ensure(number(&facts["width"]) == f64::from(sight.width), || format!("the window is {} wide", facts["width"]))?;
    ensure(number(&facts["scroll"]) <= f64::from(sight.width), || format!("the page is {} wide: it scrolls sideways", facts["scroll"]))?;
    ensure(names(&facts["cut"]).is_empty(), || format!("wider than the screen or than their place: {:?}", facts["cut"]))?;
    // At a desk all scores, on a phone as many lines as there is room for.
    let scores = &facts["scores"];
    let above = if sight.width > 1000 { &scores["bottom"] } else { &scores["top"] };
    ensure(number(above) < f64::from(FOLD) * if sight.width > 1000 { 1.0 } else { 0.5 }, || {
        format!("the verdict is below the fold: {scores}")
    })?;
    ensure(number(&facts["bold"]) > 5.0, || format!("{} winners in bold", facts["bold"]))?;
    let ids = names(&facts["ids"]);
    ensure(ids.iter().collect::<BTreeSet<_>>().len() == ids.len(), || format!("ids are not unique: {ids:?}"))?;
    let headings: Vec<(u8, &str)> = facts["headings"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|heading| Some((heading[0].as_str()?.as_bytes()[1] - b'0', heading[1].as_str()?)))
        .collect();
    ensure(headings.iter().map(|(_, text)| text).collect::<BTreeSet<_>>().len() == headings.len(), || {
        format!("headings are not unique: {headings:?}")
    })?;
    let skips = headings.windows(2).find(|pair| pair[1].0 > pair[0].0 + 1);
    ensure(headings.first().is_some_and(|(level, _)| *level == 1) && skips.is_none(), || {
        format!("levels of headings are skipped: {skips:?}")
    })?;
    ensure(number(&facts["plots"]) >= 8.0 && facts["unnamed"] == 0, || {
        format!("{} plots, {} without a name", facts["plots"], facts["unnamed"])
    })?;
    ensure(number(&facts["smallest"]) >= 8.5, || format!("text of plots is {} pixels", facts["smallest"]))
}

/// Whether ours and peers are in the colours of their families, which are seen.
fn is_coloured(facts: &Value, pixels: &[[u8; 3]], sight: &Sight) -> Result<(), String> {
    let family = |at: usize| {
        let colours = if sight.dark { INKS[at].dark } else { INKS[at].light };
        colours.iter().map(|colour| css(colour)).collect::<BTreeSet<_>>()
    };
    let of = |side: &str| {
        facts[side].as_array().into_iter().flatten().filter_map(|colour| Some(colour.as_str()?.to_owned())).collect::<BTreeSet<_>>()
    };
    for (side, at) in [("ours", 0), ("peers", 1)] {
        ensure(of(side).len() > 2 && of(side).is_subset(&family(at)), || format!("{side} are {:?}", facts[side]))?;
    }
    ensure(facts["dashed"] == true, || "ours are not solid, or peers not dashed".into())?;
    let ground = if sight.dark { DARK } else { "#ffffff" };
    ensure(facts["ground"] == css(ground), || format!("the ground is {}", facts["ground"]))?;
    ensure(facts["ink"] == facts["plotted"] && facts["ink"] != facts["ground"], || format!("plots are written in {}", facts["plotted"]))?;
    let mut seen: BTreeMap<&[u8], usize> = BTreeMap::new();
    pixels.chunk_by(|a, b| a == b).for_each(|run| *seen.entry(&run[0][..]).or_default() += run.len());
    let count = |colour: &str| seen.get(&rgb(colour)[..]).copied().unwrap_or_default();
    let share = count(ground) as f64 / pixels.len() as f64;
    ensure(share > 0.3, || format!("{share:.2} of the picture is ground"))?;
    if sight.unfold {
        for (at, ink) in INKS[..2].iter().enumerate() {
            let seen: usize = if sight.dark { ink.dark } else { ink.light }.iter().map(|colour| count(colour)).sum();
            ensure(seen > 500, || format!("{seen} pixels of lines of family {at}"))?;
        }
    }
    Ok(())
}

fn ensure(holds: bool, otherwise: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(otherwise()) }
}

fn rgb(colour: &str) -> [u8; 3] {
    [1, 3, 5].map(|at| u8::from_str_radix(&colour[at..at + 2], 16).unwrap_or_default())
}

/// As browsers say it.
fn css(colour: &str) -> String {
    let [r, g, b] = rgb(colour);
    format!("rgb({r}, {g}, {b})")
}

/// How a page is looked at.
#[derive(Debug)]
struct Sight {
    width: u32,
    height: u32,
    dark: bool,
    /// With all that is folded opened.
    unfold: bool,
}

impl Sight {
    /// Has a page opened. Returns what was measured, and the picture's pixels.
    fn of(&self, browser: &Path, name: &str, page: &str) -> Result<(Value, Vec<[u8; 3]>), Failed> {
        let folder = env::temp_dir().join(format!("passmuster-browser-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder)?;
        let file = folder.join("report.html");
        fs::write(&file, page)?;
        let seen = Session::open(browser, &folder).and_then(|mut session| session.look(self, &file));
        fs::remove_dir_all(&folder)?;
        let (facts, picture) = seen?;
        Ok((facts, pixels(&picture)?))
    }
}

/// A browser that is spoken to by the DevTools protocol: JSON between zero bytes, to its descriptor 3 and from its descriptor 4.
struct Session {
    process: Child,
    to: ChildStdin,
    from: Receiver<Value>,
    /// The page's session, once there is a page.
    page: Option<String>,
    last: u64,
    /// What the browser had to say that nobody asked for.
    events: Vec<Value>,
}

impl Session {
    fn open(browser: &Path, folder: &Path) -> Result<Session, String> {
        let mut process = Command::new("sh")
            // Pipes are made for stdin and stdout alone: the shell moves them.
            .args(["-c", r#"exec "$0" "$@" 3<&0 4>&1 </dev/null >/dev/null"#])
            .arg(browser)
            .args(["--headless", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--no-first-run"])
            .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
            .arg(format!("--user-data-dir={}", folder.display()))
            .env("HOME", folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| format!("{}: {error}", browser.display()))?;
        let (to, answers) = (process.stdin.take().expect("it is piped"), process.stdout.take().expect("it is piped"));
        let (send, from) = channel();
        thread::spawn(move || {
            for message in BufReader::new(answers).split(0).map_while(Result::ok) {
                let Ok(message) = serde_json::from_slice(&message) else { return };
                if send.send(message).is_err() {
                    return;
                }
            }
        });
        let mut session = Session { process, to, from, page: None, last: 0, events: Vec::new() };
        let target = session.ask("Target.createTarget", json!({ "url": "about:blank" }))?["targetId"].take();
        let attached = session.ask("Target.attachToTarget", json!({ "targetId": target, "flatten": true }))?;
        session.page = attached["sessionId"].as_str().map(str::to_owned);
        Ok(session)
    }

    /// Opens a page at a width and in colours. Returns what was measured, and a picture.
    fn look(&mut self, sight: &Sight, file: &Path) -> Result<(Value, Vec<u8>), String> {
        let Sight { width, height, dark, unfold } = sight;
        let (scheme, unfold) = (if *dark { "dark" } else { "light" }, if *unfold { "true" } else { "false" });
        for domain in ["Page.enable", "Runtime.enable", "Log.enable"] {
            self.ask(domain, json!({}))?;
        }
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        self.ask("Emulation.setDeviceMetricsOverride", size)?;
        self.ask("Emulation.setEmulatedMedia", json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] }))?;
        self.ask("Emulation.setScrollbarsHidden", json!({ "hidden": true }))?;
        let opened = self.ask("Page.navigate", json!({ "url": format!("file://{}", file.display()) }))?;
        if let Some(error) = opened["errorText"].as_str() {
            return Err(format!("{}: {error}", file.display()));
        }
        let is_loaded = |message: &Value| message["method"] == "Page.loadEventFired";
        if !self.events.iter().any(is_loaded) {
            self.until(is_loaded, "the page's end")?;
        }
        let expression = MEASURE.replace("UNFOLD", unfold);
        let measured = self.ask("Runtime.evaluate", json!({ "expression": expression, "returnByValue": true }))?;
        let picture = self.ask("Page.captureScreenshot", json!({ "format": "png" }))?;
        let complaints = ["Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded"];
        if let Some(complaint) = self.events.iter().find(|event| complaints.iter().any(|method| event["method"] == *method)) {
            return Err(format!("the browser complains: {complaint}"));
        }
        let facts = measured["result"]["value"].as_str().and_then(|text| serde_json::from_str(text).ok());
        let facts = facts.ok_or_else(|| format!("nothing was measured: {measured}"))?;
        let picture = STANDARD.decode(picture["data"].as_str().unwrap_or_default()).map_err(|error| format!("no picture: {error}"))?;
        Ok((facts, picture))
    }

    /// What a method returns.
    fn ask(&mut self, method: &str, parameters: Value) -> Result<Value, String> {
        self.last += 1;
        let id = self.last;
        let mut message = json!({ "id": id, "method": method, "params": parameters });
        if let Some(page) = &self.page {
            message["sessionId"] = page.as_str().into();
        }
        let sent = self.to.write_all(format!("{message}\0").as_bytes()).and_then(|()| self.to.flush());
        sent.map_err(|error| format!("{method}: the browser has ended: {error}"))?;
        let mut answer = self.until(|message| message["id"] == id, method)?;
        match answer.get("error") {
            Some(error) => Err(format!("{method}: {error}")),
            None => Ok(answer["result"].take()),
        }
    }

    /// Waits for a message; the events before it are kept.
    fn until(&mut self, is_wanted: impl Fn(&Value) -> bool, what: &str) -> Result<Value, String> {
        let start = Instant::now();
        loop {
            let left = PATIENCE.saturating_sub(start.elapsed());
            let message = self.from.recv_timeout(left).map_err(|error| format!("{what} does not come from the browser: {error}"))?;
            if is_wanted(&message) {
                return Ok(message);
            }
            self.events.push(message);
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // Asked, it ends its own processes, too. One that does not answer is killed.
        self.page = None;
        let asked = self.ask("Browser.close", json!({}));
        if asked.is_err() {
            let _ = self.process.kill();
        }
        let _ = self.process.wait();
    }
}

fn fixture(name: &str) -> io::Result<String> {
    packed::committed(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/records")), name)
}

fn recorded(name: &str) -> Result<Record<Timing>, Failed> {
    Ok(serde_json::from_str(&fixture(name)?)?)
}

/// The pixels of a PNG file.
fn pixels(picture: &[u8]) -> Result<Vec<[u8; 3]>, Box<dyn std::error::Error>> {
    let mut reader = png::Decoder::new(Cursor::new(picture)).read_info()?;
    let mut bytes = vec![0; reader.output_buffer_size().ok_or("a picture of no size")?];
    let info = reader.next_frame(&mut bytes)?;
    bytes.truncate(info.buffer_size());
    let length = match info.color_type {
        png::ColorType::Rgba => 4,
        png::ColorType::Rgb => 3,
        other => return Err(format!("pixels are {other:?}").into()),
    };
    Ok(bytes.chunks(length).map(|pixel| [pixel[0], pixel[1], pixel[2]]).collect())
}
