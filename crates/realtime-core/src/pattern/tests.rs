use proptest::prelude::*;

use super::*;

const LIMIT: usize = 65_536;

fn wide() -> Letters {
    Letters::Wide {
        dotted_i: "i\u{307}".into(),
        kelvin: "k".into(),
    }
}

fn pattern(style: Style, source: &str, letters: &Letters) -> Result<Pattern, PatternError> {
    Pattern::new(style, source, letters, LIMIT)
}

fn matches(style: Style, source: &str, text: &str) -> bool {
    pattern(style, source, &Letters::Ascii)
        .unwrap_or_else(|error| panic!("{source}: {error}"))
        .matches(text)
}

#[test]
fn like_matches_the_whole_text() {
    for (source, yes, no) in [
        ("", &[""][..], &["a"][..]),
        ("a", &["a"], &["", "ab", "A"]),
        ("%", &["", "a\nb", "é"], &[]),
        ("a%", &["a", "ab"], &["ba", ""]),
        ("%a", &["a", "ba"], &["ab"]),
        ("%a%", &["a", "bab"], &["b"]),
        ("a%a", &["aa", "aba"], &["a"]),
        ("_", &["é", "\n", "😀"], &["", "ab"]),
        ("%_", &["a", "ab"], &[""]),
        ("_%b_c%_", &["xbéc1", "xxbxcb.c9"], &["bxc", "xbxc", "xbc1"]),
        ("%é_%", &["aéb", "éé"], &["é", "aé"]),
        (r"\%\_\\\a", &[r"%_\a"], &["xxxx"]),
        (r"%\%%", &["5%"], &["5"]),
        ("a%b%c", &["abc", "axbxc", "abcbc"], &["acb", "abcb"]),
        ("%aa%aa%", &["aaaa"], &["aaa"]),
    ] {
        for text in yes {
            assert!(matches(Style::Like, source, text), "{source} on {text:?}");
        }
        for text in no {
            assert!(!matches(Style::Like, source, text), "{source} on {text:?}");
        }
    }
    assert!(matches(Style::ILike, "%ÄB_", "xÄbÄ"));
    assert!(!matches(Style::ILike, "%ÄB_", "xäbÄ"), "C folds ASCII alone");
}

#[test]
fn letters_of_the_collation_decide_what_case_is() {
    let like = |source, letters: &Letters, text: &str| {
        pattern(Style::ILike, source, letters).map(|pattern| pattern.matches(text))
    };
    assert_eq!(
        like("i_k", &wide(), "İK"),
        Ok(true),
        "two characters in lower case"
    );
    assert_eq!(like("_k", &wide(), "\u{212a}"), Ok(false));
    assert_eq!(like("_k", &wide(), "Ä\u{212a}"), Ok(true));
    assert_eq!(like("%k", &Letters::Ascii, "\u{212a}"), Ok(false));
    assert_eq!(like("ä", &wide(), "Ä"), Err(PatternError::WideLetters));
    assert_eq!(
        like("a", &Letters::Unknown, "A"),
        Err(PatternError::UnknownLetters)
    );
    let imatch = pattern(Style::IMatch, "^[a-c]k$", &wide()).unwrap();
    assert!(imatch.matches("BK") && !imatch.matches("b\u{212a}"));
    assert!(
        pattern(Style::Match, "^ä", &Letters::Unknown)
            .unwrap()
            .matches("äb")
    );
}

#[test]
fn regular_expressions_match_anywhere() {
    for (source, yes, no) in [
        ("b", &["abc"][..], &["ac", "B"][..]),
        ("^b", &["b", "bc"], &["ab", "a\nb"]),
        ("b$", &["ab"], &["b\n", "ba"]),
        (r"\Ab\Z", &["b"], &["ab", "ba"]),
        ("a.c", &["a\nc", "xaécx"], &["ac"]),
        ("^(a|bc)+$", &["a", "bca"], &["b", ""]),
        ("^(?:a|)$", &["a", ""], &["b"]),
        ("^a{2}$", &["aa"], &["a", "aaa"]),
        ("^a{2,}$", &["aa", "aaa"], &["a"]),
        ("^a{1,2}?$", &["a", "aa"], &["", "aaa"]),
        ("^[]a-c-]+$", &["]a-b"], &["d"]),
        ("^[^]a]+$", &["b\n-"], &["]", "a"]),
        (r"^[\]\-\\\d]+$", &[r"]-\5"], &["d"]),
        (r"^\d\w\s\D\W\S$", &["1_ a-é"], &["aaaaaa"]),
        (r"\.\*\t", &[".*\t"], &["aa\t"]),
        ("^é{2}$", &["éé"], &["é"]),
        ("^[а-я]$", &["б"], &["Б"]),
        ("", &["", "a"], &[]),
        ("()", &["", "a"], &[]),
        ("}]", &["}]"], &[""]),
    ] {
        for text in yes {
            assert!(matches(Style::Match, source, text), "{source} on {text:?}");
        }
        for text in no {
            assert!(!matches(Style::Match, source, text), "{source} on {text:?}");
        }
    }
    assert!(matches(Style::IMatch, "^[^a]B[x-z]$", "ÄbX"));
    assert!(!matches(Style::IMatch, "^[^a]$", "A"));
}

/// The list of the module's documentation.
#[test]
fn what_could_mean_another_thing_is_refused_by_name() {
    for (source, name) in [
        (r"(a)\1", "a back-reference"),
        ("a(?=b)", "lookahead"),
        ("a(?!b)", "lookahead"),
        ("(?<=a)b", "lookbehind"),
        ("(?<!a)b", "lookbehind"),
        (r"\yfoo", "a word limit"),
        (r"\mfoo\M", "a word limit"),
        ("(?i)foo", "an embedded option"),
        ("(?P<a>b)", "an embedded option"),
        ("***=foo", "a director"),
        ("***:foo", "a director"),
        ("[[:alpha:]]", "a class"),
        ("[[.a.]]", "a class"),
        ("[[=a=]]", "a class"),
        (r"[\D]", "a class"),
        (r"\x41", "this escape"),
        (r"\u0041", "this escape"),
        (r"\Babc", "this escape"),
        ("a{x}", "a bound"),
        ("{1}", "an unescaped {"),
        ("a**", "a quantifier"),
        ("a++", "a quantifier"),
        ("a+{2}", "a quantifier"),
        ("*a", "a quantifier"),
        ("^*", "a quantifier"),
        ("a{256}", "a bound"),
        ("a{2,1}", "a bound"),
        ("a{1", "a bound"),
        ("(a", "a parenthesis"),
        ("a)", "a parenthesis"),
        ("[a", "a bracket"),
        ("[]", "a bracket"),
        ("[c-a]", "a range"),
        ("[a-c-e]", "an unescaped -"),
    ] {
        let error = pattern(Style::Match, source, &Letters::Ascii)
            .unwrap_err()
            .to_string();
        assert!(error.contains(name), "{source}: {error}");
    }
    for source in [r"\d", r"[\w]", r"\s"] {
        let error = pattern(Style::Match, source, &wide()).unwrap_err();
        assert!(matches!(error, PatternError::Unsupported(_)), "{source}: {error}");
    }
    assert_eq!(
        pattern(Style::Match, "[а-я]", &Letters::Unknown).unwrap_err(),
        PatternError::UnknownLetters
    );
    assert_eq!(
        pattern(Style::Match, "a\\", &Letters::Ascii).unwrap_err(),
        PatternError::OpenEscape
    );
    assert_eq!(
        pattern(Style::Like, "%a\\", &Letters::Ascii).unwrap_err(),
        PatternError::OpenEscape
    );
    let deep = "(".repeat(60) + &")".repeat(60);
    assert!(pattern(Style::Match, &deep, &Letters::Ascii).is_err());
}

#[test]
fn what_would_cost_too_much_is_refused_by_its_limit() {
    let too_complex = PatternError::TooComplex { bytes_max: LIMIT };
    for source in [
        "(a{255}){255}",
        "(a|b)*a(a|b){20}",
        "(.{200}){200}",
        "(((a{250}){250}){250}){250}",
    ] {
        assert_eq!(
            pattern(Style::Match, source, &Letters::Ascii).unwrap_err(),
            too_complex,
            "{source}"
        );
    }
    let part = format!("%{}_%", "a".repeat(64));
    assert_eq!(
        pattern(Style::Like, &part, &Letters::Ascii).unwrap_err(),
        PatternError::LongPart { chars_max: 64 }
    );
    assert!(matches(Style::Like, &part[1..], &"a".repeat(65)));
    assert!(
        pattern(Style::Match, "^[0-9]{4}-[0-9]{2}-[0-9]{2}$", &wide())
            .unwrap()
            .bytes()
            < LIMIT
    );
    let bytes = |style, source| pattern(style, source, &wide()).unwrap().bytes();
    assert_eq!(
        (bytes(Style::Like, "%a%"), bytes(Style::Match, "a")),
        (1_024, 4_096)
    );
}

#[test]
fn a_pattern_is_never_shown() {
    for style in [Style::Like, Style::IMatch] {
        let shown = format!("{:?}", pattern(style, "s3cret", &Letters::Ascii).unwrap());
        assert!(!shown.contains("s3cret"), "{shown}");
    }
}

/// `like` by its definition.
fn on_paper(pattern: &[char], text: &[char]) -> bool {
    match pattern {
        [] => text.is_empty(),
        ['%', rest @ ..] => (0..=text.len()).any(|at| on_paper(rest, &text[at..])),
        ['_', rest @ ..] => !text.is_empty() && on_paper(rest, &text[1..]),
        [c, rest @ ..] => text.first() == Some(c) && on_paper(rest, &text[1..]),
    }
}

proptest! {
    #[test]
    fn like_is_its_definition(source in "[abé%_]{0,8}", text in "[abé]{0,10}") {
        let chars = |text: &str| text.chars().collect::<Vec<_>>();
        prop_assert_eq!(matches(Style::Like, &source, &text), on_paper(&chars(&source), &chars(&text)));
    }

    #[test]
    fn nothing_panics(style in 0..4usize, source in "[a-c()\\[\\]{}|*+?.^$\\\\,0-9:=!<_%é-]{0,30}", text in ".{0,20}") {
        let style = [Style::Like, Style::ILike, Style::Match, Style::IMatch][style];
        for letters in [Letters::Ascii, Letters::Unknown, wide()] {
            if let Ok(pattern) = pattern(style, &source, &letters) {
                pattern.matches(&text);
            }
        }
    }
}
