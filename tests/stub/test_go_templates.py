"""Go templates: the errors of Go's package `text/template`, and templates without errors."""

from __future__ import annotations

import pytest

from mochi_stub import StubServer
from mochi_stub.wire.ollama.go_template import template_error
from tests.stub.requests import send_request


@pytest.mark.parametrize(
    ("template", "problem"),
    [
        ("{{ .Prompt", ":1: unclosed action"),
        ("line1\n{{", ":2: unclosed action"),
        ("line1\n{{define `x`}}line2\n{{", ":3: unclosed action"),
        ('line1\n{{"x"\n"y"\n', ":4: unclosed action started at :2"),
        ("{{\n\n\n\n\n", ":6: unclosed action started at :1"),
        ("{{ $v := `\n` }} {{", ":2: unclosed action"),
        ("{{(.X 1 2 3", ":1: unclosed action"),
        ("{{ if .System }}\n{{ .Prompt }}\n", ":3: unexpected EOF"),
        ("hello{{range .X}}{{else}}", ":1: unexpected EOF"),
        ("{{ define `x` }}", ":1: unexpected EOF"),
        ("a\n{{ end }}", ":2: unexpected {{end}}"),
        ("{{if .X}}a{{else if .Y}}b{{end}}{{end}}", ":1: unexpected {{end}}"),
        ("{{if .X}}hello{{end}}{{else}}", ":1: unexpected {{else}}"),
        ("{{if .X}}1{{else}}2{{else}}3{{end}}", ":1: expected end; found {{else}}"),
        ("{{range .X}}1{{else if .Y}}2{{end}}", ":1: unexpected <if> in input"),
        ("{{ end .X }}", ':1: unexpected ".X" in end'),
        ("{{if .X}}{{ else .Y }}{{end}}", ':1: unexpected ".Y" in else'),
        ("{{ range .Messages }}{{ shout .Content }}{{ end }}", ':1: function "shout" not defined'),
        ("line1\n{{\nx\n}}", ':3: function "x" not defined'),
        ("{{ endif }}", ':1: function "endif" not defined'),
        ("{{ .Prompt! }}", ":1: bad character U+0021 '!'"),
        ("{{a#}}", ":1: bad character U+0023 '#'"),
        ('{{ .Prompt"x" }}', ":1: bad character U+0022 '\"'"),
        ("{{ $x+2 }}", ":1: bad character U+002B '+'"),
        ("{{ \u00bf }}", ":1: unrecognized character in action: U+00BF '\u00bf'"),
        ("{{ .A : .B }}", ":1: expected :="),
        ('{{ .Prompt }}\n{{ "}}', ":2: unterminated quoted string"),
        ("{{ `}}", ":1: unterminated raw quoted string"),
        ("{{'a}}", ":1: unterminated character constant"),
        ('{{ "\\q" }}', ":1: invalid syntax"),
        ("{{ 'ab' }}", ":1: malformed character constant: 'ab'"),
        ("{{ 3x }}", ':1: bad number syntax: "3x"'),
        ("{{ 1+2 }}", ':1: bad number syntax: "1+2"'),
        ("{{0xi}}", ':1: illegal number syntax: "0xi"'),
        ("{{ 089 }}", ':1: integer overflow: "089"'),
        ("{{ 18446744073709551616 }}", ':1: integer overflow: "18446744073709551616"'),
        ("{{ '' }}", ":1: invalid syntax"),
        ('{{ "\\777" }}', ":1: invalid syntax"),
        ("{{ .", ':1: illegal number syntax: "."'),
        ("{{ }}", ":1: missing value for command"),
        ("{{- /* comment */ -}}{{}}", ":1: missing value for command"),
        ("{{ if }}{{ end }}", ":1: missing value for if"),
        ("{{ ( ) }}", ":1: missing value for parenthesized pipeline"),
        ('{{block "x"}}{{end}}', ":1: missing value for block clause"),
        ("{{range $k,}}{{end}}", ":1: missing value for range"),
        ("{{range $k, $v := }}{{end}}", ":1: missing value for range"),
        ("{{range $k, .}}{{end}}", ":1: range can only initialize variables"),
        ("{{range $a, $b, $c := .X}}{{end}}", ":1: too many declarations in range"),
        ("{{$a,$b,$c := 23}}", ":1: too many declarations in command"),
        ("{{ $a }}", ':1: undefined variable "$a"'),
        ("{{range $k, $v}}{{end}}", ':1: undefined variable "$v"'),
        ("{{with $x := 4}}{{end}}{{$x}}", ':1: undefined variable "$x"'),
        ("{{$x := 1}}{{define `a`}}{{$x}}{{end}}", ':1: undefined variable "$x"'),
        ("{{$x := 2}}{{with $x.y := 3}}{{end}}", ':1: unexpected ":=" in operand'),
        ("{{true.any}}", ':1: unexpected . after term "true"'),
        ("{{..E}}", ':1: unexpected . after term "."'),
        ("{{12|false}}", ":1: non executable command in pipeline stage 2"),
        ("{{.X | printf | .}}", ":1: non executable command in pipeline stage 3"),
        ("{{`x`3}}", ':1: unexpected "3" in operand'),
        ("{{printf 3, 4}}", ':1: unexpected "," in operand'),
        ("{{ | .X }}", ':1: unexpected "|" in command'),
        ("{{printf .).}}", ":1: unexpected right paren"),
        ("{{.X (1 2 3}}", ":1: unclosed left paren"),
        ("{{template .Prompt}}", ':1: unexpected ".Prompt" in template clause'),
        ("{{template .LongerPrompt}}", ':1: unexpected ".LongerPro"... in template clause'),
        ("{{define .X}}{{end}}", ':1: unexpected ".X" in define clause'),
        ("{{define `x`}}{{else}}{{end}}", ":1: unexpected {{else}} in define clause"),
        ("{{block `x` .}}\n{{else}}{{end}}", ":1: unexpected {{else}} in block clause"),
        ("{{block -}}{{end}}", ':1: unexpected "}}" in block clause'),
        ("{{if .X}}{{define `x`}}{{end}}{{end}}", ":1: unexpected <define> in command"),
        ("{{define `a`}}a{{end}}{{define `a`}}b{{end}}", ':1: template: multiple definition of template "a"'),
        ("{{range .X}}{{end}}{{break}}", ":1: {{break}} outside {{range}}"),
        ("{{range .X}}{{else}}{{continue}}{{end}}", ":1: {{continue}} outside {{range}}"),
        ("{{range .X}}{{break 20}}{{end}}", ':1: unexpected "20" in {{break}}'),
        ("{{ 1e999 }}", ':1: illegal number syntax: "1e999"'),
        ("{{/*}}", ":1: unclosed comment"),
        ("{{/*/}}", ":1: unclosed comment"),
        ("a\n{{/* b */ c}}", ":2: comment ends before closing delimiter"),
        ("{{" + "(" * 20_000, ":1: max expression depth exceeded"),
    ],
)
def test_error_is_that_of_go(template: str, problem: str) -> None:
    assert template_error(template) == f"template: {problem}"


@pytest.mark.parametrize(
    "template",
    [
        "",
        "{{ .Prompt }}",
        "{{- /* if }} unclosed */ -}}{{ $.System }}",
        "{{-\n/*\nhello\n*/\n-}}",
        "x \r\n\t{{- 3 -}}\n\n\ty",
        "{{ $x \n := \n 1 \n }}{{ $x = 2 }}{{ $x -}}",
        '{{\n"x"\n|\nprintf\n}}',
        "{{- range $i, $m := .Messages }}{{ if eq $m.Role `user` }}x{{ else if .Tools }}y{{ end }}{{ end }}",
        "{{range .X 1 -3.2i 1+2i 0x_1F 1_000 1e9 07 -9223372036854775808 true false 'a' '\\'' '\\x41' nil}}{{end}}",
        "{{with .X}}X{{else with .Y}}Y{{else with .Z}}Z{{end}}",
        "{{range .X}}{{ if . }}{{ break }}{{ else }}{{continue}}{{ end }}{{else}}none{{end}}",
        "{{.X (.Y .Z) (.A | .B .C).Field | printf}}",
        '{{block "x" .}}{{.}}{{end}}{{define "y"}} {{end}}{{define "y"}}b{{end}}{{template "y" .X}}{{template "x"}}',
        '{{ with .Tools }}{{ json . | printf "%s }}" }}{{- end -}}',
        "{{ (index .Messages 0).Content }}{{ slice .A 1 2 }}{{ currentDate }}",
    ],
)
def test_valid_template_has_no_error(template: str) -> None:
    assert template_error(template) is None


def test_template_of_a_request_is_checked(stub: StubServer) -> None:
    body = {"model": "mochi", "prompt": "hi", "stream": False}
    refused = send_request(stub, "POST", "/api/generate", {**body, "template": "{{ .Prompt"})
    assert (refused.status, refused.json) == (500, {"error": "template: :1: unclosed action"})
    assert send_request(stub, "POST", "/api/generate", {**body, "template": "{{ .Prompt }}"}).status == 200
