use proptest::prelude::*;

use super::super::decode;
use super::super::value::{Key, Map};
use super::*;

/// The input of "JSONPath Support" in `kubectl`'s documentation, as an object.
const DOCUMENTED: &str = r#"{"apiVersion":"v1","kind":"List","items":[
    {"kind":"None","metadata":{"name":"127.0.0.1","labels":{"kubernetes.io/hostname":"127.0.0.1"}},
     "status":{"capacity":{"cpu":"4"},"addresses":[{"type":"LegacyHostIP","address":"127.0.0.1"}]}},
    {"kind":"None","metadata":{"name":"127.0.0.2"},
     "status":{"capacity":{"cpu":"8"},"addresses":[{"type":"LegacyHostIP","address":"127.0.0.2"},
        {"type":"another","address":"127.0.0.3"}]}}],
    "users":[{"name":"myself","user":{}},{"name":"e2e","user":{"username":"admin","password":"secret"}}]}"#;

/// What `kubectl patch --local -o jsonpath` was asked about to write the expectations below.
const ODD: &str = r#"{"apiVersion":"example.com/v1","kind":"Odd",
    "metadata":{"name":"n","labels":{"a.b/c-d":"x"},"annotations":{"h":"y"}},
    "nul":null,"t":true,"i":7,"empty":[],"eo":{},"es":"","":"emptykey","a*":"star","big":18446744073709551615,
    "f":[123456.5,1234567.5,0.0001,0.00001,0.00012345,100000.25,-2.5e30,1.5,1e21,1e-7,1234567890.5,1e20],
    "users":[{"name":"a","n":1},{"name":"b","n":2,"x":null},{"name":"c","n":2.5}],
    "mix":["x",1,true,null,{"b":1,"a":2}],"ports":[{"p":80},{"p":"http"},{"p":true},{"p":[1]},{}],
    "data":{"tls.crt":"cert","tls-key":"key"}}"#;

fn render(template: &str, object: &str) -> String {
    let template = JsonPath::parse(template).unwrap_or_else(|error| panic!("{template}: {error}"));
    let mut out = Vec::new();
    template.render(&decode(object.as_bytes()).unwrap().value, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

fn check(object: &str, cases: &[(&str, &str)]) {
    for (template, expected) in cases {
        assert_eq!(render(template, object), *expected, "{template}");
    }
}

#[test]
fn the_documentation_s_examples() {
    let whole = serde_json::to_string(&decode(DOCUMENTED.as_bytes()).unwrap().value).unwrap();
    check(
        DOCUMENTED,
        &[
            ("kind is {.kind}", "kind is List"),
            ("{@}", &whole),
            ("{.kind}", "List"),
            ("{['kind']}", "List"),
            ("{..name}", "127.0.0.1 127.0.0.2 myself e2e"),
            ("{.items[*].metadata.name}", "127.0.0.1 127.0.0.2"),
            ("{.users[0].name}", "myself"),
            ("{.items[*]['metadata.name', 'status.capacity']}", r#"127.0.0.1 127.0.0.2 {"cpu":"4"} {"cpu":"8"}"#),
            (r#"{.users[?(@.name=="e2e")].user.password}"#, "secret"),
            (
                "{range .items[*]}[{.metadata.name}, {.status.capacity}] {end}",
                r#"[127.0.0.1, {"cpu":"4"}] [127.0.0.2, {"cpu":"8"}] "#,
            ),
            (r#"{range .items[*]}{.metadata.name}{"\t"}{end}"#, "127.0.0.1\t127.0.0.2\t"),
            (r"{.items[*].metadata.labels.kubernetes\.io/hostname}", "127.0.0.1"),
            (r"{.items[0].metadata.labels['kubernetes\.io/hostname']}", "127.0.0.1"),
            ("{.items[-1:].metadata.name}", "127.0.0.2"),
            ("{.items[0:2].metadata.name}", "127.0.0.1 127.0.0.2"),
            (
                r#"{range .items[*]}{@.metadata.name}={range @.status.addresses[?(@.type=="another")]}{.address}{end}{"\n"}{end}"#,
                "127.0.0.1=\n127.0.0.2=127.0.0.3\n",
            ),
            (r#"{.items[?(@.metadata.name=='127.0.0.2')].status.addresses[*].type}"#, "LegacyHostIP another"),
        ],
    );
}

#[test]
fn values_are_printed_as_kubectl_prints_them() {
    check(
        ODD,
        &[
            ("{.nul}{.t}{.i}{.es}{.empty}{.eo}", "nulltrue7[]{}"),
            ("{.big}", "18446744073709551615"),
            (
                "{.f[*]}",
                "123456.5 1.2345675e+06 0.0001 1e-05 0.00012345 100000.25 -2.5e+30 1.5 1e+21 1e-07 \
                 1.2345678905e+09 1e+20",
            ),
            ("{.mix}", r#"["x",1,true,null,{"a":2,"b":1}]"#),
            ("{.mix[*]}", r#"x 1 true null {"a":2,"b":1}"#),
            ("{.metadata.*}", r#"{"h":"y"} {"a.b/c-d":"x"} n"#),
            ("{1.50}{true}{7}{-2}{false}", "1.5true7-2false"),
            (r#"{"\x41\101\u00e9\U0001f512\\\""}{'it\'s'}{"'"}"#, "AAé🔒\\\"it's'"),
            (r#"a\n}{"\n"}{"{}"}"#, "a\\n}\n{}"),
        ],
    );
}

#[test]
fn paths_are_followed_as_kubectl_does() {
    check(
        ODD,
        &[
            ("{.users[*].name}{.nope}-", "a b c-"),
            ("{.nope[0].x}{.nul[0]}{.users.name}{.kind.x}{.kind .x}{.empty[*]}", ""),
            ("{.users[-1].name} {.users[-2:].name} {.users[::2].name}", "c b c a c"),
            ("{.users[0,1].name} {.users[*]['name','n']}", "a b a b c 1 2 2.5"),
            ("{.metadata['name','labels']}", r#"n {"a.b/c-d":"x"}"#),
            (r"{.metadata.labels.a\.b/c-d} {.metadata.labels['a\.b/c-d']}", "x x"),
            (r"{.data.tls\.crt} {.data['tls\.crt']} {.data.tls-key}", "cert cert key"),
            (r"{['metadata.name']} {['']} {.a\*}", "n emptykey star"),
            ("{ .kind } {.metadata .name} {$.kind} {@ .kind}", "Odd n Odd Odd"),
            ("{..name}", "n a b c"),
            ("{.mix..}", r#"["x",1,true,null,{"a":2,"b":1}] x {"a":2,"b":1}"#),
            ("{.users..name} {.users..['n']}", "a b c 1 2 2.5"),
        ],
    );
}

#[test]
fn filters_select_items() {
    check(
        ODD,
        &[
            ("{.users[?(@.x)].name}", "b"),
            ("{.users[?(@.nope)].name}", ""),
            (r#"{.users[?(@.name!="a")].name}"#, "b c"),
            (r#"{.users[?( @.name >= 'b' )].name}"#, "b c"),
            (r#"{.users[?("a"==@.name)].n}"#, "1"),
            ("{.users[?(@.n==2)].name}|{.users[?(@.n>1.5)].name}|{.users[?(@.n<=2)].name}", "b|b c|a b"),
            (r#"{.users[?(@.x=="a")].name}|{.users[?(@.x!="a")].name}"#, "|b"),
            (r#"{.ports[?(@.p!="http")].p}|{.ports[?(@.p<81)].p}|{.ports[?(@.p==true)].p}"#, "80 true [1]|80|true"),
            ("{.ports[?(@.p==@.p)].p}|{.ports[?(@.p[0]==1)].p}|{.ports[?(@.*==1)].p}", "80 http true [1]|[1]|"),
            ("{.mix[?(@==1)]} {.eo[?(@)]}", "1 "),
            (r#"{.users[?(@['name']=="a)]")]}{.users[?(@.name=="b")].n}"#, "2"),
        ],
    );
}

#[test]
fn ranges_repeat_what_is_within() {
    check(
        ODD,
        &[
            ("{range .users[*]}{.name}{range .nope}!{end}{end}.", "abc."),
            ("{range .users[*]}{range .name}<{@}>{end}{end}{.kind}", "<a><b><c>Odd"),
            ("{range .users[*]}{$.kind}{@.name}{end}", "abc"),
            ("{range .nope[*]}x{end}y", "y"),
            ("{range}{.kind}{end}", "Odd"),
        ],
    );
}

#[test]
fn one_expression_needs_no_braces() {
    check(
        ODD,
        &[
            (".metadata.name", "n"),
            ("metadata.name", "n"),
            ("{metadata.name}", "n"),
            ("{ metadata.name }", "n"),
            (r"data.tls\.crt", "cert"),
            ("users[0].name", "a"),
            ("..name", "n a b c"),
            ("['kind']", "Odd"),
            ("$.kind", "Odd"),
            ("endpoints", ""),
        ],
    );
}

#[test]
fn what_kubectl_refuses_selects_what_there_is() {
    check(
        ODD,
        &[
            ("{.users[5].name}{.users[-4].name}{.empty[0]}{.kind[0]}{.users[2:1].name}", ""),
            ("{.users[0:9].name}|{.users[-9:].name}|{.users[1:-9].name}|{.users[8:9].name}", "a b c|a b c||"),
            ("{.metadata.labels[*]}|{.metadata..*}", r#"x|{"h":"y"} {"a.b/c-d":"x"} n y x"#),
            ("{..[0].name}", "a"),
            ("{.users[ 0 , 2 ].name}", "a c"),
            ("{.kind.*}", ""),
        ],
    );
}

#[test]
fn errors_tell_where() {
    use InvalidJsonPath as E;
    for (template, expected) in [
        ("", E::Empty),
        (" ", E::Empty),
        ("a{.kind", E::Unclosed { offset: 1 }),
        ("{.kind}{", E::Unclosed { offset: 7 }),
        ("{.users[0", E::Unclosed { offset: 7 }),
        ("{.users['a}", E::Unclosed { offset: 8 }),
        (r#"{.users[?(@.a=="x")"#, E::Unclosed { offset: 7 }),
        (r#"{"a}"#, E::Unclosed { offset: 1 }),
        (r#"{.users[?(@.a=="x)]}"#, E::Unclosed { offset: 15 }),
        ("{.a,}", E::Unexpected { offset: 3 }),
        ("{.a{}", E::Unexpected { offset: 3 }),
        ("{.a]}", E::Unexpected { offset: 3 }),
        ("{....a}", E::Unexpected { offset: 3 }),
        (r#"{"a" .b}"#, E::Unexpected { offset: 5 }),
        ("{range .b}{end .a}", E::Unexpected { offset: 15 }),
        ("{.u[?(@.a=~1)]}", E::Unexpected { offset: 9 }),
        ("{.u[?(@.a==1 && @.b)]}", E::Unexpected { offset: 13 }),
        ("{.u[?(@.a==)]}", E::Unexpected { offset: 11 }),
        ("{.u[?()]}", E::Unexpected { offset: 6 }),
        ("{.u[0 1]}", E::Unexpected { offset: 6 }),
        ("{.}", E::ExpectedKey { offset: 2 }),
        ("{.['kind']}", E::ExpectedKey { offset: 2 }),
        ("a.", E::ExpectedKey { offset: 2 }),
        ("{kind} {.name}", E::UnknownWord { offset: 1 }),
        ("é{kind}", E::UnknownWord { offset: 3 }),
        ("{.u[?(@.a==b)]}", E::UnknownWord { offset: 11 }),
        (r#"{["kind"]}"#, E::InvalidIndex { offset: 2 }),
        ("{.u[]}", E::InvalidIndex { offset: 4 }),
        ("{.u[-]}", E::InvalidIndex { offset: 4 }),
        ("{.u[9223372036854775808]}", E::InvalidIndex { offset: 4 }),
        ("{.u[::0]}", E::InvalidIndex { offset: 6 }),
        ("{.u[::-1]}", E::InvalidIndex { offset: 6 }),
        ("{1.2.3}", E::InvalidNumber { offset: 1 }),
        ("{-}", E::InvalidNumber { offset: 1 }),
        (r#"{"ab\q"}"#, E::InvalidEscape { offset: 4 }),
        (r#"{"\x+1"}"#, E::InvalidEscape { offset: 2 }),
        (r#"{"\xff"}"#, E::InvalidEscape { offset: 2 }),
        (r#"{"\ud800"}"#, E::InvalidEscape { offset: 2 }),
        (r"a\", E::InvalidEscape { offset: 1 }),
        ("{.u[?(@.a[?(@.b)])]}", E::NestedFilter { offset: 9 }),
        ("x{end}", E::EndWithoutRange { offset: 1 }),
        ("{range .a}{end}{end}", E::EndWithoutRange { offset: 15 }),
        ("{.a}{range .a}{range .b}{end}", E::RangeWithoutEnd { offset: 4 }),
    ] {
        assert_eq!(JsonPath::parse(template), Err(expected), "{template}");
    }
}

#[test]
fn ranges_have_a_depth() {
    let nested = |depth| format!("{}{{@}}{}", "{range .a}".repeat(depth), "{end}".repeat(depth));
    assert_eq!(render(&nested(32), r#"{"apiVersion":"v1","kind":"K"}"#), "");
    assert_eq!(JsonPath::parse(&nested(33)), Err(InvalidJsonPath::TooDeep { offset: 320 }));
}

#[test]
fn work_has_a_limit() {
    let mut deep = Value::Int(1);
    for _ in 0..100 {
        deep = Value::Object(Map::from_entries(vec![(Key::from("a"), deep)]));
    }
    for template in [
        "{..*..*..*..*}".to_owned(),
        format!("{{{}}}", "['a','a']".repeat(40)),
        format!("{}{{@}}{}", "{range ..*}".repeat(4), "{end}".repeat(4)),
    ] {
        let mut out = Vec::new();
        let error = JsonPath::parse(&template).unwrap().render(&deep, &mut out).unwrap_err();
        let source = error.get_ref().and_then(|source| source.downcast_ref::<TooMuch>());
        assert_eq!(source, Some(&TooMuch), "{template}");
    }
}

/// Any tree of some depth, with keys that the templates below ask for.
fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        any::<i64>().prop_map(Value::Int),
        any::<f64>().prop_map(Value::number),
        "[ab]{0,3}".prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 48, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::Array),
            prop::collection::vec(("[ab.]{0,2}", inner), 0..4).prop_map(|entries| {
                let entries = entries.into_iter().map(|(key, value)| (Key::from(key), value));
                Value::Object(Map::from_entries(entries.collect()))
            }),
        ]
    })
}

/// Pieces of templates, right and wrong.
fn any_template() -> impl Strategy<Value = String> {
    let pieces = prop::sample::select(vec![
        "{",
        "}",
        ".a",
        ".b",
        "..",
        ".",
        "*",
        "[*]",
        "[0]",
        "[-1]",
        "[1:]",
        "[::2]",
        "['a','b']",
        "['a.b']",
        "[",
        "]",
        "[?(@.a)]",
        "[?(@.a==1)]",
        "[?(@.a<'b')]",
        "[?(",
        ")]",
        "@",
        "$",
        "range ",
        "end",
        "{range .*}",
        "{end}",
        " ",
        "'",
        "\"",
        "\\",
        "\\n",
        "1",
        "-",
        ",",
        ":",
        "==",
        "true",
        "é",
        "{..*}",
        "{.a[*]}",
    ]);
    prop_oneof![prop::collection::vec(pieces, 0..16).prop_map(|pieces| pieces.concat()), any::<String>()]
}

proptest! {
    #[test]
    fn any_template_renders_any_value_or_is_an_error(template in any_template(), value in any_value()) {
        if let Ok(template) = JsonPath::parse(&template) {
            let mut out = Vec::new();
            match template.render(&value, &mut out) {
                Ok(()) => prop_assert!(std::str::from_utf8(&out).is_ok()),
                Err(error) => prop_assert!(error.get_ref().is_some_and(|source| source.is::<TooMuch>())),
            }
        }
    }

    #[test]
    fn any_key_is_found_when_it_is_escaped(key in any::<String>()) {
        let value = Value::Object(Map::from_entries(vec![(Key::from(key.as_str()), Value::Int(1))]));
        let escaped: String = key.chars().flat_map(|c| ['\\', c]).collect();
        let mut out = Vec::new();
        JsonPath::parse(&format!("{{['{escaped}']}}")).unwrap().render(&value, &mut out).unwrap();
        prop_assert_eq!(out, b"1");
    }
}
