//! What a program's own check of a CUDA call prints: the call with its arguments, a size, what was free, a file and a
//! line. Every program words it for itself, so this reads the parts wherever they stand in one line.
//!
//! ```text
//! solver: cudaMalloc(&field, 4294967296) failed at src/field.cu:118: out of memory (free 1.2 GB of 24 GB)
//!         └ call ────┘       └ request ┘           └ site ────────┘                 └ free ┘  └ total ┘
//! ```
//!
//! A figure without a word for its meaning is the request only where the line names a call that allocates, has no
//! other figure, and the figure stands in parentheses, after `of` or `for`, or right behind the call.

use std::sync::LazyLock;

use makeroom_core::Bytes;
use makeroom_search::{Captures, Regex, pattern};

use crate::figures::{captured_number, captured_size, size};
use crate::log::clipped;

/// What one line says about the call that failed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Call {
    /// The call's name, if it is one that allocates.
    pub(crate) name: Option<String>,
    /// What was asked for.
    pub(crate) request: Option<Bytes>,
    /// What the driver had free.
    pub(crate) free: Option<Bytes>,
    /// What the device has.
    pub(crate) total: Option<Bytes>,
}

static NAME: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"\b((?:cuda|hip)(?:Malloc\w*|HostAlloc|HostMalloc|ExtMalloc\w*)|cuMem(?:Alloc\w*|HostAlloc|Create))\b(?: ?(\())?",
    )
});
/// A size with its unit.
const SIZE: &str = r"(\d[\d.,]*) ?([KMGT]i?B?|bytes|B)";
/// The same, for callers that do not need its parts.
const UNNAMED: &str = r"\d[\d.,]* ?(?:[KMGT]i?B?|bytes|B)";
static PLAIN: LazyLock<Regex> = LazyLock::new(|| pattern(&format!(r"(?i){SIZE}\b")));
/// A size whose place makes it the request: in parentheses, after a preposition, or right behind the call.
static ALONE: LazyLock<Regex> = LazyLock::new(|| {
    pattern(&format!(
        r"(?i)(?:\(\s*|\b(?:of|for|allocating|requested|size)[ :=]+|\b(?:cuda|hip|cu)\w*(?:Malloc|Alloc)\w*[ :=]+){SIZE}\b"
    ))
});
/// What is free and what there is, in one phrase; the unit may stand once, at the end.
static FREE_OF_TOTAL: LazyLock<Regex> = LazyLock::new(|| {
    pattern(&format!(
        r"(?i)\b(?:free|available)(?: memory| mem)?(?: is|:|=)? ?{SIZE}? ?(?:out of|of|/) ?(?:total )?{SIZE}\b",
    ))
});
static OF_TOTAL_FREE: LazyLock<Regex> = LazyLock::new(|| {
    pattern(&format!(
        r"(?i){SIZE}? ?(?:(?:is |are )?(?:free|available) ?)?(?:out of|of|/) ?{SIZE}(?: total| in total)?(?: memory)?(?: is| are)?(?: free| available)?\b",
    ))
});
static FREE: LazyLock<Regex> = LazyLock::new(|| {
    pattern(&format!(
        r"(?i)\b(?:free|available|avail)(?:[ _]?(?:memory|mem|bytes|device|gpu))*(?: is only| is| was|:|=)* ?{SIZE}?\b|{SIZE} (?:is |are |was |were )?(?:free|available|left)\b",
    ))
});
static TOTAL: LazyLock<Regex> = LazyLock::new(|| {
    pattern(&format!(
        r"(?i)\btotal(?:[ _]?(?:memory|mem|bytes|device|gpu))*(?: is| of|:|=)* ?{SIZE}?\b|{SIZE} (?:in )?total\b",
    ))
});
/// What is in use is neither asked for nor free.
static USED: LazyLock<Regex> = LazyLock::new(|| {
    pattern(&format!(
        r"(?i)\b(?:used|in use|allocated so far|already allocated)(?:[ _]?(?:memory|mem|bytes))?(?: is|:|=)* ?{UNNAMED}?\b|{UNNAMED} (?:is |are |was |were )?(?:already )?(?:used|in use|allocated)\b",
    ))
});
static REQUEST: LazyLock<Regex> = LazyLock::new(|| {
    pattern(&format!(
        r"(?i)\b(?:request(?:ed|ing)?|asked for|need(?:s|ed)?|want(?:s|ed)?|alloc(?:ate|ating|ation)?|size|n?bytes|len(?:gth)?)(?: (?:of|for|a|size|memory|bytes|buffer|device|gpu))*(?: is| was|:|=)* ?{SIZE}?(?:$|[^\w.])",
    ))
});

impl Call {
    /// What a line says.
    pub(crate) fn read(line: &str) -> Self {
        let line = clipped(line, LONGEST_LINE);
        let mut call = Self::default();
        let mut rest = line.to_owned();
        if let Some(found) = NAME.captures(line) {
            call.name = found.get(1).map(|name| name.as_str().to_owned());
            if let Some(open) = found.get(2) {
                let (arguments, end) = arguments(&line[open.end()..]);
                call.request = requested(&found[1], &arguments, line);
                rest.replace_range(open.start()..open.end() + end, " ");
            }
        }
        if let Some(found) = take(&FREE_OF_TOTAL, &mut rest).or_else(|| {
            take_where(&OF_TOTAL_FREE, &mut rest, |found| {
                let phrase = found[0].to_ascii_lowercase();
                phrase.contains("free") || phrase.contains("available")
            })
        }) {
            call.total = sized(&found[2], &found[3]);
            let unit = if found[1].is_empty() { &found[3] } else { &found[1] };
            call.free = sized(&found[0], unit);
        } else {
            call.free = take(&FREE, &mut rest).and_then(|found| either(&found));
            call.total = take(&TOTAL, &mut rest).and_then(|found| either(&found));
        }
        for _ in 0..MOST_USES {
            if take(&USED, &mut rest).is_none() {
                break;
            }
        }
        call.request = call.request.or_else(|| stated_request(&rest, call.name.is_some()));
        call
    }
}

/// The request in what is left of a line after all other figures were taken out.
fn stated_request(rest: &str, is_call_named: bool) -> Option<Bytes> {
    let found = REQUEST.captures_iter(rest).find_map(|found| {
        let unit = found.get(2).map_or("", |unit| unit.as_str());
        size(found.get(1)?.as_str(), unit)
            .filter(|&bytes| !unit.is_empty() || (is_call_named && bytes >= LEAST_BARE))
    });
    let alone = || {
        let is_only_one = PLAIN.captures_iter(rest).count() == 1;
        is_only_one.then(|| captured_size(&ALONE.captures(rest)?, 1))?
    };
    found.or_else(|| alone().filter(|_| is_call_named))
}

/// The rest of a longer line is ignored.
const LONGEST_LINE: usize = 16 << 10;
/// How many figures for memory in use are distinguished in one line.
const MOST_USES: usize = 8;
/// A product of more factors is not a size.
const MOST_FACTORS: usize = 8;
/// A number without a unit is a size from here on; a smaller one may be a line, a code or a count.
const LEAST_BARE: Bytes = Bytes::new(4096);

/// The arguments of a call, from behind its opening parenthesis, and where they end.
fn arguments(text: &str) -> (Vec<String>, usize) {
    let mut arguments = vec![String::new()];
    let mut depth = 0_usize;
    for (index, character) in text.char_indices() {
        match character {
            ')' if depth == 0 => return (arguments, index + 1),
            ',' if depth == 0 => {
                arguments.push(String::new());
                continue;
            }
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        if let Some(last) = arguments.last_mut() {
            last.push(character);
        }
    }
    (arguments, text.len())
}

/// What a call asks for by its arguments, where they are numbers or the line says what they stand for.
fn requested(name: &str, arguments: &[String], line: &str) -> Option<Bytes> {
    let value = |index: usize| arguments.get(index).and_then(|argument| product(argument, line));
    if let [only] = arguments
        && let Some(found) = PLAIN.captures(only)
    {
        return captured_size(&found, 1);
    }
    let bytes = if name.ends_with("Pitch") {
        value(2)?.checked_mul(value(3)?)?
    } else {
        // The first is where the address goes; some print only the size.
        value(1).or_else(|| value(0))?
    };
    Some(Bytes::new(bytes))
}

/// The value of a product of numbers, shifts and sizes of types, as programs write sizes.
fn product(source: &str, line: &str) -> Option<u64> {
    static CAST: LazyLock<Regex> =
        LazyLock::new(|| pattern(r"\((?:size_t|std::size_t|u?int64_t|unsigned long(?: long)?)\)"));
    static SIZE_OF: LazyLock<Regex> = LazyLock::new(|| pattern(r"^sizeof ?\(? ?([\w:]+) ?\)?$"));
    static SHIFT: LazyLock<Regex> =
        LazyLock::new(|| pattern(r"^\(? ?(\d+)[uUlLzZ]* ?<< ?(\d+)[uUlLzZ]* ?\)?$"));
    static NUMBER: LazyLock<Regex> = LazyLock::new(|| pattern(r"^\(? ?(\d+)[uUlLzZ]* ?\)?$"));
    static VARIABLE: LazyLock<Regex> = LazyLock::new(|| pattern(r"^[A-Za-z_]\w*$"));
    if source.matches('*').count() >= MOST_FACTORS {
        return None;
    }
    let source = CAST.replace_all(source, |_| "");
    source.split('*').map(str::trim).try_fold(1_u64, |product, factor| {
        let value = if let Some(found) = NUMBER.captures(factor) {
            captured_number(&found, 1)?
        } else if let Some(found) = SHIFT.captures(factor) {
            captured_number::<u64>(&found, 1)?.checked_mul(1_u64.checked_shl(captured_number(&found, 2)?)?)?
        } else if VARIABLE.is_match(factor) {
            value_of(factor, line)?
        } else {
            match &SIZE_OF.captures(factor)?[1] {
                "char" | "uint8_t" | "int8_t" | "bool" => 1,
                "half" | "__half" | "short" | "uint16_t" | "int16_t" => 2,
                "float" | "int" | "unsigned" | "uint32_t" | "int32_t" => 4,
                "double" | "long" | "size_t" | "uint64_t" | "int64_t" | "float2" | "cuFloatComplex" => 8,
                "double2" | "float4" | "cuDoubleComplex" => 16,
                _ => return None,
            }
        };
        product.checked_mul(value)
    })
}

/// What a line says that a variable is, as `n = 4096` or `n: 4096`.
fn value_of(variable: &str, line: &str) -> Option<u64> {
    let is_word = |character: char| character.is_alphanumeric() || character == '_';
    line.match_indices(variable).find_map(|(start, _)| {
        let rest = &line[start + variable.len()..];
        let is_whole = !line[..start].ends_with(is_word) && !rest.starts_with(is_word);
        let value = rest.trim_start().strip_prefix(['=', ':'])?.trim_start();
        let end = value.find(|character: char| !character.is_ascii_digit()).unwrap_or(value.len());
        // A fraction or a number with a unit is not a count.
        let is_count = !value[end..].starts_with(|next: char| {
            is_word(next) || next == '.' && value[end + 1..].starts_with(|digit: char| digit.is_ascii_digit())
        });
        (is_whole && is_count).then(|| value[..end].parse().ok())?
    })
}

/// The groups of the first match that is accepted, which is cut out of the text.
fn take_where(
    figure: &Regex,
    text: &mut String,
    is_accepted: impl Fn(&Captures<'_>) -> bool,
) -> Option<Vec<String>> {
    let (groups, place) = {
        let found = figure.captures_iter(text).find(is_accepted)?;
        let groups: Vec<String> = found
            .iter()
            .skip(1)
            .map(|group| group.map_or(String::new(), |group| group.as_str().to_owned()))
            .collect();
        (groups, found.get(0)?.range())
    };
    text.replace_range(place, " ");
    Some(groups)
}

fn take(figure: &Regex, text: &mut String) -> Option<Vec<String>> {
    take_where(figure, text, |_| true)
}

/// The size in the first or in the second pair of groups.
fn either(groups: &[String]) -> Option<Bytes> {
    sized(groups.first()?, groups.get(1)?).or_else(|| sized(groups.get(2)?, groups.get(3)?))
}

fn sized(number: &str, unit: &str) -> Option<Bytes> {
    size(number.trim_end_matches([',', '.']), unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(line: &str) -> (Option<u64>, Option<u64>, Option<u64>) {
        let call = Call::read(line);
        (call.request.map(Bytes::get), call.free.map(Bytes::get), call.total.map(Bytes::get))
    }

    #[test]
    fn the_request_is_read_wherever_it_stands() {
        for line in [
            "cudaMalloc failed: out of memory (8589934592 bytes)",
            "cudaMalloc of 8589934592 bytes failed: out of memory",
            "cudaMalloc(&field, 8589934592) failed: out of memory",
            "cudaMallocAsync(&p, 8589934592ULL, stream) failed at field.cu:12: out of memory",
            "cudaMallocManaged((void**)&p, 1024 * 1024 * 8192) returned 2 (out of memory)",
            "cudaMallocPitch(&p, &pitch, 1048576, 8192): out of memory",
            "cuMemAlloc(&p, (size_t)2147483648 * sizeof(float)): out of memory",
            "cudaMalloc(&p, 1ULL << 33): out of memory",
            "cudaMalloc failed: out of memory (requested 8.00 GiB)",
            "hipMalloc failed, size=8589934592: out of memory",
            "cudaMalloc(&d, N*sizeof(double)) at bench.cu:33: out of memory. N=1073741824",
            "cudaMalloc(&d, rows * cols * 4): out of memory (rows: 65536, cols: 32768)",
            "cudaMalloc(8388608 KiB) returned cudaErrorMemoryAllocation",
            "cudaMalloc(&p, bytes) failed for 8 GiB: out of memory",
        ] {
            assert_eq!(figures(line), (Some(8 << 30), None, None), "{line}");
        }
    }

    #[test]
    fn what_is_free_is_told_from_what_was_asked_for() {
        let gib = |count: u64| Some(count << 30);
        for line in [
            "cudaMalloc(&p, 4294967296) failed: out of memory (free 1 GiB of 24 GiB)",
            "cudaMalloc 4 GiB failed: out of memory (1 GiB of 24 GiB free)",
            "cudaMalloc(4294967296): out of memory, free: 1 GiB, total: 24 GiB",
            "cudaMalloc failed: out of memory: requested 4294967296, free 1073741824, total 25769803776",
            "cudaMalloc failed: out of memory (asked for 4 GiB, 1/24 GiB free)",
            "cudaMalloc failed for 4 GiB: out of memory; 1 GiB free, 23 GiB in use, 24 GiB total",
        ] {
            assert_eq!(figures(line), (gib(4), gib(1), gib(24)), "{line}");
        }
    }

    #[test]
    fn lines_codes_and_variables_are_no_sizes() {
        for line in [
            "GPUassert: out of memory solver.cu 214",
            "solver.cu:214, code: 2, reason: out of memory",
            "CUDA error at main.cu:57 code=2(cudaErrorMemoryAllocation) \"cudaMalloc((void **)&d, n * sizeof(float))\"",
            "cudaMalloc(&p, count) failed: out of memory",
            "a card with 2G prints cudaMalloc failed: out of memory",
            "GTX 9, 显存是2G, cudaMalloc failed: out of memory",
            "cudaMalloc(&p, count * 4) failed: out of memory, recount=12, count=1.5",
            "cudaMalloc(&p, 18446744073709551615 * 8 failed: out of memory",
        ] {
            assert_eq!(figures(line), (None, None, None), "{line}");
        }
    }
}
