package runtime

import (
	"slices"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
)

func TestTargets(t *testing.T) {
	for named, want := range map[string]target{
		"":                            {kind: toNull},
		"/run/x/out":                  {kind: toFifo, path: "/run/x/out"},
		"/run/a:b/out":                {kind: toFifo, path: "/run/a:b/out"},
		"/run/x?y":                    {kind: toFifo, path: "/run/x?y"},
		"file:///var/log/a%20b.log":   {kind: toFile, path: "/var/log/a b.log"},
		"binary:///bin/logger":        {kind: toLogger, path: "/bin/logger"},
		"binary-v2:///bin/logger?a=b": {kind: toLogger, path: "/bin/logger", args: []string{"a", "b"}, strict: true},
	} {
		got, err := parseTarget("stdout", named)
		must(t, err)
		if !slices.Equal(got.args, want.args) {
			t.Errorf("%q: arguments %q, want %q", named, got.args, want.args)
		}
		got.args, want.args = nil, nil
		if got.kind != want.kind || got.path != want.path || got.strict != want.strict {
			t.Errorf("%q is %+v, want %+v", named, got, want)
		}
	}
}

// What cannot be used is refused with the stream's name and what is possible.
func TestUnusableTargets(t *testing.T) {
	for _, c := range []struct {
		stdio Stdio
		says  []string
	}{
		{Stdio{Stdout: "https://x/y"}, []string{"stdout", "https", "binary-v2:///path", "file:///path"}},
		{Stdio{Stderr: "fifo:///x"}, []string{"stderr", "scheme fifo"}},
		{Stdio{Stdin: "file:///x"}, []string{"stdin", "scheme file", "fifo or nothing"}},
		{Stdio{Stdout: "file://relative/x"}, []string{"stdout", "not absolute", "file:///path"}},
		{Stdio{Stdout: "file:relative"}, []string{"stdout", "not absolute"}},
		{Stdio{Stdout: "binary://logger?x=y"}, []string{"stdout", "not absolute", "binary:///path"}},
		{Stdio{Stdout: "file:///%zz"}, []string{"stdout", "not a URI"}},
		{Stdio{Stdout: "binary:///a", Stderr: "binary:///b"}, []string{"binary:///a", "binary:///b", "takes both"}},
		{Stdio{Stdout: "/out", Stderr: "binary:///b"}, []string{"/out", "binary:///b", "takes both"}},
		{Stdio{Stdout: "ftp:///x", Terminal: true}, []string{"stdout", "ftp"}},
	} {
		_, err := OpenIO(newStore(t), "p", c.stdio, IOOptions{})
		if !errdefs.IsInvalidArgument(err) {
			t.Errorf("%+v: %v", c.stdio, err)
			continue
		}
		for _, text := range c.says {
			if !strings.Contains(err.Error(), text) {
				t.Errorf("%+v: %q does not mention %q", c.stdio, err, text)
			}
		}
	}
}

// The stock shim's arguments, in the order of the query.
func TestLoggerArguments(t *testing.T) {
	for query, want := range map[string][]string{
		"":                    nil,
		"z=1&a=2":             {"z", "1", "a", "2"},
		"flag&a=2":            {"flag", "", "a", "2"},
		"a=1&b=2&a=3":         {"a", "1", "b", "2"},
		"a%3Db=c%26d&e=f%2Fg": {"a=b", "c&d", "e", "f/g"},
		"%zz=1&a=2":           {"a", "2"},
		"a=x+y":               {"a", "x y"},
	} {
		if got := queryArgs(query); !slices.Equal(got, want) {
			t.Errorf("%q gives %q, want %q", query, got, want)
		}
	}
}
