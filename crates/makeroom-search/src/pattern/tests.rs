//! Tests that patterns behave like those of the `regex` crate and are compiled only when necessary.

use proptest::prelude::*;

use super::*;

#[test]
fn a_text_without_the_words_does_not_compile_the_pattern() {
    let regex = Regex::new(r"(?i)\bask(\d)".to_owned());
    assert!(!regex.is_match("as 3") && regex.captures("as3").is_none());
    assert_eq!(regex.replace_all("nothing", |_| "x"), "nothing");
    assert_eq!(regex.split("a whole").collect::<Vec<_>>(), ["a whole"]);
    assert_eq!(regex.find_iter("none").count() + regex.captures_iter("none").count(), 0);
    assert!(!regex.is_compiled());
}

#[test]
fn a_pattern_is_compiled_for_a_long_text() {
    let regex = Regex::new(r"(?i)\bask(?P<number>\d)(x)?".to_owned());
    assert!(!regex.is_match("task3") && regex.is_match("ASK3") && regex.captures("task3").is_none());
    let found = regex.captures_at("ask3 or ASK4", 1).unwrap();
    assert_eq!((&found[0], &found["number"], &found[2], found.name("no")), ("ASK4", "4", "", None));
    assert_eq!(
        regex.captures_iter("ask3, ask4").map(|found| found[1].to_owned()).collect::<Vec<_>>(),
        ["3", "4"]
    );
    assert_eq!(regex.find("an ask1").map(|found| found.range()), Some(3..7));
    assert_eq!(regex.split("one ask1 two").collect::<Vec<_>>(), ["one ", " two"]);
    assert_eq!(regex.replace_all("one ask1 two", str::to_uppercase), "one ASK1 two");
    assert!(!regex.is_compiled());
    assert!(!regex.is_match(&"task3 ".repeat(4000)) && regex.is_compiled());
    assert_eq!(regex.captures("ask3 or ASK4").unwrap()["number"], *"3");
}

#[test]
fn a_set_is_compiled_for_a_text_with_a_word_of_any_pattern() {
    let set = RegexSet::new(vec![r"\bone \d".to_owned(), r"\btwo \d".to_owned()]);
    assert_eq!(set.matches("three 3"), [0; 0]);
    assert!(set.general.get().is_none() && set.for_ascii.get().is_none());
    assert_eq!(set.matches("two 2, one 1"), [0, 1]);
    assert_eq!(set.matches("two 2"), [1]);
}

#[test]
fn letters_that_fold_to_ascii_match() {
    for text in ["a\u{17f}k", "as\u{212a}"] {
        assert!(Regex::new("(?i)ask".to_owned()).is_match(text), "{text}");
    }
}

#[test]
fn a_long_log_compiles_the_pattern() {
    let regex = Regex::new("never in the log".to_owned());
    let line = "step 12 loss 0.25";
    assert!(!regex.is_match(line) && !regex.is_compiled());
    for _ in 0..=SEARCHED_BEFORE_COMPILING / line.len() {
        assert!(!regex.is_match(line));
    }
    assert!(regex.is_compiled());
}

#[test]
fn a_text_in_ascii_does_not_compile_the_general_pattern() {
    let regex = Regex::new(r"(?i)\bgröße|size \d+".to_owned());
    assert!(regex.find("Size 3").is_some() && regex.general.get().is_none());
    assert!(regex.is_match("Größe") && regex.general.get().is_some());
    let set = RegexSet::new(vec![r"größe".to_owned(), r"size \d".to_owned()]);
    assert_eq!(set.matches("size 3"), [1]);
    assert!(set.general.get().is_none());
    assert_eq!(set.matches("größe, size 3"), [0, 1]);
}

#[test]
fn a_pattern_without_a_form_for_ascii_matches_texts_in_ascii() {
    let regex = Regex::new(r"\p{Letter}+ (\d)".to_owned());
    assert_eq!(&regex.captures("count 7").unwrap()[1], "7");
}

/// The groups of every match, as byte ranges.
type Groups = Vec<Vec<Option<(usize, usize)>>>;

fn groups(regex: &Regex, text: &str) -> Groups {
    let range = |group: Option<Match<'_>>| group.map(|group| (group.start(), group.end()));
    regex.captures_iter(text).map(|found| found.iter().map(range).collect()).collect()
}

fn reference_groups(regex: &regex::Regex, text: &str) -> Groups {
    let range = |group: Option<regex::Match<'_>>| group.map(|group| (group.start(), group.end()));
    regex.captures_iter(text).map(|found| found.iter().map(range).collect()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// The texts of most cases exceed the limits of the NFAs, so NFAs and compiled patterns are both compared.
    #[test]
    fn patterns_match_like_those_of_the_regex_crate(
        texts in prop::collection::vec(
            "[ -~\n]{0,40}|(?i:(pytorch|out of|größe|显存|x|ks|ſ)[ 0-9a-z]{0,9}){0,5}|(oom and 2 kx ){0,250}",
            12,
        ),
    ) {
        for source in ascii::tests::SOURCES {
            let (ours, reference) = (Regex::new(source.to_owned()), regex::Regex::new(source).unwrap());
            for (number, text) in texts.iter().enumerate() {
                // Any of these calls may be the first for a text, and so choose how it is searched.
                match number % 3 {
                    0 => prop_assert_eq!(ours.is_match(text), reference.is_match(text), "{} in {}", source, text),
                    1 => {
                        let ranges = (ours.find(text).map(|found| found.range()), reference.find(text).map(|found| found.range()));
                        prop_assert_eq!(ranges.0, ranges.1, "{} in {}", source, text);
                    }
                    _ => {
                        let start = text.char_indices().nth(1).map_or(0, |(start, _)| start);
                        let from = (
                            ours.captures_at(text, start).and_then(|found| found.get(0)).map(|found| found.range()),
                            reference.captures_at(text, start).and_then(|found| found.get(0)).map(|found| found.range()),
                        );
                        prop_assert_eq!(from.0, from.1, "{} in {}", source, text);
                    }
                }
                prop_assert_eq!(groups(&ours, text), reference_groups(&reference, text), "{} in {}", source, text);
                let parts: (Vec<&str>, Vec<&str>) = (ours.split(text).collect(), reference.split(text).collect());
                prop_assert_eq!(parts.0, parts.1, "{} in {}", source, text);
                let replaced = (ours.replace_all(text, |_| "new"), reference.replace_all(text, "new"));
                prop_assert_eq!(replaced.0, replaced.1, "{} in {}", source, text);
            }
        }
    }
}
