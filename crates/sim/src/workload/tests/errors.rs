use super::*;

const GOOD: &str = r#"
about = "two"
region = [{ name = "a", size = "4M" }, { name = "b", size = "8M", gap = "1M" }]
[[phase]]
name = "one"
duration = "1s"
access = [{ region = "a", rate = 1 }, { region = "b", rate = 2 }]
"#;

/// With `from` replaced by `to`, the workload is refused, with all of `said` in the error.
fn assert_refused(from: &str, to: &str, said: &[&str]) {
    assert!(GOOD.contains(from), "{from}");
    let error = Workload::parse(&GOOD.replace(from, to)).map(|w| format!("{w:?}")).unwrap_err();
    let text = error.to_string();
    for part in said {
        assert!(text.contains(part), "{to}: {part} is not in: {text}");
    }
}

#[test]
fn the_unchanged_text_is_valid() {
    let w = Workload::parse(GOOD).unwrap();
    let a = &w.phases[0].accesses[0];
    assert_eq!((a.op, a.order, a.threads, w.islands), (Op::Read, Order::Random, 1, 16));
}

#[test]
fn unknown_keys_and_words_are_reported_with_their_line() {
    assert_refused("gap =", "gape =", &["line 3", "gape", "`gap`"]);
    assert_refused("\"4M\"", "\"4Q\"", &["line 3", "K, M, G or T"]);
    assert_refused("\"1s\"", "\"1 parsec\"", &["as in 20ms"]);
    assert_refused("rate = 1 ", "rate = \"most\" ", &["max"]);
    assert_refused("rate = 1 ", "rate = 1, op = \"look\" ", &["read", "write"]);
    let zipf = "rate = 1, order = { zipf = { exponent = 1, block = \"1M\", k = 3 } } ";
    assert_refused("rate = 1 ", zipf, &[": k, ", "exponent, block"]);
    assert_refused("rate = 1 ", "rate = 1, order = \"backwards\" ", &["sequential"]);
}

#[test]
fn invalid_values_are_refused_with_a_valid_one() {
    assert_refused("\"a\", size", "\"b\", size", &["\"b\"", "region", "another"]);
    assert_refused("name = \"one\"", "name = \"\"", &["phase", "another"]);
    assert_refused("\"4M\"", "\"4000\"", &["4000", "region a", "multiple of 4K"]);
    assert_refused("\"4M\"", "\"0\"", &["more than nothing"]);
    assert_refused("\"8M\"", "\"63G\", gap = \"2G\"", &["duplicate key"]);
    assert_refused("size = \"8M\", gap = \"1M\"", "size = \"60G\", gap = \"8G\"", &["64G"]);
    assert_refused("\"1s\"", "\"1ms\"", &["duration of phase one", "10ms"]);
    assert_refused("\"1s\"", "\"2h\"", &["duration of phase one", "3600s"]);
    assert_refused("about = \"two\"", "about = \"\"\nrepeat = 1000000", &["length", "86400s"]);
    assert_refused("about = \"two\"", "about = \"\"\nrepeat = 0", &["length"]);
    assert_refused("about = \"two\"", "about = \"\"\nislands = 99", &["99 islands", "gaps"]);
    for rate in ["0", "-1", "nan", "inf", "2e6"] {
        assert_refused("rate = 1 ", &format!("rate = {rate} "), &["rate", "region a", "max"]);
    }
    assert_refused("rate = 1 ", "rate = 1, threads = 0 ", &["threads", "1 to 64"]);
    assert_refused("rate = 1 ", "rate = 1, threads = 65 ", &["threads", "1 to 64"]);
    assert_refused("region = \"a\"", "region = \"c\"", &["phase one", "region c", "are a, b"]);
    assert_refused("region = \"a\"", "region = \"b\"", &["region b twice"]);
    assert_refused("size = \"4M\"", "size = \"4M\", huge = true, shared = true", &["choose one"]);
}

#[test]
fn orders_have_limits() {
    let order = |text: &str, said: &[&str]| {
        assert_refused("rate = 1 ", &format!("rate = 1, order = {{ {text} }} "), said);
    };
    order("strided = { stride = 1 }", &["stride", "2 pages or more"]);
    order("strided = { stride = 1025 }", &["stride", "within the region"]);
    order("zipf = { exponent = -1, block = \"1M\" }", &["exponent", "0 to 10"]);
    order("zipf = { exponent = 1, block = \"3M\" }", &["block", "is a multiple"]);
    order("moving = { window = \"0\", every = \"1s\" }", &["window", "is a multiple"]);
    order("moving = { window = \"1M\", every = \"1ms\" }", &["moves in a", "100ms"]);
}

#[test]
fn accesses_of_a_region_agree() {
    let two = |first: &str, second: &str| {
        let access = |order| format!("access = [{{ region = \"a\", rate = 1, order = {order} }}]");
        let phase = format!("[[phase]]\nname = \"two\"\nduration = \"1s\"\n{}", access(second));
        let (head, _) = GOOD.split_once("access").unwrap();
        Workload::parse(&format!("{head}{}\n{phase}", access(first)))
    };
    let (strided, random) = ("{ strided = { stride = 4 } }", "\"random\"");
    let zipf = "{ zipf = { exponent = 1, block = \"1M\" } }";
    let moving = "{ moving = { window = \"2M\", every = \"1s\" } }";
    assert!(two(random, "\"sequential\"").is_ok() && two(random, zipf).is_ok());
    for (first, second) in [(strided, random), (strided, zipf), (zipf, moving)] {
        let error = two(first, second).unwrap_err().to_string();
        assert!(error.contains("a region for each"), "{error}");
    }
}

#[test]
fn shared_memory_is_not_written() {
    let text = GOOD.replace("size = \"4M\"", "size = \"4M\", shared = true");
    assert!(Workload::parse(&text).is_ok());
    let error = Workload::parse(&text.replace("rate = 1 ", "rate = 1, op = \"write\" "));
    assert!(error.unwrap_err().to_string().contains("op = \"read\""));
}

#[test]
fn all_values_are_limited() {
    let phase = "[[phase]]\nname = \"one\"\nduration = \"1s\"\n";
    let none = format!("about = \"\"\nregion = []\n{phase}");
    let error = Workload::parse(&none).unwrap_err().to_string();
    assert!(error.contains("0 regions: choose 1 to 256"), "{error}");
    let region = |i| format!("[[region]]\nname = \"{i}\"\nsize = \"4M\"\n");
    let many: String = (0..257).map(region).collect();
    let error = Workload::parse(&format!("about = \"\"\n{many}{phase}")).unwrap_err().to_string();
    assert!(error.contains("257 regions: choose 1 to 256"), "{error}");
    let zipf = Named::find("zipf").unwrap().workload().unwrap();
    let day = Some(Duration::from_secs(24 * 3600));
    let error = Schedule::new(&zipf, &WorkloadLayout::new(&zipf, 1), day).unwrap_err().to_string();
    assert!(error.contains("shorter --duration"), "{error}");
    let two_days = day.map(|d| d * 2);
    assert!(Schedule::new(&zipf, &WorkloadLayout::new(&zipf, 1), two_days).is_err());
}
