// Command conformance runs containerd's own client tests, compiled unchanged
// from its module, with the stock shim, with perdure, and with perdure whose
// workers are killed all the while; it prints what each test did in each part.
// It fails when a test that passes with the stock shim does not pass with
// perdure, or when perdure leaves something behind that stock does not.
//
// The tests run in mount and pid namespaces: the suite's fixed paths (/run,
// /var/lib, /opt) are empty file systems in memory there, every process to be
// seen is one of the run's, and when it ends, however it ends, the kernel ends
// them all. The suite's images come from a registry in this program. Nothing
// of the machine is changed but cgroups, which are removed.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"time"

	"perdure/chaos-tests/harness"
)

// options are the command's flags.
type options struct {
	run      *regexp.Regexp // tests to run, by name
	parts    []*part        // the first is what the others are measured by
	suite    string         // directory with client.test and runc-fp
	runc     string         // directory with another runc than the machine's, or ""
	limit    time.Duration  // for each test
	logs     string         // directory for what the tests printed
	document string         // document to write the first part's failures into, or ""
}

// part is one pass of the suite.
type part struct {
	name    string
	runtime string        // TEST_RUNTIME
	kill    time.Duration // how often workers are killed; 0: never

	report
	took time.Duration
}

// perdure is the runtime that is measured.
const perdure = "io.containerd.perdure.v2"

func newPart(name string, kill time.Duration) (*part, error) {
	switch name {
	case "stock":
		return &part{name: name, runtime: harness.Stock}, nil
	case "perdure":
		return &part{name: name, runtime: perdure}, nil
	case "killed":
		if kill <= 0 {
			return nil, fmt.Errorf("workers cannot be killed every %v", kill)
		}
		return &part{name: name, runtime: perdure, kill: kill}, nil
	}
	return nil, fmt.Errorf("there is no part %s", name)
}

func main() {
	code, err := stage()
	if err != nil {
		fmt.Fprintln(os.Stderr, "conformance:", err)
		code = 2
	}
	os.Exit(code)
}

// stage does what this process is for: the command runs itself again inside the
// namespaces.
func stage() (int, error) {
	switch os.Getenv(stageVariable) {
	case stageInit:
		return beInit()
	case stageLane:
		return 0, beLane()
	}
	o, err := parse()
	if err != nil {
		return 2, err
	}
	return conduct(o)
}

func parse() (options, error) {
	var o options
	run := flag.String("run", "", "regular `expression`: run only the tests it matches")
	kill := flag.Duration("kill", 300*time.Millisecond, "how often workers are killed in the part killed")
	names := flag.String("parts", "stock,perdure,killed", "`parts` to run; the first is what the others are measured by")
	flag.StringVar(&o.suite, "suite", "", "`directory` of scripts/setup conformance")
	flag.StringVar(&o.runc, "runc", "", "`directory` of the runc to use (default: the machine's)")
	flag.DurationVar(&o.limit, "limit", 90*time.Second, "time limit of each test, to which four times what it took in the first part are added")
	flag.StringVar(&o.logs, "logs", "", "`directory` for the output of the tests")
	flag.StringVar(&o.document, "document", "", "`file` to write the first part's failures into")
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
