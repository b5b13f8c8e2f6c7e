//! The text's own settings that memory grows with: options of a command line, `key = value` lines, YAML, JSON and
//! printed configurations, and settings that a person names in a sentence.
//!
//! Programs call the same few quantities by many names (`--num_frames`, `n_frames`, `frameNum`), so a name is read by
//! its words, not looked up. A step then repeats the very setting with a smaller value, which helps in a program
//! that [`super::programs`] does not know. Values that a text only suggests are not settings.

mod quantities;

use std::sync::LazyLock;

use makeroom_core::SortCompact as _;
use makeroom_explain::Fix;
use makeroom_search::{Match, Regex, pattern};

use self::quantities::{Follows, IN_SIZES, OTHER_WORDS, QUANTITIES};
use crate::boundaries;
use crate::settings::is_suggested;
use crate::situation::Situation;

/// More assignments than this are a dump, of which the first ones are read.
const MOST_READ: usize = 4000;
/// More steps than this say the same.
const MOST_STEPS: usize = 2;

/// `name = value`, `name: value`, `--name value`, `"name": value`. Lists and products are values too.
static ASSIGNED: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r#"(?x)
        (?P<before>^|[\s,;({\[|'"`>*.])
        (?P<dashes>-{0,2}) (?P<name>[A-Za-z][A-Za-z0-9_.-]{0,60}) (?P<quote>['"`\]]{0,2})
        (?P<separator>\s?=\s?|:\s{1,8}|:|\s{1,4})
        (?P<value>(?:\[|\()?\ ?\d{1,9}(?:\.\d{1,6})?(?:\ ?[,x×*]\ ?\d{1,9}){0,3}(?:\ ?[\])])?)
        (?P<behind>$|[^\w.%])
        "#,
    )
});
/// A setting in a sentence: "lowered `max_prim` to 6000", "`num_points` is at 4096".
static TOLD: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?i)\b(?P<name>[A-Za-z]+(?:_[A-Za-z0-9]+)+)[`'\x22]? (?:is |was )?(?:to|at|of|from \d{1,9} to|is|was) [`'\x22]?(?P<value>\d{1,9})\b",
    )
});
/// The size of an image or a video in a sentence, and words that say that it is one.
static DIMENSIONS: LazyLock<Regex> = LazyLock::new(|| pattern(r"\b(\d{3,4}) ?[x×] ?(\d{3,4})\b"));
static OF_IMAGES: LazyLock<Regex> = LazyLock::new(|| {
    pattern(r"(?i)image|resolution|video|\bres\b|upscal|generat|pixel|\bpx\b|picture|photo|frame")
});
/// The length of a video in a sentence.
static FRAMES: LazyLock<Regex> = LazyLock::new(|| pattern(r"(?i)\b(\d{2,4}) frames\b"));
/// The words of a name: `maxSeqLen`, `max_seq_len` and `MAX-SEQ-LEN` are the same.
static WORD: LazyLock<Regex> = LazyLock::new(|| pattern(r"[A-Z]+(?:[a-z]+)?|[a-z]+|\d+"));
static NUMBER: LazyLock<Regex> = LazyLock::new(|| pattern(r"\d+(?:\.\d+)?"));

/// Larger values are sizes in bytes, or something else.
const LONGEST_SIDE: u64 = 16_384;
const LARGEST_COUNT: u64 = 10_000_000;

/// A setting that memory follows.
#[derive(Debug)]
pub(crate) struct Knob {
    /// The place of its quantity in the list.
    quantity: usize,
    /// The setting as the text writes it, up to the value.
    written: String,
    value: String,
}

/// The words of a name, in lower case; of `cfg.data.size` those of the last part.
fn words(name: &str) -> Vec<String> {
    let key = name.rsplit('.').next().unwrap_or(name);
    WORD.find_iter(key).take(8).map(|word| word.as_str().to_ascii_lowercase()).collect()
}

/// Names of one word that are settings also with a colon.
const PLAIN_NAMES: &[&str] =
    &["streams", "resolution", "width", "height", "tile", "nx", "ny", "nz", "grid", "zoom"];

/// Whether `name: 12` counts something that a program found, instead of setting it: "images with faces: 12".
fn is_counted(name: &str, before: &str) -> bool {
    // A name of several words is an identifier, wherever it is.
    if words(name).len() > 1 {
        return false;
    }
    let is_in_phrase = before.trim_end().ends_with(|last: char| last.is_alphanumeric());
    is_in_phrase || !PLAIN_NAMES.iter().any(|plain| name.eq_ignore_ascii_case(plain))
}

/// The quantity that a name stands for.
fn quantity(name: &str, value: &str) -> Option<usize> {
    let words = words(name);
    // The sides of a domain.
    if words == ["n"] && value.contains(',') {
        return QUANTITIES.iter().position(|quantity| quantity.words.contains(&["grid"].as_slice()));
    }
    let has = |word: &str| words.iter().any(|known| known == word);
    let is_other = words.iter().any(|word| {
        OTHER_WORDS.contains(&word.as_str())
            && !IN_SIZES.iter().any(|(other, size)| *other == word && has(size))
    });
    if is_other || words.is_empty() {
        return None;
    }
    QUANTITIES.iter().position(|quantity| {
        quantity.words.iter().any(|group| match group {
            // One word alone must be the name, or end it: `frames`, `total_frames`, but not `frames_dir`.
            [one] => words.last().is_some_and(|last| last == one) && words.len() <= 3,
            group => group.iter().all(|word| has(word)),
        })
    })
}

/// A smaller number of the same kind.
fn smaller(value: u64, follows: Follows, factor: Option<f64>) -> u64 {
    match follows {
        Follows::Count => {
            let half = (value as f64 * factor.map_or(0.5, |factor| factor.min(0.5))) as u64;
            if half == value / 2 && value.is_multiple_of(2) {
                return half;
            }
            // Video models take 4n + 1 frames.
            if value > 8 && (value - 1).is_multiple_of(8) {
                return (value - 1) / 2 + 1;
            }
            // Powers of two stay such; other large values stay round.
            let unit = match value {
                _ if value.is_power_of_two() => return half.max(1).next_power_of_two().min(value / 2),
                1000.. if value.is_multiple_of(1000) => 100,
                256.. if value.is_multiple_of(64) => 64,
                100.. if value.is_multiple_of(10) => 10,
                _ => 1,
            };
            (half / unit * unit).max(1)
        }
        Follows::Side => {
            let aim = (value as f64 * factor.map_or(0.75, |factor| factor.sqrt().min(0.75))) as u64;
            let unit = [32, 16, 8, 4].into_iter().find(|unit| value.is_multiple_of(*unit)).unwrap_or(1);
            (aim / unit * unit).max(1)
        }
        Follows::Inverse => value * 2,
    }
}

impl Knob {
    /// The step, where the value can be made smaller. Of a list the largest number is.
    fn step(&self, factor: Option<f64>) -> Option<Fix> {
        let quantity = &QUANTITIES[self.quantity];
        let numbers: Vec<Match<'_>> = NUMBER.find_iter(&self.value).take(5).collect();
        if quantity.follows == Follows::Inverse {
            let value: f64 = numbers.first()?.as_str().parse().ok()?;
            let to = value * 2.0;
            let is_size = numbers.len() == 1 && (0.0001..=16.0).contains(&value);
            return is_size.then(|| {
                Fix::new(format!("{0} ({2} instead of {1})", quantity.action, self.value.trim(), shown(to)))
                    .command(format!("{}{}", self.written, shown(to)))
            });
        }
        let largest = numbers.iter().max_by_key(|number| number.as_str().parse::<u64>().unwrap_or(0))?;
        let from: u64 = largest.as_str().parse().ok()?;
        let most = if quantity.follows == Follows::Side { LONGEST_SIDE } else { LARGEST_COUNT };
        if from < quantity.least.max(2) || from > most {
            return None;
        }
        let to = smaller(from, quantity.follows, factor);
        // All sides of an image shrink together.
        let value = if quantity.follows == Follows::Side && numbers.len() > 1 {
            NUMBER
                .replace_all(&self.value, |side| {
                    // A small number is a count of channels or images.
                    match side.parse::<u64>() {
                        Ok(number) if number >= quantity.least => {
                            smaller(number, Follows::Side, factor).to_string()
                        }
                        _ => side.to_owned(),
                    }
                })
                .into_owned()
        } else {
            format!("{}{to}{}", &self.value[..largest.start()], &self.value[largest.end()..])
        };
        let value = value.trim();
        (to < from).then(|| {
            Fix::new(format!("{} ({value} instead of {})", quantity.action, self.value.trim()))
                .command(format!("{}{value}", self.written))
        })
    }
}

/// A number without more digits than it needs.
fn shown(value: f64) -> String {
    let text = format!("{value:.4}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Configurations are printed at the start, and repeated where a program fails.
const READ: usize = 128 << 10;

/// The beginning and the end of a part.
fn ends(part: &str) -> [&str; 2] {
    let head = boundaries::floor(part, READ);
    [&part[..head], &part[boundaries::floor(part, part.len().saturating_sub(READ).max(head))..]]
}

/// The settings in a part of a text.
fn read(part: &str) -> Vec<Knob> {
    let mut knobs = Vec::new();
    for line in part.lines().filter(|line| line.len() <= 16_384).take(20_000) {
        if knobs.len() >= 64 {
            break;
        }
        // The value of one assignment may be followed at once by the next, so the search goes on behind the value.
        let mut from = 0;
        let mut seen = 0;
        while let Some(found) = ASSIGNED.captures_at(line, from) {
            let value = &found["value"];
            from = found.name("value").map_or(line.len(), |value| value.end());
            seen += 1;
            if seen > MOST_READ {
                break;
            }
            let (dashes, name) = (&found["dashes"], &found["name"]);
            let separator = &found["separator"];
            let is_space = separator.trim().is_empty();
            // In a sentence a space separates words.
            if is_space && dashes.is_empty() {
                continue;
            }
            let Some(quantity) = quantity(name, value) else { continue };
            let start = found.name("name").map_or(0, |name| name.start()) - dashes.len();
            let is_bare = dashes.is_empty() && found["quote"].is_empty() && separator.trim() == ":";
            if is_suggested(&line[..start]) || is_bare && is_counted(name, &line[..start]) {
                continue;
            }
            let separator = match separator.trim() {
                "=" => "=",
                ":" => ": ",
                _ => " ",
            };
            let spaced =
                if separator == "=" && found["separator"].starts_with(' ') { " = " } else { separator };
            knobs.push(Knob { quantity, written: format!("{dashes}{name}{spaced}"), value: balanced(value) });
        }
        for found in TOLD.captures_iter(line).take(8) {
            if let Some(quantity) = quantity(&found["name"], &found["value"]) {
                knobs.push(Knob {
                    quantity,
                    written: format!("{}=", &found["name"]),
                    value: found["value"].to_owned(),
                });
            }
        }
    }
    knobs
}

/// A value whose brackets close.
fn balanced(value: &str) -> String {
    let has_both =
        (value.contains('[') && value.contains(']')) || (value.contains('(') && value.contains(')'));
    if has_both {
        value.trim().to_owned()
    } else {
        value.trim().trim_matches(['[', ']', '(', ')', ' ']).to_owned()
    }
}

/// The steps for the settings in the text, except the batch size, which [`super::smaller`] words.
pub(crate) fn steps(situation: &Situation<'_>) -> Vec<Fix> {
    let fixes = found(situation, false);
    if fixes.is_empty() { told_sizes(situation) } else { fixes }
}

/// Longer lines are dumps, in which products are shapes.
const LONGEST_SENTENCE: usize = 600;

/// The size of the images or the number of frames that a person names, where the text shows no setting.
fn told_sizes(situation: &Situation<'_>) -> Vec<Fix> {
    let factor = situation.shrink_factor();
    let lines = || {
        let parts = situation.settings.parts().into_iter().flat_map(ends).flat_map(str::lines);
        parts.filter(|line| line.len() <= LONGEST_SENTENCE).take(400)
    };
    let number = |text: &str| text.parse::<u64>().ok();
    let frames = lines().filter(|line| !line.contains("fps")).find_map(|line| {
        let from = number(&FRAMES.captures(line)?[1]).filter(|frames| (9..=2000).contains(frames))?;
        let to = smaller(from, Follows::Count, factor);
        Some(Fix::new(format!("use fewer frames ({to} instead of {from})")).command(format!("frames = {to}")))
    });
    let sides = lines().filter(|line| OF_IMAGES.is_match(line)).find_map(|line| {
        let found = DIMENSIONS.captures(line)?;
        let (width, height) = (number(&found[1])?, number(&found[2])?);
        // Smaller pictures are not what fills a GPU.
        if width.max(height) < 512 || width.max(height) > LONGEST_SIDE {
            return None;
        }
        let (to_width, to_height) =
            (smaller(width, Follows::Side, factor), smaller(height, Follows::Side, factor));
        Some(
            Fix::new(format!("use smaller images ({to_width}x{to_height} instead of {width}x{height})"))
                .command(format!("width = {to_width}, height = {to_height}")),
        )
    });
    let is_video =
        || ["video", "i2v", "t2v", "animat"].iter().any(|words| situation.settings.mentions(words));
    frames.filter(|_| is_video()).into_iter().chain(sides).collect()
}

/// The step for the setting of the batch, under whatever name the text has for it.
pub(crate) fn batch_step(situation: &Situation<'_>) -> Option<Fix> {
    found(situation, true).into_iter().next()
}

fn found(situation: &Situation<'_>, wants_batch: bool) -> Vec<Fix> {
    let factor = situation.shrink_factor();
    let all = situation.knobs.get_or_init(|| {
        let mut knobs: Vec<Knob> =
            situation.settings.parts().into_iter().flat_map(ends).flat_map(read).collect();
        // Of two values for one setting the later one holds.
        knobs.reverse();
        knobs.sort_compact_by_key(|knob| knob.quantity);
        knobs
    });
    let knobs = all.iter().filter(|knob| (knob.quantity == 0) == wants_batch);
    let mut fixes: Vec<Fix> = Vec::new();
    let mut taken: Vec<usize> = Vec::new();
    for knob in knobs {
        if taken.contains(&knob.quantity) {
            continue;
        }
        if let Some(fix) = knob.step(factor) {
            taken.push(knob.quantity);
            fixes.push(fix);
        }
        if fixes.len() == MOST_STEPS {
            break;
        }
    }
    fixes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::Context;
    use crate::find;
    use crate::log::Log;

    fn commands(settings: &str) -> Vec<String> {
        let text = format!("{settings}\nRuntimeError: CUDA out of memory. Tried to allocate 1.00 GiB");
        let log = Log::new(&text);
        let found = find::failures(&log).unwrap();
        let context = Context::read(&log, found.index);
        let situation = Situation::new(&log, found.index, &found.first, &context);
        steps(&situation).into_iter().filter_map(|fix| fix.command).collect()
    }

    #[test]
    fn settings_are_repeated_with_a_smaller_value() {
        for (settings, command) in [
            ("python sample.py --num_frames 48 --fps 8", "--num_frames 24"),
            ("python sample.py --width=1280", "--width=960"),
            ("python up.py --tile 512", "--tile 384"),
            ("{'max_seq_len': 4096, 'lr': 0.001}", "max_seq_len: 2048"),
            ("Namespace(lr=0.1, chunk=32768, seed=3)", "chunk=16384"),
            ("ops.Nfilt = 960;", "ops.Nfilt = 480"),
            ("[Pipe] Threads: 8 | Streams: 4", "Streams: 2"),
            ("  NUM_POINTS: 12288", "NUM_POINTS: 6144"),
            ("10:02 INFO  cfg.MODEL.MAX_VOXELS: 40000", "cfg.MODEL.MAX_VOXELS: 20000"),
            ("   n_x = 600", "n_x = 300"),
            ("img_size: [1024, 768]", "img_size: [768, 576]"),
            ("input_size=(3, 640, 640)", "input_size=(3, 480, 480)"),
            ("img_size: [1, 3, 1024, 512]", "img_size: [1, 3, 768, 384]"),
            ("grid = 400, 200, 200", "grid = 200, 200, 200"),
            ("I lowered max_prim to 8000 and it still fails", "max_prim=4000"),
            ("voxel_size: 0.05", "voxel_size: 0.1"),
            ("imgsz=640", "imgsz=480"),
            ("an image of 1024x768 is too much", "width = 768, height = 576"),
            ("a video of 81 frames", "frames = 41"),
        ] {
            assert_eq!(commands(settings).first().map(String::as_str), Some(command), "{settings}");
        }
    }

    #[test]
    fn what_memory_does_not_follow_is_left_alone() {
        for settings in [
            "epoch: 12, lr: 0.01, num_workers=8",
            "max_memory: 24, gpu_id=3, num_classes: 80",
            "save_frames_every: 50",
            "try setting --num_frames 16",
            "version: 12, line: 640",
            "wrote 12 frames to out.mp4",
            "images with faces: 640",
            "frames: 1200",
            "UnusedRangeSizeMax: 51773440",
            "num_frames: 1",
            "the tensor is 1024x1024",
            "an icon image of 256x256",
            "timestep 4000",
        ] {
            assert_eq!(commands(settings), Vec::<String>::new(), "{settings}");
        }
    }

    #[test]
    fn the_cheapest_settings_come_first() {
        let steps = commands("python train.py --hidden_size 1024 --max_length 2048 --num_samples 8");
        assert_eq!(steps, ["--num_samples 4", "--max_length 1024"]);
    }
}
