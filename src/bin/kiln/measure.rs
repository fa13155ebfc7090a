//! Trials of tuning in a process of their own: a configuration that faults or hangs takes that
//! process and its view of the GPU with it, not the tuning.

use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use clap::Args;
use kiln::plan::{ExecutionPlan, Trials};
use kiln::{Error, ErrorKind};
use serde::{Deserialize, Serialize};

use crate::options::DeviceArgs;

/// How long a trial may take, the compilation of its kernels included.
const TRIAL_MAX: Duration = Duration::from_secs(120);

/// What `kiln tune` starts: reads plans from standard input, one in a line, and answers each with a
/// line.
#[derive(Args)]
pub struct MeasureArgs {
    #[command(flatten)]
    device: DeviceArgs,
}

/// The answer to a plan.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Answer {
    /// Its time in microseconds.
    Us(f64),
    Refused(String),
    /// The device is lost, and this process with it.
    Lost(String),
}

/// Answers until there are no more plans, or no device.
pub fn measure(args: &MeasureArgs) -> kiln::Result<ExitCode> {
    let kiln = args.device.open()?;
    let mut trials = Trials::new(&kiln);
    let broken = |error: io::Error| Error::with(ErrorKind::Io, error.to_string());
    for plan in io::stdin().lines() {
        let plan = kiln.plan_from_json(&plan.map_err(broken)?);
        let answer = match plan.and_then(|plan| trials.measure(&plan)) {
            Ok(us) => Answer::Us(us),
            Err(error) if error.kind() == ErrorKind::DeviceLost => Answer::Lost(error.to_string()),
            Err(error) => Answer::Refused(error.to_string()),
        };
        let line = serde_json::to_string(&answer).expect("an answer has no map");
        writeln!(io::stdout(), "{line}").map_err(broken)?;
        if let Answer::Lost(_) = answer {
            return Ok(ExitCode::from(6));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Measures plans in another process, and in the next one after it is lost.
pub struct Elsewhere {
    device: DeviceArgs,
    running: Option<Running>,
    /// Whether the last process was lost with its device.
    lost: bool,
}

struct Running {
    child: Child,
    plans: ChildStdin,
    answers: Receiver<String>,
}

impl Elsewhere {
    /// On the device of these options.
    pub fn new(device: &DeviceArgs) -> Elsewhere {
        Elsewhere { device: device.clone(), running: None, lost: false }
    }

    /// An error of tuning: the device is lost if the last trial ended so.
    pub fn told(&self, error: Error) -> Error {
        match self.lost {
            true => Error::with(ErrorKind::DeviceLost, error.to_string()),
            false => error,
        }
    }

    /// The time of a plan in microseconds.
    ///
    /// # Errors
    /// What the other process says, or that it ended or did not answer in time.
    pub fn measure(&mut self, plan: &ExecutionPlan) -> kiln::Result<f64> {
        let failed = |text: String| Error::with(ErrorKind::NotSupported, text);
        let running = match &mut self.running {
            Some(running) => running,
            none => none.insert(Running::start(&self.device)?),
        };
        let line = serde_json::from_str::<serde_json::Value>(&plan.to_json());
        let line = line.expect("a plan's document is valid").to_string();
        // What cannot be written is not answered.
        _ = writeln!(running.plans, "{line}").and_then(|()| running.plans.flush());
        let answer = running.answers.recv_timeout(TRIAL_MAX);
        let answer = answer.map(|line| serde_json::from_str::<Answer>(&line));
        self.lost = matches!(answer, Ok(Ok(Answer::Lost(_))));
        let why = match answer {
            Ok(Ok(Answer::Us(us))) => return Ok(us),
            Ok(Ok(Answer::Refused(why))) => return Err(failed(why)),
            Ok(Ok(Answer::Lost(why))) => why,
            Ok(Err(error)) => format!("its process gave no answer: {error}"),
            Err(RecvTimeoutError::Timeout) => {
                format!("no answer of its process within {} s", TRIAL_MAX.as_secs())
            }
            Err(RecvTimeoutError::Disconnected) => "its process ended".to_owned(),
        };
        self.running = None;
        Err(failed(why))
    }
}

impl Running {
    fn start(device: &DeviceArgs) -> kiln::Result<Running> {
        let failed = |error: io::Error| {
            Error::with(ErrorKind::Io, format!("a process for trials did not start: {error}"))
        };
        let mut command = Command::new(std::env::current_exe().map_err(failed)?);
        command.arg("measure").args(device.arguments()).stdin(Stdio::piped());
        let mut child = command.stdout(Stdio::piped()).spawn().map_err(failed)?;
        let plans = child.stdin.take().expect("it is piped");
        let lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        let (sender, answers) = mpsc::channel();
        thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Ok(Running { child, plans, answers })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may hang in the driver.
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

impl DeviceArgs {
    /// The options as arguments.
    fn arguments(&self) -> Vec<OsString> {
        let device = self.device.as_ref().map(|device| OsString::from(device.to_string()));
        let paths = [
            ("--cache-dir", &self.cache_dir),
            ("--nvrtc", &self.nvrtc),
            ("--templates", &self.templates),
        ];
        let paths = paths.map(|(name, path)| (name, path.clone().map(OsString::from)));
        let all = [("--device", device)].into_iter().chain(paths);
        let given = all.filter_map(|(name, value)| Some([OsString::from(name), value?]));
        given.flatten().collect()
    }
}
