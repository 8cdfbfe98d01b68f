package runtime

import (
	"fmt"
	"net/url"
	"path/filepath"
	"strings"

	"github.com/containerd/errdefs"
)

// kind is what a stream leads to.
type kind int

const (
	toNull   kind = iota // /dev/null
	toFifo               // a fifo of the client's
	toFile               // file://, appended to
	toLogger             // binary:// and binary-v2://, a program that reads pipes
)

// target is a path or URI of a client's, understood.
type target struct {
	kind   kind
	path   string   // of the fifo, the file or the logger
	args   []string // of the logger
	strict bool     // binary-v2: the logger has to write a byte to be ready
}

const possible = "possible are the path of a fifo, nothing, and for stdout and stderr file:///path, binary:///path and binary-v2:///path"

// parseTarget tells what a stream's path means. Everything that can be refused without
// a look at the machine is refused here; errors are errdefs.ErrInvalidArgument and
// name the stream.
func parseTarget(stream, named string) (target, error) {
	refuse := func(format string, args ...any) (target, error) {
		return target{}, fmt.Errorf("%s %q: %s: %w", stream, named, fmt.Sprintf(format, args...), errdefs.ErrInvalidArgument)
	}
	scheme, _, isURI := strings.Cut(named, ":")
	switch {
	case named == "":
		return target{}, nil
	case !isURI || strings.Contains(scheme, "/"):
		return target{kind: toFifo, path: named}, nil
	}
	var t target
	switch scheme {
	case "file":
		t.kind = toFile
	case "binary", "binary-v2":
		t.kind, t.strict = toLogger, scheme == "binary-v2"
	default:
		return refuse("the scheme %s is not supported; %s", scheme, possible)
	}
	if stream == names[stdin] {
		return refuse("the scheme %s is for output; stdin is a fifo or nothing", scheme)
	}
	uri, err := url.Parse(named)
	if err != nil {
		return refuse("not a URI: %v", err)
	}
	if uri.Host != "" || uri.Opaque != "" || !filepath.IsAbs(uri.Path) {
		return refuse("the path is not absolute: write %s:///path", scheme)
	}
	t.path = uri.Path
	if t.kind == toLogger {
		t.args = queryArgs(uri.RawQuery)
	}
	return t, nil
}

// queryArgs makes a logger's arguments of its URI's query: each key, then its first
// value, in the query's order. The stock shim's are the same in a random order.
func queryArgs(raw string) []string {
	values, _ := url.ParseQuery(raw) // what it cannot read it leaves out, as for the stock shim
	var args []string
	for pair := range strings.SplitSeq(raw, "&") {
		name, _, _ := strings.Cut(pair, "=")
		key, err := url.QueryUnescape(name)
		if vs := values[key]; err == nil && len(vs) > 0 {
			args = append(args, key, vs[0])
			delete(values, key)
		}
	}
	return args
}

// parseTargets understands all of a process's stdio. One logger serves both outputs, as
// with the stock shim, which starts it for stdout and gives it stderr as well.
func parseTargets(s Stdio) (t [3]target, err error) {
	for i, named := range [...]string{stdin: s.Stdin, stdout: s.Stdout, stderr: s.Stderr} {
		if i == stderr && s.Terminal {
			continue // clients name one and do not make it
		}
		if t[i], err = parseTarget(names[i], named); err != nil {
			return t, err
		}
	}
	if s.Terminal {
		return t, nil
	}
	switch {
	case t[stdout].kind == toLogger && (s.Stderr == "" || s.Stderr == s.Stdout):
		t[stderr] = t[stdout]
	case t[stdout].kind == toLogger || t[stderr].kind == toLogger:
		return t, fmt.Errorf("stdout %q, stderr %q: a logger takes both: name the same one twice, or as stdout alone: %w",
			s.Stdout, s.Stderr, errdefs.ErrInvalidArgument)
	}
	return t, nil
}
