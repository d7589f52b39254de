//! The published schemes, units, and where errors point.

use proptest::prelude::*;

use super::*;

const INTERVAL: Duration = Duration::from_millis(100);

fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn one(line: &str) -> Scheme {
    parse(line, INTERVAL).unwrap().remove(0)
}

/// As published with DAMON in 2020.
#[test]
fn the_published_schemes_are_read() {
    let text = "
    # format: <min/max size> <min/max frequency (0-100)> <min/max age> <action>
    # ethp: Use huge pages if a region >2MB shows >5% access rate, use regular
    # pages if a region >2MB shows <5% access rate for >1 second
    2M null    5 null    null null    hugepage
    2M null    null 5    1s null      nohugepage

    # prcl: If a region >4KB shows <5% access rate for >5 seconds, page out.
    4K null    null 5    5s null      pageout
";
    let [huge, split, out] = &parse(text, INTERVAL).unwrap()[..] else { panic!() };
    let five = hz_of_percent(5.0);
    let all = Duration::ZERO..=Duration::MAX;
    let expected = Pattern { size: 2 << 20..=u64::MAX, hz: five..=f64::INFINITY, age: all };
    assert_eq!((&huge.pattern, &huge.action), (&expected, &Action::HugePage));
    let expected = Pattern { hz: 0.0..=five, age: s(1)..=Duration::MAX, ..expected };
    assert_eq!((&split.pattern, &split.action), (&expected, &Action::NoHugePage));
    let expected = Pattern { size: 4096..=u64::MAX, age: s(5)..=Duration::MAX, ..expected };
    assert_eq!((&out.pattern, &out.action), (&expected, &Action::PageOut));
}

#[test]
fn the_schemes_of_the_documentation_are_read() {
    let page = include_str!("../../../../docs/reference/schemes.md");
    let block = page.split("```").nth(3).unwrap();
    let schemes = parse(block, INTERVAL).unwrap();
    let actions: Vec<_> = schemes.iter().map(|s| s.action.name()).collect();
    assert_eq!(actions, ["hugepage", "nohugepage", "pageout", "migrate_cold", "migrate_hot"]);
}

#[test]
fn units_and_keywords() {
    let scheme = one("min 1GiB 2.5Hz 10% 500ms 1h stat");
    assert_eq!(scheme.pattern.size, 0..=1 << 30);
    assert_eq!(scheme.pattern.hz, 2.5..=hz_of_percent(10.0));
    assert_eq!(scheme.pattern.age, Duration::from_millis(500)..=s(3600));
    let shouted = one("MIN 1GIB 2.5HZ 10% 500MS 1H STAT");
    assert_eq!((shouted.pattern, shouted.action), (scheme.pattern, scheme.action));
    assert_eq!(one("0.5k 1.5G null NULL null null MigRate_Cold 1").pattern.size, 512..=3 << 29);
    let scheme = one("max max min min 20 2m cold # a comment");
    assert_eq!(scheme.pattern.size, u64::MAX..=u64::MAX);
    assert_eq!(scheme.pattern.hz, 0.0..=0.0);
    assert_eq!(scheme.pattern.age, s(2)..=s(120), "a plain age is in intervals");
}

#[test]
fn nodes_and_names() {
    let text = "null null null null null null migrate_hot 1
                    null null null null null null migrate_cold 0:2,3:1
                    null null null null null null migrate_hot 2";
    let schemes = parse(text, INTERVAL).unwrap();
    let nodes = [Destination { node: 0, weight: 2 }, Destination { node: 3, weight: 1 }];
    assert_eq!(schemes[1].action, Action::MigrateCold(Destinations(Arc::new(nodes))));
    let names: Vec<_> = schemes.iter().map(|s| &*s.name).collect();
    assert_eq!(names, ["migrate_hot", "migrate_cold", "migrate_hot-2"]);
}

fn wrong(text: &str) -> (usize, usize, ParseErrorKind) {
    let ParseError { line, column, what } = parse(text, INTERVAL).unwrap_err();
    (line, column, what)
}

#[test]
fn errors_point_at_line_and_column() {
    let word = str::to_owned;
    assert_eq!(wrong("\n4Q null 0 5 5s null stat"), (2, 1, ParseErrorKind::Size(word("4Q"))));
    assert_eq!(wrong("4K  null 0 105 5s null stat"), (1, 12, ParseErrorKind::Rate(word("105"))));
    assert_eq!(wrong("4K null 0 -1Hz 5s null stat"), (1, 11, ParseErrorKind::Rate(word("-1Hz"))));
    assert_eq!(wrong("4K null 0 5 5q null stat"), (1, 13, ParseErrorKind::Age(word("5q"))));
    assert_eq!(wrong("4K null 0 5 5s null eat"), (1, 21, ParseErrorKind::Action(word("eat"))));
    assert_eq!(wrong("4K null 0 5 5s null stat 7"), (1, 26, ParseErrorKind::Extra(word("7"))));
    assert_eq!(wrong("4K null 0 # 5"), (1, 10, ParseErrorKind::Missing("max-rate")));
    assert_eq!(wrong("0 9 0 5 5s null migrate_hot x"), (1, 29, ParseErrorKind::Nodes(word("x"))));
    assert!(matches!(wrong("9 8 0 5 5s null stat"), (1, 1, ParseErrorKind::Scheme(_))));
    assert!(matches!(wrong("0 9 0 5 0 9 migrate_hot 1:0"), (1, 13, ParseErrorKind::Scheme(_))));
    assert_eq!(
        wrong("4K null 0 5 5s null lock"),
        (1, 21, ParseErrorKind::FromInside(word("lock")))
    );
    let big = "17179869184G null 0 5 0 9 stat";
    assert_eq!(wrong(big), (1, 1, ParseErrorKind::Size(word("17179869184G"))));
}

proptest! {
    #[test]
    fn whatever_is_written_is_read_or_refused(text in r"[ #\n0-9KMGnulminaxstHz%:,.é-]{0,80}") {
        if let Ok(schemes) = parse(&text, INTERVAL) {
            prop_assert!(schemes.iter().all(|s| s.check().is_ok()));
        }
    }
}
