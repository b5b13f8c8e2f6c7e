//! Memory growth as people report it: "VRAM keeps increasing with each epoch until it crashes".
//!
//! Such reports often have no error line at all, so no format finds them. A sentence counts where memory is its subject
//! and the growth repeats: with every step, over time, without an end. Sentences that only say that memory stays
//! allocated, or name a leak, count where the text also tells how the run ended. Change logs, wishes and questions of
//! principle tell of growth too; they are left out by [`super::discussion`] and by the words of the sentence itself.

use std::sync::LazyLock;

use makeroom_core::Framework;
use makeroom_explain::{Cause, Certainty};
use makeroom_search::{Regex, pattern};

use crate::facts::{Facts, Resource};
use crate::find::is_patch;
use crate::log::{Log, split_prefix};

/// A report stands in the first lines of a text.
const LINES_SEARCHED: usize = 100;
/// Longer lines were not typed by a person.
const LONGEST_LINE: usize = 4096;

const MEMORY: &str = r"(?:\b(?:memory(?:_allocated|_reserved)?|mem|v-?ram|gram|ram)\b)";
const STEADILY: &str = r"(?:slowly|gradually|steadily|continuous(?:ly)?|continually|constantly|progressively|consistently|monotonic(?:ally)?|indefinitely|unbounded(?:ly)?|endlessly|infinitely|(?:bit|little)\sby\s(?:bit|little)|over\stime|all\sthe\stime|without\s(?:bound|limit|end)|non-?stop)";
const GROWS: &str = r"(?:grow(?:s|ing|n)?|grew|increas(?:e|es|ed|ing)|ris(?:e|es|ing)|rose|climb(?:s|ed|ing)?|creep(?:s|ing)?|crept|accumulat(?:e|es|ed|ing)|leak(?:s|ed|ing)?|go(?:es|ing)?\sup|went\sup|build(?:s|ing)?\sup|built\sup|pil(?:es|ing)\sup|ramps?\sup|balloon\w*|expand(?:s|ing)?|inflat(?:es?|ing)|fill(?:s|ing)?\sup|get(?:s|ting)?\s(?:bigger|larger|higher))";
const AGAIN: &str = r"(?:\b(?:each|every|until|till|untill|repeatedly|multiple\s\w+|in\sa\srow|and\s(?:is\s|it['’]?s\s)?never|again\sand\sagain|after\seach|with\s(?:epochs?|iterations?|steps|time))\b|\bper\s(?:epoch|step|iter\w*|batch|request|hour|minute|frame|image|call|run|prompt|file|day|\d)|\b(\w+)\s(?:after|by)\s(?:batch|frame|epoch|step|image|request|iteration)\b|\bas\s(?:the\s|it\s)?(?:training|number\sof\s(?:epochs?|iter\w*|steps|requests)|epochs?|iterations?|runs?\b|goes\son)|\bby\s(?:about\s|around\s|roughly\s|another\s|~\s?)?[\d.]+\s?[MG]i?B?\b|\b(?:from|at)\s.{0,16}\d.{0,12}\sto\s.{0,12}\d)";

/// Memory that grows again and again.
static GROWTH: LazyLock<Regex> = LazyLock::new(|| {
    pattern(&format!(
        r"(?ix)
        {MEMORY} .{{0,80}}? \b(?:keep(?:s|ing)?|kept|continu(?:es?|ed|ing)(?:\sto)?|doesn['’]t\sstop|never\sstops) \s (?:on\s)? (?:\w+\s)?? (?:{GROWS}\b|inc\w+ing\b|gr\w+ing\b|go(?:ing)?\s(?:higher|upwards?))
      | \b(?:keep(?:s|ing)?|kept) \s (?:eating|using|consuming|taking|allocating|leaking|increasing|filling|hogging|accumulating) \b .{{0,24}} {MEMORY}
      | {MEMORY} .{{0,60}} \b{STEADILY}\b .{{0,16}} \b{GROWS}\b | {MEMORY} .{{0,60}} \b{GROWS}\b .{{0,24}} \b{STEADILY}\b
      | \b{STEADILY}\b .{{0,30}} \b{GROWS}\b .{{0,40}} {MEMORY} | \b{GROWS}\b .{{0,12}} \b{STEADILY}\b .{{0,30}} {MEMORY}
      | {MEMORY} .{{0,60}} \b{GROWS}\b .{{0,60}} {AGAIN} | \b(?:each|every) \s .{{0,60}} {MEMORY} .{{0,40}} \b{GROWS}\b
      | \bmore \s (?:\w+\s)? {MEMORY} \s than \s (?:in \s)? (?:the \s)? (?:previous|last|one \s before|before)\b | {MEMORY} .{{0,24}} \bhigher \s than \s (?:before|the \s (?:last|previous))\b
      | \b(?:each|every) \s .{{0,24}} \b(?:adds?|leaks?|takes \s another|needs \s another)\b .{{0,16}} \d[\d.-]*\s?[MG]i?B\b .{{0,24}} {MEMORY} | {MEMORY} .{{0,40}} \b(?:each|every) \s .{{0,24}} \b(?:adds?|leaks?)\b .{{0,12}} \d[\d.-]*\s?[MG]i?B?\b
      | \bmore \s and \s more \s (?:\w+\s){{0,3}}? {MEMORY} | \blonger \s .{{0,30}} \bthe \s more \s (?:\w+\s){{0,2}}? {MEMORY}
      | (?:显存|内存|顯存|記憶體|显卡占用|GPU占用)[^。？！]{{0,20}}?(?:一直|不断|不停|逐渐|逐步|持续|慢慢|缓慢|越来越|不斷|会随|随着|每个|每次|每轮)[^。？！]{{0,16}}?(?:增|涨|上升|变?大|变?高|变?多|漲|累积|堆积) | (?:显存|内存)[^。？！]{{0,30}}从\W?\d[^。]{{0,12}}(?:涨|增|升)[^。]{{0,6}}到
      | メモリ[^。]{{0,24}}(?:増え続け|増加し続け|増えてい|どんどん増|徐々に増|溜まって|上がり続け) | 메모리[^.]{{0,30}}(?:계속|점점|조금씩|꾸준히)[^.]{{0,16}}(?:증가|늘어|올라|쌓)
      | (?:mémoire|vram|ram)\b .{{0,60}} \b(?:augmente|croît|grimpe|monte)\b .{{0,40}} (?:à\schaque|petit\sà\spetit|progressivement|sans\scesse|continuellement|constamment|au\sfil|jusqu) | (?:mémoire|vram|ram)\b .{{0,30}} (?:ne\scesse\sd['’]augmenter|augmente\sà)
      | (?:\w*speicher\w*|\bv?ram)\b .{{0,60}} \b(?:wächst|steigt|läuft\svoll|füllt\ssich|nimmt)\b .{{0,40}} (?:immer|ständig|stetig|kontinuierlich|mit\sjede|bei\sjede|nach\sjede|pro\s|langsam|bis\b) | \b(?:wächst|steigt)\b .{{0,30}} (?:\w*speicher\w*|\bv?ram\b) .{{0,30}} (?:immer|ständig|stetig|kontinuierlich|mit\sjede|bei\sjede|nach\sjede|pro\s|langsam|bis\b)
      | (?:mem[oó]ria|vram|ram)\b .{{0,60}} \b(?:aumenta|sube|crece|cresce|sobe|sale|aumentando|crescendo|creciendo|subiendo)\b .{{0,40}} (?:cada|poco\sa\spoco|continuamente|constantemente|hasta|até|fino|ogni|aos\spoucos|gradual|sin\sparar|sem\sparar|a\smedida|à\smedida) | (?:mem[oó]ria|vram|ram)\b .{{0,30}} \b(?:fica|sigue|continua|continúa|va)\s(?:a\s)?(?:aumentando|crescendo|creciendo|subiendo|crescere|crescer|aumentar)
      | памят\w* .{{0,40}} (?:раст[её]т|увеличивается|утекает|забивается|накапливается) | (?:раст[её]т|увеличивается) .{{0,40}} памят
      | pami[ęe][ćc]\w* .{{0,40}} \brośnie\b .{{0,30}} (?:każd|co\s|stale|ciągle|aż)
        "
    ))
});
/// Memory that stays allocated, or a leak that is only named.
static RETAINED: LazyLock<Regex> = LazyLock::new(|| {
    pattern(&format!(
        r"(?ix)
        {MEMORY} .{{0,40}}? (?:\bnever|\bnot|n['’]t|\bwithout \s being) \s (?:\w+\s){{0,2}}? (?:freed|free\b|releas(?:ed|e|ing)|cleared|given \s back|reclaimed|returned|deallocated|unloaded|go(?:es|ing)? \s down|drop)
      | (?:\b(?:do|does|did|is|was)(?:n['’]t|\snot)|\bnot|\bnever|\bwithout) \s (?:\w+\s)? (?:free|release|clear|unload|freeing|releasing|clearing|unloading|frees|releases) \b .{{0,30}} {MEMORY}
      | {MEMORY} \s leak(?:s|age|ing|ed)?\b | \bleak(?:s|ing)? \s (?:\w+\s){{0,3}}? {MEMORY} | {MEMORY} .{{0,24}} \b(?:stays|remains) \s (?:occupied|allocated|high|full|in \s use)
      | {MEMORY} .{{0,40}} \b{GROWS}\b .{{0,24}} \b(?:during|while|when|after) \s | (?:显存|内存).{{0,12}}(?:没有?|不|未|无法|沒).{{0,4}}(?:释放|回收|釋放) | (?:显存|内存)泄[漏露] | メモリ.{{0,12}}(?:解放され|リーク) | 메모리\s?누수 | fuite\sde\smémoire|fuite\smémoire | \bspeicherleck | утечк\w+\s(?:видео)?памят | fuga\sde\smemoria | vazamento\sde\smemória
        "
    ))
});
/// How such a run ends.
static END: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?ix)
        out[\s-]of[\s-](?:\w+\s)?(?:memory|v?ram) | \boom(?:s|ed|['’]d)?\b | \bcrash\w* | \b(?:dies|died) \b | \b(?:gets?|got|was|being) \s (?:\w+ \s)? killed\b | \bkilled \s by\b | \bfreez(?:es|ing) | \bfroze\b | \bcollaps(?:es|ed) | \bunresponsive | \bhangs\b | \breboot | \b(?:runs?|ran|running) \s out\b | \b(?:is|are|gets?|becomes?) \s full\b | \block(?:s|ed) \s up\b | \bboom\b | \bfail(?:s|ed)\b | \bgives \s up\b | \bnot \s enough\b | \bexplod | \bmemory \s error | \bfills \s (?:all|the \s whole)
      | 爆显存|爆显|爆了|溢出|崩溃|卡死|杀掉|被杀|退出|不足|挂了|闪退|满了|报错 | 落ち|クラッシュ|不足 | 발생|죽|부족 | \bplante|\bcrashe | bricht|abst[uü]rz|abgebrochen | пада[её]т|вылета|закончи|зависа | \bmuere|\bquebra|\bfalla\b|\bcierra|\btrava\b
        ",
    )
});
/// The sentence is about a fix, a wish, a condition, or growth with the size of the work rather than with time.
static NO_REPORT: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?ix)
        \bno \s longer\b | \b(?:possible|potential|suspected) \s (?:\w+ \s){0,2} (?:memory|vram|ram) \s leak | \bused \s to\b | \b(?:does|do|did)(?:n['’]t|\snot) \s (?:grow|increase|leak|rise)\b | \b(?:not|no|without|any) \s (?:a \s)? (?:\w+\s)? leaks?\b | \bfix(?:es|ed)\b | ^\W*(?:\[[^\]]*\]\s*)?(?:fix|add|avoid|prevent|reduce)\b | \b(?:resolves?|solves?|prevents?|avoids?|reduces?) \s | \b(?:resolved|solved)\b
      | \b(?:may|might|could|can|would|will|should|if|whether|in \s case|to \s see) \b [^,]{0,60} \b(?:grow\w*|increas\w*|leak\w*|accumulat\w*|rise|keeps?|not)\b | \bexpected\b (?: \s (?:and|behaviou?r) | \W*$) | \b(?:linear(?:ly)?|quadratic(?:ally)?|proportional\w*|exponentially \s with) \b
      | \bwith \s (?:the \s | larger \s | longer \s | increasing \s)? (?:batch|sequence|context|prompt|input|resolution|model|image \s size|image \s resolution|size|length|number \s of \s (?:tokens|layers|gpus|images|points|workers|classes))\b | \bincrease \s (?:the \s | your \s)? (?:\w+\s){0,2} (?:memory|swap|ram) | \b(?:checks?|ensures?|verif\w+|asserts?) \s that\b | \bper \s (?:token|layer|parameter|gpu)\b
      | 如何|修复|解决了|公式|会增加多少 | \bloss \s (?:goes|increases|grows)
        ",
    )
});
/// Words of host memory as the subject.
static HOST: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?ix) \b(?:cpu|host|system|main) [\s-] (?:memory|ram|mem)\b | (?:^|[^\w-]) (?-i:RAM) \b | \bram \s (?:usage|consumption|keeps|use)\b | 内存|主存|記憶體 | \barbeitsspeicher | оперативн | \bmémoire \s vive",
    )
});
static DEVICE: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?ix) \bgpu | \bcuda\b | \bvram\b | 显存|顯存|显卡 | \b(?:video|graphics|device) \s (?:memory|ram)\b | \bnvidia | видеопамят | \bgrafik",
    )
});
/// The end of a sentence. Figures and names have dots too.
static STOP: LazyLock<Regex> = LazyLock::new(|| pattern(r"[.!?;]+(?:\s|$)|[。！？；]"));

/// One of these stands in every sentence that counts.
static ABOUT_MEMORY: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?i)mem|v-?ram|\bg?ram\b|显|顯|内存|記憶體|GPU占用|メモリ|메모리|mémoire|mória|speicher|памят|pami[ęe]",
    )
});

/// What a sentence reports about memory.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Told {
    Growth,
    Retained,
}

fn told(sentence: &str) -> Option<Told> {
    if NO_REPORT.is_match(sentence) {
        None
    } else if GROWTH.is_match(sentence) {
        Some(Told::Growth)
    } else {
        RETAINED.is_match(sentence).then_some(Told::Retained)
    }
}

/// The first sentence of a line that reports growing or retained memory.
fn sentence_in(line: &str) -> Option<(Told, &str)> {
    if line.len() > LONGEST_LINE || !ABOUT_MEMORY.is_match(line) || split_prefix(line).0.is_some() {
        return None;
    }
    STOP.split(line).find_map(|sentence| told(sentence).map(|told| (told, sentence)))
}

/// Whether a line reports that memory grows during the run.
pub(crate) fn is_told(line: &str) -> bool {
    sentence_in(line).is_some_and(|(told, _)| told == Told::Growth)
}

/// The report of a person that memory grows, where the text has no error of a program: its line and what it says.
pub(crate) fn find(log: &Log) -> Option<(usize, Facts)> {
    if is_patch(log) {
        return None;
    }
    let lines = || (0..log.len().min(LINES_SEARCHED)).map(|index| (index, log.line(index)));
    let is_ended = || {
        lines().any(|(_, line)| {
            END.is_match(line) && !NO_REPORT.is_match(STOP.split(line).next().unwrap_or(line))
        })
    };
    let told: Vec<(usize, Told, &str)> = lines()
        .filter_map(|(index, line)| sentence_in(line).map(|(told, sentence)| (index, told, sentence)))
        .collect();
    let grown = told.iter().find(|(_, told, _)| *told == Told::Growth);
    let (index, _, sentence) = *grown.or_else(|| told.first().filter(|_| is_ended()))?;
    let is_host = HOST.is_match(sentence) && !DEVICE.is_match(sentence);
    let is_device = told.iter().any(|(_, _, sentence)| DEVICE.is_match(sentence));
    let resource = match (is_host, is_device) {
        (true, _) => Resource::Host,
        (false, true) => Resource::Device,
        (false, false) => Resource::Unknown,
    };
    let mut facts = Facts::new(Framework::Unknown, resource, &log.passage(index));
    let ended = is_ended();
    if is_host {
        facts.framework = Framework::Host;
        let summary = "The log says that host memory grows during the run";
        if ended {
            facts.state(Cause::HostMemory, Certainty::Likely, format!("{summary} until the run ends."));
        } else {
            facts.lead(Cause::HostMemory, format!("{summary}."));
        }
        let summary = "Each step may leave memory allocated, in the program or in its data-loader workers.";
        facts.state(Cause::Leak, Certainty::Possible, summary);
    } else if ended {
        let summary =
            "The log says that memory grows until the run ends: something from every step stays alive.";
        facts.state(Cause::Leak, Certainty::Likely, summary);
    } else {
        let summary =
            "The log says that memory grows during the run: something from every step may stay alive.";
        facts.lead(Cause::Leak, summary);
    }
    Some((index, facts))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cause(text: &str) -> Option<(Cause, Certainty)> {
        let (_, facts) = find(&Log::new(text))?;
        Some((facts.statements[0].cause, facts.statements[0].certainty))
    }

    #[test]
    fn growth_that_ends_the_run_is_a_leak() {
        for text in [
            "GPU memory keeps growing from one epoch to the next, and at epoch 5 training crashes",
            "My VRAM use goes up by 200MB per image until the card is full.",
            "the server never releases GPU memory after a request\nan hour later it dies",
            "显存越来越大，跑了三个小时就崩溃了",
            "La mémoire du GPU augmente à chaque pas, puis le programme plante",
            "Der GPU-Speicher wächst mit jedem Bild, irgendwann Absturz: out of memory",
            "GPUのメモリが増え続けて落ちます",
            "Видеопамять растёт с каждым шагом, потом программа падает",
            "A memória da GPU aumenta a cada passo até o programa travar, crash no fim",
        ] {
            assert_eq!(cause(text), Some((Cause::Leak, Certainty::Likely)), "{text}");
        }
        let text = "Memory of the GPU increases slowly in evaluation. Ideas?";
        assert_eq!(cause(text), Some((Cause::Leak, Certainty::Possible)));
    }

    #[test]
    fn growth_of_host_memory_is_about_the_host() {
        for text in [
            "CPU memory keeps increasing, after a night the machine hangs",
            "System RAM usage grows with every epoch until the box freezes. GPU memory is flat.",
            "训练时内存一直涨，最后机器卡死",
        ] {
            assert_eq!(cause(text), Some((Cause::HostMemory, Certainty::Likely)), "{text}");
        }
    }

    #[test]
    fn fixes_and_questions_of_principle_are_not_reports() {
        for text in [
            "GPU memory no longer grows with each epoch",
            "this fixed a memory leak that crashed the server",
            "Memory grows linearly with the number of tokens",
            "memory increases with the batch size until it is full",
            "Memory went from 4 GB to 6 GB with the second model and stays there.",
            "The loss increases every epoch until training crashes",
            "GPU memory is not released by the cache, which is normal",
        ] {
            assert_eq!(cause(text), None, "{text}");
        }
    }
}
