//! The report in a headless browser: that it renders, that its plots are seen, and that the browser has nothing to complain about.
//!
//! Without a browser the test is ignored, and its name says so. CI installs one.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use libtest_mimic::{Arguments, Failed, Trial};
use passmuster::conformance::report::Record;
use passmuster_bench::{Timing, page, plots, sections};

/// Names under which a headless Chromium is installed.
const BROWSERS: [&str; 3] = ["chromium-headless-shell", "chromium", "google-chrome"];

/// Width and height of the window in pixels.
const WINDOW: (u32, u32) = (1400, 6000);

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
        trial("the_report_opens_in_a_browser", the_report_opens),
        trial("the_committed_report_opens_in_a_browser", the_committed_report_opens),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

fn browser() -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    let places = || env::split_paths(&path);
    BROWSERS.iter().find_map(|name| places().map(|place| place.join(name)).find(|file| file.is_file()))
}

fn the_report_opens(browser: &Path) -> Result<(), Failed> {
    let mut record = recorded("h200x4-bench.json")?;
    record.cases.extend(recorded("h200x4-bench-all_gather_matmul.json")?.cases);
    record.cases.extend(recorded("h200x2-bench-overlap.json")?.cases);
    let plots: usize = sections(&record.cases).iter().map(|section| plots(section, &record.machine).len()).sum();
    opens(browser, "report", &page(&record, None, &[]), plots)
}

/// The plots of its first three records are within the window.
fn the_committed_report_opens(browser: &Path) -> Result<(), Failed> {
    let page = fs::read_to_string(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join("docs/report-h200.html"))?;
    opens(browser, "committed", &page, 6)
}

/// Has a page opened of which so many plots are within the window.
fn opens(browser: &Path, name: &str, page: &str, plots: usize) -> Result<(), Failed> {
    let folder = env::temp_dir().join(format!("passmuster-browser-{name}-{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    let (file, picture) = (folder.join("report.html"), folder.join("report.png"));
    fs::write(&file, page)?;
    let (width, height) = WINDOW;
    let output = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--enable-logging=stderr"])
        .args(["--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"])
        .arg(format!("--window-size={width},{height}"))
        .arg(format!("--screenshot={}", picture.display()))
        .arg(format!("--user-data-dir={}", folder.display()))
        .arg(format!("file://{}", file.display()))
        .output()?;
    let log = String::from_utf8_lossy(&output.stderr).into_owned();
    let pixels = pixels(&picture).map_err(|error| Failed::from(format!("no screenshot: {error}; {}\n{log}", output.status)))?;
    fs::remove_dir_all(&folder)?;
    if let Some(complaint) = log.lines().find(|line| line.contains("CONSOLE")) {
        return Err(format!("the browser complains: {complaint}").into());
    }
    // The colour of the first contender's line, which nothing else on the page has. Each plot has a stretch of lines with it.
    let rows: Vec<bool> = pixels.chunks((3 * width) as usize).map(|row| row.chunks(3).any(|pixel| pixel == [0, 114, 178])).collect();
    let seen = rows.iter().filter(|row| **row).count();
    if seen < 100 * plots / 2 {
        return Err(format!("{plots} plots, and a contender's line is seen on {seen} lines of the picture only").into());
    }
    Ok(())
}

fn recorded(name: &str) -> Result<Record<Timing>, Failed> {
    let text = fs::read_to_string(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join("fixtures/records").join(name))?;
    Ok(serde_json::from_str(&text)?)
}

/// The picture's pixels, three bytes each.
fn pixels(path: &Path) -> Result<Vec<u8>, Box<dyn std::error::Error>> {
    let mut reader = png::Decoder::new(fs::File::open(path)?).read_info()?;
    let mut bytes = vec![0; reader.output_buffer_size()];
    let info = reader.next_frame(&mut bytes)?;
    bytes.truncate(info.buffer_size());
    Ok(match info.color_type {
        png::ColorType::Rgba => bytes.chunks(4).flat_map(|pixel| [pixel[0], pixel[1], pixel[2]]).collect(),
        png::ColorType::Rgb => bytes,
        other => return Err(format!("pixels are {other:?}").into()),
    })
}
