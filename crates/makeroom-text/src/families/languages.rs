//! "Not enough memory" and "cannot allocate memory" in languages other than English, as operating systems, drivers and
//! programs translate them.
//!
//! The words of a person are not told from an error by grammar here, so a line with the words of a question is not
//! read, and a line counts only with a mark of an error, or in a text that has hardly anything else.

use std::sync::LazyLock;

use makeroom_core::Framework;
use makeroom_explain::{Cause, Certainty};
use makeroom_search::{Regex, pattern};

use super::generic::is_error;
use super::phrases::is_in_patch;
use crate::facts::{Facts, Resource};
use crate::family::Family;
use crate::log::Passage;

pub(crate) const FAMILY: Family = Family {
    anchors: &[
        "内存",
        "显存",
        "記憶體",
        "顯存",
        "メモリ",
        "메모리",
        "speicher",
        "émoire",
        "memoria",
        "memória",
        "памят",
        "pamięci",
        "belle",
        "geheugen",
        "minne",
        "bộ nhớ",
        "paměti",
        "hukommelse",
        "пам'ят",
        "الذاكرة",
    ],
    read,
};

/// Memory ran out, or could not be allocated.
static SHORT: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?ix)
        (?:显存|内存|記憶體|顯存|顯示記憶體) .{0,4}? (?:不足|不够|不夠|溢出|耗尽|耗盡|已满|已滿|用完|分配失败|申请失败|配置失敗) | (?:无法|不能|未能|無法|失败) .{0,4}? (?:分配|申请|配置) .{0,10}? (?:内存|显存|記憶體) | 爆显存
      | メモリー? .{0,2}? (?:不足|が?足り(?:ない|ません)|枯渇) | メモリー?を?.{0,6}?(?:確保|割り当て).{0,4}?でき(?:ない|ません)
      | 메모리 .{0,2}? \s? 부족 | 메모리를? \s 할당할 \s 수 \s 없
      | \b(?:nicht \s (?:genügend|genug|ausreichend)|zu \s wenig|kein(?:en)? (?:\s freie[rn])?|unzureichender?) \s (?:freier \s)? (?:\w*speicher|RAM|VRAM)\b | \bSpeichermangels?\b | \b\w*speicher \s (?:ist \s)? (?:voll|erschöpft|reicht \s nicht|nicht \s ausreichend) | \bSpeicher \s (?:konnte \s)? (?:kann \s)? nicht \s (?:zugewiesen|reserviert|angefordert|alloziert|belegt)
      | \bmémoire \s (?:\w+ \s){0,2} (?:insuffisante|épuisée|saturée|pleine) | \b(?:pas \s assez|manque|plus) \s de \s (?:mémoire|RAM|VRAM)\b | \b(?:impossible|incapable) \s d['’]allouer \s .{0,20} mémoire
      | \bmemoria \s (?:\w+ \s){0,3} (?:insuficiente|agotada|llena|insufficiente|esaurita) | \b(?:falta \s de|sin|no \s hay \s suficiente|no \s queda) \s memoria\b | \bno \s se \s (?:pudo|puede|ha \s podido) \s (?:asignar|reservar) \s (?:\w+ \s){0,2} memoria | \bimpossibile \s allocare \s .{0,12} memoria
      | \bmemória \s (?:\w+ \s){0,3} (?:insuficiente|esgotada|cheia) | \b(?:falta \s de|sem) \s memória\b | \bnão \s (?:foi \s possível|pode|consegue) \s alocar \s .{0,12} memória
      | (?:недостаточно|нехватка|не \s хватает|не \s хватило|мало|недостатньо) \s (?:\w+ \s){0,2} (?:видео)? пам['я]? \w* | (?:не \s удалось|невозможно|не \s уда[её]тся|не \s могу|не \s может) \s (?:\w+ \s)? выделить \s (?:\w+ \s){0,2} (?:видео)? память | память \s (?:исчерпана|закончилась)
      | (?:za \s mało|brak|niewystarczając\w+|zabrakło) \s (?:\w+ \s){0,2} pamięci | nie \s można \s przydzielić \s pamięci
      | \byetersiz \s (?:\w+ \s){0,2} belle[kğ]\w* | \bbellek \s (?:yetersiz|ayrılamadı|doldu)
      | \bonvoldoende \s (?:\w+ \s)? \w*geheugen | \bgeen \s geheugen \s (?:toewijzen|beschikbaar|meer) | \bgeheugen \s (?:is \s)? vol\b
      | \bslut \s på \s \w*minne | \botillräckligt \s (?:\w+ \s)? \w*minne | \bkan \s inte \s (?:allokera|tilldela) \s minne | \bikke \s nok \s (?:\w+ \s)? (?:\w*minne|hukommelse)
      | (?:không \s đủ|hết) \s bộ \s nhớ | \bnedostatek \s paměti | \bnelze \s (?:alokovat|přidělit) \s paměť
      | (?:نفاد|نفدت) \s الذاكرة | الذاكرة \s غير \s كافية
        ",
    )
});
/// The words for an error, and for a process that was ended.
static MARK: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?i)错误|錯誤|失败|异常|终止|退出|崩溃|杀死|殺死|エラー|失敗|例外|終了|오류|에러|실패|fehler|abbruch|abgebrochen|beendet|erreur|échec|échoué|tué|errore|erro\b|fallo|terminad|morto|ошибка|сбой|убит|заверш|błąd|hata|fout|fel:|lỗi|chyba|خطأ|CUDA|\bGPU\b|errno",
    )
});
/// A person asks, or reports in a sentence.
static QUESTION: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?i)[?？]|怎么|如何|请问|為什麼|为什么|能否|是否|吗|可以|建议|どう|ですか|教えて|어떻게|까요|나요|\b(?:wie|warum|wieso|comment|pourquoi|cómo|por qué|perché|falls|wenn|quando|cuando)\b|\bsi (?:la|le|vous|tu|el|tu|hay)\b|\bse (?:a|o|la|il|você)\b|\b(?:как|почему|если|чтобы)\b|如果|避免|防止|可能|もし|ながら|場合",
    )
});
static DEVICE: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?i)显存|顯存|顯示記憶體|ビデオ|\bGPU|GPU|CUDA|VRAM|grafikspeicher|videospeicher|vidéo|v[ií]deo|видео|grafikminne|videogeheugen",
    )
});
/// A text with at most this many lines is the message itself.
const SHORTEST_TEXT: usize = 2;

fn read(passage: &Passage<'_>) -> Option<Facts> {
    let line = passage.line();
    if !SHORT.is_match(line) || QUESTION.is_match(line) || is_in_patch(passage) {
        return None;
    }
    let is_marked = MARK.is_match(line) || is_error(line) || is_error(passage.prefix());
    if !is_marked && passage.all().count() > SHORTEST_TEXT {
        return None;
    }
    let is_device = DEVICE.is_match(line);
    let resource = if is_device { Resource::Device } else { Resource::Unknown };
    let mut facts = Facts { resource, ..Facts::new(Framework::Unknown, resource, passage) };
    // The words of the C library for errno 12.
    if !is_device && is_of_system(line) {
        facts.framework = Framework::Host;
        facts.state(
            Cause::HostMemory,
            Certainty::Likely,
            "The operating system could not provide host memory. The GPU is not involved.",
        );
    }
    Some(facts)
}

/// Whether the operating system reports it: the words follow a call's name or an error number.
fn is_of_system(line: &str) -> bool {
    static SYSTEM: LazyLock<Regex> = LazyLock::new(|| {
        pattern(
            r"(?i)\bErrno 12\b|\b(?:fork|mmap|malloc|brk|clone|bash|sh|zsh|ld|git|tar)\w*\s?:|终止|杀死|殺死|終了|종료|beendet|getötet|tué|terminad|morto|убит",
        )
    });
    SYSTEM.is_match(line)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::find::facts_in;

    #[test]
    fn shortage_in_many_languages() {
        for text in [
            "错误：显存耗尽",
            "エラー: GPUメモリが足りません",
            "오류: GPU 메모리가 부족하여 종료",
            "Fehler: zu wenig Grafikspeicher",
            "Erreur : mémoire vidéo épuisée",
            "Error: memoria de la GPU agotada",
            "Erro: memória da GPU insuficiente",
            "Ошибка: не хватает видеопамяти",
            "Błąd: brak pamięci GPU",
            "Fout: onvoldoende GPU geheugen",
        ] {
            let facts = facts_in(text).unwrap_or_else(|| panic!("not read: {text}"));
            assert_eq!(facts.resource, Resource::Device, "{text}");
        }
        for text in [
            "fork: Nicht genügend Speicher",
            "mmap: Impossible d'allouer de la mémoire",
            "bash: fork: 无法分配内存",
        ] {
            let facts = facts_in(text).unwrap_or_else(|| panic!("not read: {text}"));
            assert_eq!(facts.statements[0].cause, Cause::HostMemory, "{text}");
        }
    }

    #[test]
    fn questions_and_other_uses_of_the_word_are_not_read() {
        for text in [
            "显存不足怎么办",
            "如果内存不足，请减小批次",
            "Was tun, wenn der Speicher voll ist?",
            "¿Qué hago si la memoria es insuficiente?",
            "Nicht genügend Speicherplatz auf dem Datenträger",
            "la memoria de la GPU es de 8 GB",
        ] {
            assert!(facts_in(text).is_none_or(|facts| !facts.is_failure()), "{text}");
        }
    }
}
