//! Checks of the driver: version and CUDA support, GPUs and their modes, MPS.

use super::{Check, Packages, Surroundings, Verdict};
use crate::survey::{Card, ComputeMode, ProblemKind, Survey, SurveyError};

/// The oldest driver for each major version of CUDA, from NVIDIA's table of minor-version compatibility.
const OLDEST_DRIVERS: [(u32, u32); 3] = [(13, 580), (12, 525), (11, 450)];

pub(super) fn check(
    survey: &Result<Survey, SurveyError>,
    surroundings: &Surroundings,
    packages: &Packages,
) -> Vec<Check> {
    let survey = match survey {
        Ok(survey) => survey,
        Err(error) => {
            return vec![Check::new("driver", Verdict::Problem, error.to_string()).fix(error.hint())];
        }
    };
    let mut checks = vec![version(survey)];
    checks.extend(loaded_module(survey, surroundings));
    checks.extend(pair(survey, packages));
    if survey.cards.is_empty() {
        let found = "the driver finds no GPU";
        let fix = "check that the machine has one (lspci | grep -i nvidia), and look in dmesg for why the driver does not use it";
        checks.push(Check::new("cards", Verdict::Problem, found).fix(fix));
    }
    for card in &survey.cards {
        checks.extend(of_card(card));
    }
    checks.extend(modes(&survey.cards));
    checks.extend(survey.cards.iter().filter(|card| card.is_divided).map(divided));
    checks.extend(visible(survey, surroundings));
    checks.extend(service(surroundings));
    checks
}

fn version(survey: &Survey) -> Check {
    let cuda = survey.cuda.map_or(String::new(), |version| {
        format!(", supports CUDA up to {}.{}", version / 1000, version % 1000 / 10)
    });
    let cards = survey.cards.len();
    let cards = if cards == 1 { "1 GPU".to_owned() } else { format!("{cards} GPUs") };
    Check::new("driver", Verdict::Good, format!("driver {}{cuda}, {cards}", survey.driver))
}

/// The kernel module and the library. After an update, their versions differ until the module is reloaded.
fn loaded_module(survey: &Survey, surroundings: &Surroundings) -> Option<Check> {
    let text = surroundings.read_proc("driver/nvidia/version")?;
    let loaded = text.split_ascii_whitespace().find(|word| is_version(word))?;
    if loaded == survey.driver || survey.driver.is_empty() {
        return None;
    }
    let found =
        format!("the loaded kernel module is version {loaded}, but the library is version {}", survey.driver);
    Some(
        Check::new("driver", Verdict::Warning, found)
            .fix("reboot, or reload the module: rmmod nvidia_uvm nvidia && modprobe nvidia"),
    )
}

fn is_version(word: &str) -> bool {
    word.split('.').count() >= 2 && word.split('.').all(|part| part.parse::<u32>().is_ok())
}

/// Whether the driver supports the CUDA version that an installed framework was built for.
fn pair(survey: &Survey, packages: &Packages) -> Option<Check> {
    let torch = packages.torch.as_ref()?;
    let (major, minor) = torch.cuda?;
    let driver: u32 = survey.driver.split('.').next()?.parse().ok()?;
    let (_, oldest) = OLDEST_DRIVERS.iter().find(|(served, _)| *served == major)?;
    let name = format!("PyTorch {} for CUDA {major}.{minor}", torch.version);
    if driver < *oldest {
        let found =
            format!("{name} needs driver {oldest} or later; the installed driver is {}", survey.driver);
        let fix =
            format!("update the driver, or install a build for CUDA {} or older", newest_served(driver));
        return Some(Check::new("versions", Verdict::Problem, found).fix(fix));
    }
    let served =
        survey.cuda.map(|version| (version.unsigned_abs() / 1000, version.unsigned_abs() % 1000 / 10));
    if served.is_some_and(|served| served < (major, minor)) {
        let found = format!(
            "{name} is newer than the driver's CUDA: precompiled kernels run, but kernels compiled at run time (PTX) fail"
        );
        return Some(
            Check::new("versions", Verdict::Warning, found)
                .fix("update the driver before using torch.compile or extensions built from PTX"),
        );
    }
    Some(Check::new("versions", Verdict::Good, format!("{name} is compatible with driver {}", survey.driver)))
}

fn newest_served(driver: u32) -> u32 {
    OLDEST_DRIVERS.iter().find(|(_, oldest)| driver >= *oldest).map_or(10, |(major, _)| *major)
}

/// Queries that failed on a GPU.
fn of_card(card: &Card) -> Vec<Check> {
    let index = card.index;
    let mut checks = Vec::new();
    for problem in &card.problems {
        let verdict = match problem.kind {
            ProblemKind::Lost | ProblemKind::NeedsReset => Verdict::Problem,
            ProblemKind::NoPermission => Verdict::Note,
            ProblemKind::Other => Verdict::Warning,
        };
        let found = format!("GPU {index}: could not read {}: {}", problem.what, problem.answer);
        checks.push(Check::new("cards", verdict, found).fix(problem.hint(index)));
    }
    checks
}

/// Modes that affect several GPUs: one line for each mode.
fn modes(cards: &[Card]) -> Vec<Check> {
    let mut checks = Vec::new();
    if let Some(group) = Group::from_cards(cards, |card| card.compute_mode == Some(ComputeMode::Prohibited)) {
        let found = format!(
            "{} {} in compute mode PROHIBITED: CUDA cannot use {}",
            group.names,
            group.is(),
            if group.is_one { "it" } else { "them" }
        );
        let fix = format!("sudo nvidia-smi -i {} -c DEFAULT", group.indices);
        checks.push(Check::new("compute_mode", Verdict::Problem, found).fix(fix));
    }
    if let Some(group) = Group::from_cards(cards, |card| card.compute_mode == Some(ComputeMode::Exclusive)) {
        let found = format!(
            "{} {} only one process at a time (EXCLUSIVE_PROCESS): a second one fails, including data-loader workers that use CUDA",
            group.names,
            if group.is_one { "accepts" } else { "accept" }
        );
        let fix = format!("sudo nvidia-smi -i {} -c DEFAULT", group.indices);
        checks.push(Check::new("compute_mode", Verdict::Note, found).fix(fix));
    }
    if let Some(group) = Group::from_cards(cards, |card| card.is_persistent == Some(false)) {
        let found = format!(
            "persistence mode is off on {}: the driver shuts down when the last process exits, so the next program starts slowly and settings are lost",
            group.names
        );
        let fix = "sudo systemctl enable --now nvidia-persistenced, or sudo nvidia-smi -pm 1";
        checks.push(Check::new("persistence", Verdict::Note, found).fix(fix));
    }
    checks
}

/// GPUs that have something in common.
struct Group {
    /// For a sentence: `GPU 0`, `GPUs 0, 1`.
    names: String,
    /// For a command: `0,1`.
    indices: String,
    is_one: bool,
}

impl Group {
    fn from_cards(cards: &[Card], is_meant: impl Fn(&Card) -> bool) -> Option<Self> {
        let indices: Vec<String> =
            cards.iter().filter(|card| is_meant(card)).map(|card| card.index.to_string()).collect();
        let is_one = indices.len() == 1;
        let word = if is_one { "GPU" } else { "GPUs" };
        let names = format!("{word} {}", indices.join(", "));
        (!indices.is_empty()).then(|| Self { names, indices: indices.join(","), is_one })
    }

    fn is(&self) -> &'static str {
        if self.is_one { "is" } else { "are" }
    }
}

fn divided(card: &Card) -> Check {
    let index = card.index;
    if card.parts.is_empty() {
        let found = format!("GPU {index} is in MIG mode without instances: programs cannot use it");
        let fix = format!(
            "create instances (sudo nvidia-smi mig -i {index} -cgi 0 -C), or disable MIG (sudo nvidia-smi -i {index} -mig 0)"
        );
        return Check::new("mig", Verdict::Problem, found).fix(fix);
    }
    let found = format!(
        "GPU {index} is in MIG mode with {} instances: a process uses only one of them, the first by default",
        card.parts.len()
    );
    let fix = card.parts.last().map(|part| format!("export CUDA_VISIBLE_DEVICES={}", part.uuid));
    Check { fix, ..Check::new("mig", Verdict::Note, found) }
}

/// Which GPUs programs will see. CUDA stops at the first unknown name, and shows no GPU if one is listed twice.
fn visible(survey: &Survey, surroundings: &Surroundings) -> Option<Check> {
    let value = surroundings.environment.get("CUDA_VISIBLE_DEVICES")?;
    let cards = survey.cards.len();
    if let Some(check) = repeated(survey, value) {
        return Some(check);
    }
    let wrong = value.split(',').map(str::trim).find(|name| known(survey, name).is_none());
    let (verdict, found) = match wrong {
        None => (
            Verdict::Note,
            format!(
                "CUDA_VISIBLE_DEVICES={value}: programs see {} of {cards} GPUs",
                value.split(',').count()
            ),
        ),
        Some(_) if value.trim().is_empty() || value.trim() == "-1" => {
            (Verdict::Warning, "CUDA_VISIBLE_DEVICES hides every GPU".to_owned())
        }
        Some(name) => (
            Verdict::Problem,
            format!(
                "CUDA_VISIBLE_DEVICES={value}: GPU `{name}` does not exist; CUDA ignores it and all entries after it"
            ),
        ),
    };
    let check = Check::new("visible_devices", verdict, found);
    Some(if wrong.is_some() { check.fix("unset CUDA_VISIBLE_DEVICES") } else { check })
}

/// A GPU that is listed twice before the first unknown name.
fn repeated(survey: &Survey, value: &str) -> Option<Check> {
    let mut names: Vec<(&str, &str)> = Vec::new();
    let mut again = None;
    for name in value.split(',').map(str::trim) {
        let Some(card) = known(survey, name) else { break };
        if names.iter().any(|(_, seen)| *seen == card.uuid) {
            again = again.or(Some(name));
        } else {
            names.push((name, &card.uuid));
        }
    }
    let found = format!("CUDA_VISIBLE_DEVICES={value}: `{}` is listed twice, so CUDA finds no GPU", again?);
    let once: Vec<&str> = names.iter().map(|(name, _)| *name).collect();
    let fix = format!("export CUDA_VISIBLE_DEVICES={}", once.join(","));
    Some(Check::new("visible_devices", Verdict::Problem, found).fix(fix))
}

/// The GPU with a name: its index, or a UUID, which may be abbreviated to a unique prefix.
fn known<'survey>(survey: &'survey Survey, name: &str) -> Option<&'survey Card> {
    if let Ok(index) = name.parse::<usize>() {
        return survey.cards.get(index);
    }
    let cards = survey.cards.iter().flat_map(|card| std::iter::once(card).chain(&card.parts));
    let mut matching = cards.filter(|card| name.len() > 4 && card.uuid.starts_with(name));
    let card = matching.next()?;
    matching.next().is_none().then_some(card)
}

/// MPS: its pipe directory and its memory limit.
fn service(surroundings: &Surroundings) -> Vec<Check> {
    let mut checks = Vec::new();
    if let Some(directory) = surroundings.variable("CUDA_MPS_PIPE_DIRECTORY") {
        let below = directory.trim_start_matches('/');
        if !surroundings.path(below).join("control").exists() {
            let found = format!(
                "CUDA_MPS_PIPE_DIRECTORY={directory}, but no MPS daemon listens there: programs run without MPS"
            );
            checks.push(Check::new("mps", Verdict::Warning, found).fix("start the daemon with the same variable (nvidia-cuda-mps-control -d), or unset CUDA_MPS_PIPE_DIRECTORY"));
        }
    }
    if let Some(limit) = surroundings.variable("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT") {
        let found = format!(
            "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT={limit}: under MPS, a client's allocations fail beyond this limit"
        );
        checks.push(Check::new("mps", Verdict::Note, found));
    }
    checks
}
