//! The language as a whole: printed programs parse back, any text is accepted or refused at a place, and the work is
//! bounded.

#[path = "language/acts.rs"]
mod acts;
#[path = "language/allocations.rs"]
mod allocations;
#[path = "language/lists.rs"]
mod lists;
#[path = "language/programs.rs"]
mod programs;

use std::path::Path;

use proptest::prelude::*;
use scenario::choose::{First, Random};
use scenario::limits::{FILE_BYTES_MAX, LINE_CHARACTERS_MAX};
use scenario::model::ModelWorld;
use scenario::run::run;
use scenario::script::{ScriptError, parse, parse_bytes, print, template};
use scenario::{Program, Verdict};

fn errors_of(text: &str, errors: &[ScriptError]) -> String {
    errors.iter().map(|error| error.render("test.scn", text)).collect::<Vec<_>>().join("\n")
}

/// Returns the program without line numbers.
fn without_lines(mut program: Program) -> Program {
    for step in &mut program.steps {
        step.line = 0;
    }
    if let Some(race) = &mut program.race {
        race.line = 0;
        for (line, _) in race.columns.iter_mut().flat_map(|column| &mut column.steps) {
            *line = 0;
        }
        for outcome in race.allowed.iter_mut().chain(&mut race.forbidden) {
            outcome.line = 0;
        }
    }
    program
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(3000) })]

    #[test]
    fn printed_programs_parse_back(head: u64, steps in prop::collection::vec(any::<u64>(), 0..40), race: u64) {
        let program = programs::program(head, &steps, race);
        let text = print(&program);
        let read = parse(&text).map_err(|errors| TestCaseError::fail(errors_of(&text, &errors)))?;
        prop_assert_eq!(read.len(), 1);
        let read = without_lines(read.into_iter().next().expect("there is one"));
        prop_assert!(read == program, "{}\n{:#?}\n{:#?}", text, program, read);
    }
}

#[test]
fn the_template_passes_and_is_read_back() {
    for title in ["a wait", "a \"quoted\" \\ title\nwith two lines", ""] {
        let text = template(title);
        let programs = parse(&text).unwrap_or_else(|errors| panic!("{}", errors_of(&text, &errors)));
        let ended = run(&programs[0], &mut ModelWorld::new(&programs[0], None), &mut First);
        assert_eq!(ended.verdict, Verdict::Passed);
        assert!(ended.unchecked.is_empty());
        assert_eq!(
            without_lines(parse(&print(&programs[0])).unwrap().remove(0)),
            without_lines(programs[0].clone())
        );
    }
}

/// Returns files of the corpus, and of this test, to be corrupted.
fn seeds() -> Vec<String> {
    let mut seeds = vec![
        template("a wait"),
        LITMUS.into(),
        "scenario \"m\"\nmatrix v = 1 2 2^63 max \"a b\"\nmatrix f = none any\ngiven c = ok when v below 2 and f is any\n\
         given c = INVALID_PARAMETER otherwise\nprocess p\np D = device -> ok\np F = fence D initial=$v $f -> $c\n"
            .into(),
    ];
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/scenarios")];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = std::fs::read_dir(&folder) else { continue };
        let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        for path in paths {
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "scn") {
                seeds.push(std::fs::read_to_string(path).unwrap());
            }
        }
    }
    for head in 0..20 {
        let steps: Vec<u64> = (0..20).map(|step| head * 100 + step).collect();
        seeds.push(print(&programs::program(head, &steps, head)));
    }
    seeds
}

const LITMUS: &str = "litmus \"store and wait\"\nprocess p\nprocess q\np D = device -> ok\np F = fence D shared -> ok\n\
    p N = share F -> ok\nq E = device -> ok\nq G = open E N -> ok\nrace p | q\n W = wait D F>=1 -> ok | signal E G=1 -> ok\n\
     | r = read G\nallowed W=returned r=1 F=1\nforbidden W=asleep, r=0\n";

const PIECES: [&str; 24] = [
    "$",
    "$$$$x",
    "\"",
    "\\",
    "->",
    ">=",
    "=",
    "|",
    ",",
    "(",
    ")",
    "+",
    "99999999999999999999999",
    "0x",
    "2^64",
    "2^63",
    "\t",
    "\r",
    "\u{FEFF}",
    "\u{202E}",
    "\0",
    "#",
    "none",
    "\n",
];

/// Makes one change to a text, as a careless edit would.
fn spoil(text: &mut Vec<u8>, random: &mut Random) {
    let words: Vec<(usize, usize)> = words(text);
    let word = random.pick(&words).copied().unwrap_or((0, 0));
    let other = random.pick(&words).copied().unwrap_or((0, 0));
    match random.below(9) {
        0 => drop(text.drain(word.0..word.1)),
        1 => {
            let copy = [b" ", &text[word.0..word.1]].concat();
            text.splice(word.1..word.1, copy);
        }
        2 => {
            let moved = text[other.0..other.1].to_vec();
            text.splice(word.0..word.1, moved);
        }
        3 => {
            let piece = random.pick(&PIECES).expect("there are some");
            text.splice(word.0..word.1, piece.bytes());
        }
        4 => {
            let piece = random.pick(&PIECES).expect("there are some");
            text.splice(word.1..word.1, piece.bytes());
        }
        5 => {
            let byte = random.number() as u8;
            let at = random.below(text.len() as u64 + 1) as usize;
            text.insert(at, byte);
        }
        6 => text.truncate(word.1),
        7 => {
            let digits = "9".repeat(random.below(400) as usize);
            text.splice(word.0..word.1, digits.bytes());
        }
        _ => {
            let line: Vec<u8> =
                text.split(|byte| *byte == b'\n').nth(random.below(20) as usize).unwrap_or(b"").into();
            text.extend(
                line.iter().chain(b"\n").copied().collect::<Vec<u8>>().repeat(1 + random.below(3) as usize),
            );
        }
    }
}

fn words(text: &[u8]) -> Vec<(usize, usize)> {
    let mut words = Vec::new();
    let mut begin = None;
    for (at, byte) in text.iter().chain(b" ").enumerate() {
        match (byte.is_ascii_whitespace(), begin) {
            (true, Some(start)) => {
                words.push((start, at));
                begin = None;
            }
            (false, None) => begin = Some(at),
            _ => {}
        }
    }
    words
}

/// Checks that every error is inside the file, and that no control characters reach the terminal.
#[track_caller]
fn check_places(bytes: &[u8], errors: &[ScriptError]) {
    let text = String::from_utf8_lossy(bytes);
    let lines = text.lines().count() as u32;
    assert!(!errors.is_empty());
    for error in errors {
        let span = error.span;
        assert!((1..=lines + 1).contains(&span.line) && span.column >= 1 && span.width >= 1, "{error:?}");
        let line = text.lines().nth(span.line as usize - 1).unwrap_or_default();
        assert!(span.column as usize <= line.chars().count() + 1, "{error:?} {line:?}");
        let rendered = error.render("test\x1b.scn", &text);
        assert!(rendered.chars().all(|letter| letter == '\n' || !letter.is_control()), "{rendered:?}");
        assert!(rendered.len() < 8000, "{}", rendered.len());
    }
}

#[test]
fn spoiled_files_are_read_or_refused_in_place() {
    let seeds = seeds();
    let (mut read, mut refused) = (0, 0);
    for seed in 0..20_000 {
        let mut random = Random::new(seed);
        let mut bytes = random.pick(&seeds).expect("there are some").clone().into_bytes();
        for _ in 0..=random.below(4) {
            spoil(&mut bytes, &mut random);
        }
        match parse_bytes(&bytes) {
            Ok(programs) => {
                read += 1;
                assert!(!programs.is_empty());
                let printed = print(&programs[0]);
                let again =
                    parse(&printed).unwrap_or_else(|errors| panic!("{}", errors_of(&printed, &errors)));
                assert_eq!(print(&again[0]), printed);
            }
            Err(errors) => {
                refused += 1;
                check_places(&bytes, &errors);
            }
        }
    }
    assert!(read > 500 && refused > 5000, "{read} read, {refused} refused");
}

/// Returns files that would take a careless parser much time or memory.
fn heavy(bytes: usize) -> Vec<String> {
    let fill = |head: &str, line: &str| {
        let lines = (bytes - head.len()) / line.len();
        format!("{head}{}", line.repeat(lines))
    };
    let many = |line: &dyn Fn(usize) -> String| {
        let mut text = String::from("scenario \"x\"\nprocess p\n");
        for at in 0.. {
            let line = line(at);
            if text.len() + line.len() > bytes {
                break;
            }
            text += &line;
        }
        text
    };
    let line = LINE_CHARACTERS_MAX - 40;
    vec![
        fill("scenario \"x\"\n", "expect nothing left\n"),
        fill("scenario \"x\"\n", "process p\n"),
        fill("", "scenario \"x\"\n"),
        fill("scenario \"x\"\n", "+1ns\n"),
        fill("scenario \"x\"\n", "tags a\n"),
        fill("scenario \"x\"\n", "((((((((((((((((((\n"),
        fill("scenario \"x\"\n", "\"\n"),
        fill("scenario \"x\"\n", "$$$$$$$$$$$$\n"),
        fill("", "\n"),
        fill("", "# nothing\n"),
        fill("scenario \"x\"\nprocess p\nmatrix a = 1\n", &format!("p {}\n", "$a ".repeat(line / 3))),
        fill("scenario \"x\"\n", &format!("given b = {} otherwise\n", "x ".repeat(line / 2))),
        "x".repeat(bytes),
        format!("scenario \"{}\"", "x".repeat(bytes - 20)),
        many(&|at| format!("matrix a{at} = 1 2\n")),
        many(&|at| format!("p F{at} = event\n")),
        many(&|at| format!("p {}{at} = fence D -> ok\n", "x".repeat(50))),
        many(&|at| format!("p wait D {}{at}>=1 -> ok\n", "x".repeat(9000))),
    ]
}

#[test]
fn work_grows_no_faster_than_the_file() {
    for (small, big) in heavy(FILE_BYTES_MAX / 16).iter().zip(&heavy(FILE_BYTES_MAX)) {
        let ((small_count, small_bytes), (count, bytes)) = (allocations::of(small), allocations::of(big));
        let begin = &big[..big.len().min(60)];
        assert!(count <= 20 * small_count + 2000, "{count} allocations, {small_count} for a 16th: {begin:?}");
        assert!(bytes <= 20 * small_bytes + (1 << 20), "{bytes} bytes, {small_bytes} for a 16th: {begin:?}");
        assert!(bytes <= 700 * FILE_BYTES_MAX, "{bytes} bytes: {begin:?}");
    }
}
