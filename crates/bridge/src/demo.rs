//! `bridge demo`: the bridge at work, with nothing to install and nothing to set up.
//!
//! Two brokers run inside this process, and between them the same bridge that `bridge run` runs,
//! configured by the same YAML. The destination is taken away and given back, and refuses a
//! topic; in the end every message must be accounted for, by the bridge and by an observer that
//! does not ask it.
//!
//! ```text
//!  sensors ──► plant broker ──► bridge ──► cable ──► cloud broker ──► observer
//!   traffic      broker        service     cable       broker         arrivals
//!                                 │                                       │
//!                                 └─► ledger ───► reckoning ◄─────────────┘
//! ```

mod arrivals;
mod broker;
mod cable;
mod ledger;
mod reckoning;
mod screen;
mod stage;
mod story;
mod text;
mod traffic;
mod trend;
mod view;

use std::fs::File;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use tempfile::TempDir;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::MissedTickBehavior;
use tracing_subscriber::EnvFilter;

use self::screen::{Screen, Surroundings};
use self::stage::{Props, Stage};
use self::story::{Cue, Pace, Story};
use self::text::{Line, Style};
use self::trend::Trend;
use crate::config::{Config, Machine};

/// Ends within a minute, whatever happens.
const AT_MOST: Duration = Duration::from_secs(58);
/// How often things are looked at, and the panel is drawn.
const FRAME: Duration = Duration::from_millis(100);
/// How often a line is written where there is no panel, in frames.
const FRAMES_PER_LINE: u32 = 10;
/// What the log of a demo holds: what a service would log. The embedded brokers are not ours.
const LOG: &str = "info,mqtt5=off,mqtt5_protocol=off";
/// The exit status after SIGINT and after SIGTERM: 128 + the signal, as shells have it.
const INTERRUPTED: u8 = 130;
const TERMINATED: u8 = 143;

/// How to run the demo.
#[derive(Debug, Clone, Copy, Default, clap::Args)]
pub(crate) struct DemoArgs {
    /// Keep the demo's folder, with configuration, log and journal, to look around in.
    #[arg(long)]
    keep: bool,
    /// Shorter chapters.
    #[arg(long, hide = true)]
    fast: bool,
}

/// Runs the demo; the exit status says whether every message was accounted for.
pub(crate) fn run(args: DemoArgs) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the asynchronous runtime")?;
    let mut folder = tempfile::Builder::new()
        .prefix("bridge-demo-")
        .tempdir()
        .context("cannot create a temporary folder")?;
    folder.disable_cleanup(args.keep);
    let outcome = runtime.block_on(async {
        let limited = tokio::time::timeout(AT_MOST, perform(args, &mut folder));
        limited
            .await
            .unwrap_or_else(|_| Err(anyhow!("the demo did not come to its end within a minute")))
    });
    if outcome.is_err() {
        folder.disable_cleanup(true);
    }
    outcome.with_context(|| format!("the demo failed; its folder is {}", folder.path().display()))
}

async fn perform(args: DemoArgs, folder: &mut TempDir) -> anyhow::Result<ExitCode> {
    // Heard from the beginning, so that an early one is not lost.
    let mut signals = Signals::hear()?;
    log_to(&folder.path().join("bridge.log"))?;
    let pace = if args.fast { Pace::FAST } else { Pace::CALM };
    let mut screen = Screen::open(Surroundings::look());

    let props = Props::fetch().await?;
    let text = props.config(&folder.path().join("data"))?;
    screen.say(&view::opening(pace.total(), &text))?;
    let file = folder.path().join("bridge.yaml");
    std::fs::write(&file, &text).context("cannot write the configuration")?;
    let (config, _) = Config::load(&file, &Machine)?;
    let mut stage = props.start(config).await?;

    let story = match tell(Story::new(pace), &mut stage, &mut screen, &mut signals).await? {
        Ok(story) => story,
        Err(status) => {
            screen.say(&[Line::new(), Line::new().with(Style::Plain, "  interrupted")])?;
            stage.clear(0).await?;
            return Ok(ExitCode::from(status));
        }
    };

    let sums = stage.clear(story.waited).await?;
    let good = sums.findings().is_empty();
    if !good {
        folder.disable_cleanup(true);
    }
    let kept = (args.keep || !good).then(|| folder.path().display().to_string());
    screen.say(&view::summary(&sums, kept.as_deref()))?;
    if good {
        screen.say(&view::next_steps())?;
    }
    Ok(if good {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Tells the story to its end, or to the signal that ends it: the exit status for that. What has
/// begun on the stage is brought to its end first.
async fn tell(
    mut story: Story,
    stage: &mut Stage,
    screen: &mut Screen,
    signals: &mut Signals,
) -> anyhow::Result<Result<Story, u8>> {
    let mut trend = Trend::default();
    let mut frames = tokio::time::interval(FRAME);
    frames.set_missed_tick_behavior(MissedTickBehavior::Delay);
    if !screen.has_panel() {
        screen.say(&view::plain_chapter(&story))?;
    }
    for frame in 0_u32.. {
        tokio::select! {
            _ = frames.tick() => {}
            status = signals.next() => return Ok(Err(status)),
        }
        let now = stage.snapshot().await?;
        let cue = story.on_snapshot(&now);
        trend.note(&now);
        if screen.has_panel() {
            screen.draw(&view::panel(&now, &story, &trend, screen::width()))?;
        } else {
            if frame > 0 && frame.is_multiple_of(FRAMES_PER_LINE) {
                screen.say(&[view::plain(&now)])?;
            }
            if cue.is_some() {
                screen.say(&view::plain_chapter(&story))?;
            }
        }
        match cue {
            Some(Cue::End) => return Ok(Ok(story)),
            Some(cue) => stage.on_cue(cue).await?,
            None => (),
        }
    }
    bail!("the demo has no end")
}

/// The signals that end a demo before its end.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    fn hear() -> anyhow::Result<Self> {
        let hear = |kind| signal(kind).context("cannot listen for signals");
        Ok(Self {
            interrupt: hear(SignalKind::interrupt())?,
            terminate: hear(SignalKind::terminate())?,
        })
    }

    /// The exit status that the next one asks for.
    async fn next(&mut self) -> u8 {
        tokio::select! {
            _ = self.interrupt.recv() => INTERRUPTED,
            _ = self.terminate.recv() => TERMINATED,
        }
    }
}

/// Sends what the bridge logs to a file: the screen is for the demo.
fn log_to(file: &Path) -> anyhow::Result<()> {
    let file = File::create(file).context("cannot create the log file")?;
    tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::new(LOG))
        .with_ansi(false)
        .with_writer(Mutex::new(file))
        .try_init()
        .map_err(|error| anyhow!("cannot write the log to a file: {error}"))
}
