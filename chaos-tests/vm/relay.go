package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"perdure/chaos-tests/vm/plan"
)

// event is what is read of a line of `go test -json`.
type event struct {
	Action  string
	Package string
	Test    string `json:",omitempty"`
	Output  string `json:",omitempty"`
}

// relay copies the machine's answer from in to out until its end. Where that
// comes before the answer's last line it ends the tests that were running as
// failed, so that a reader prints what they had said, and returns an error.
func relay(in io.Reader, out io.Writer) error {
	running := map[event]bool{} // packages and tests that have begun
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		if lines.Text() == plan.Done {
			return nil
		}
		if _, err := fmt.Fprintf(out, "%s\n", lines.Bytes()); err != nil {
			return err
		}
		note(running, lines.Bytes())
	}
	err := errors.New("the machine ended before its tests did")
	for e := range running {
		e.Action = "fail"
		line, jsonErr := json.Marshal(e)
		_, printErr := fmt.Fprintf(out, "%s\n", line)
		err = errors.Join(err, jsonErr, printErr)
	}
	return errors.Join(err, lines.Err())
}

func note(running map[event]bool, line []byte) {
	var e event
	if json.Unmarshal(line, &e) != nil {
		return
	}
	key := event{Package: e.Package, Test: e.Test}
	switch e.Action {
	case "start", "run":
		running[key] = true
	case "pass", "fail", "skip":
		delete(running, key)
	}
}
