package main

import (
	"strings"
	"testing"

	"perdure/chaos-tests/vm/plan"
)

// TestAnswerWithoutEnd: a machine that dies has failed, and so has what was running.
func TestAnswerWithoutEnd(t *testing.T) {
	const begun = `{"Action":"start","Package":"p"}
{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"pass","Package":"p","Test":"TestA"}
{"Action":"run","Package":"p","Test":"TestB"}
`
	for answer, want := range map[string]string{
		begun: `{"Action":"fail","Package":"p","Test":"TestB"}`,
		begun + `{"Action":"pass","Package":"p","Test":"TestB"}` + "\n": `{"Action":"fail","Package":"p"}`,
	} {
		var out strings.Builder
		if err := relay(strings.NewReader(answer), &out); err == nil {
			t.Errorf("no error after %s", answer)
		}
		if said := out.String(); !strings.HasPrefix(said, answer) || !strings.Contains(said, want+"\n") {
			t.Errorf("it says %s, want it to end with %s", said, want)
		}
	}
	var out strings.Builder
	if err := relay(strings.NewReader(begun+plan.Done+"\n"), &out); err != nil || out.String() != begun {
		t.Errorf("an answer with its end: %v, %s", err, out.String())
	}
}
