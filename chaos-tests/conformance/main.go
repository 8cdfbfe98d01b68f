// Command conformance runs containerd's own client tests, compiled unchanged
// from its module, with the stock shim, with perdure, and with perdure whose
// workers are killed all the while; it prints what each test did in each part.
// It fails when a test that passes with the stock shim does not pass with
// perdure, or when perdure leaves something behind that stock does not.
//
// Everything happens in mount and pid namespaces of its own: the suite's fixed
// paths (/run, /var/lib, /opt) are empty file systems in memory there, every
// process it can see is one of the run's, and when it ends, however it ends,
// the kernel ends them all. The suite's images come from a registry in this
// program. Nothing of the machine is changed but cgroups, which are removed.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"time"
)

// options are the command's flags.
type options struct {
	run      *regexp.Regexp // tests to run, by name
	parts    []*part        // the first is what the others are measured by
	suite    string         // directory with client.test and runc-fp
	runc     string         // directory with another runc than the machine's, or ""
	limit    time.Duration  // for each test
	logs     string         // directory for what the tests printed
	document string         // document to write the stock shim's failures into, or ""
}

func main() {
	o, err := parse()
	if err != nil {
		fmt.Fprintln(os.Stderr, "conformance:", err)
		os.Exit(2)
	}
	code, err := enter(o)
	if err != nil {
		fmt.Fprintln(os.Stderr, "conformance:", err)
		os.Exit(1)
	}
	os.Exit(code)
}

func parse() (options, error) {
	var o options
	run := flag.String("run", "", "regular `expression`: run only the tests it matches")
	kill := flag.Duration("kill", 300*time.Millisecond, "how often workers are killed in the part killed")
	names := flag.String("parts", "stock,perdure,killed", "`parts` to run; the first is what the others are measured by")
	flag.StringVar(&o.suite, "suite", "", "`directory` of scripts/setup conformance")
	flag.StringVar(&o.runc, "runc", "", "`directory` of the runc to use (default: the machine's)")
	flag.DurationVar(&o.limit, "limit", time.Minute, "time limit of each test")
	flag.StringVar(&o.logs, "logs", "", "`directory` for the output of the tests")
	flag.StringVar(&o.document, "document", "", "`file` to write the stock shim's failures into")
	flag.Parse()
	if o.suite == "" || o.logs == "" {
		return o, errors.New("-suite and -logs are needed: see make conformance")
	}
	if os.Geteuid() != 0 {
		return o, errors.New("this is not root, who alone can run containers with runc")
	}
	for name := range strings.SplitSeq(*names, ",") {
		p, err := newPart(name, *kill)
		if err != nil {
			return o, err
		}
		o.parts = append(o.parts, p)
	}
	var err error
	o.run, err = regexp.Compile(*run)
	return o, err
}
