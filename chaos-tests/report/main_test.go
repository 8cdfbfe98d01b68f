package main

import (
	"strings"
	"testing"
)

func TestReport(t *testing.T) {
	tests := []struct {
		name, in string
		good     bool
		want     []string
	}{
		{"passed", `{"Action":"output","Package":"p","Test":"TestA","Output":"    a_test.go:3: measured: 5 ms\n"}
{"Action":"pass","Package":"p","Test":"TestA","Elapsed":1}
{"Action":"pass","Package":"p","Elapsed":2}`, true,
			[]string{"measured: 5 ms\n", "ok   p (2.0 s)\n", "1 passed, 0 failed, 0 skipped\n"}},
		{"failed", `{"Action":"output","Package":"p","Test":"TestA","Output":"    a_test.go:3: wrong\n"}
{"Action":"fail","Package":"p","Test":"TestA"}
{"Action":"fail","Package":"p"}`, false,
			[]string{"FAIL p TestA", "wrong\n", "0 passed, 1 failed, 0 skipped\n"}},
		{"skipped", `{"Action":"output","Package":"p","Test":"TestA","Output":"    a_test.go:3: needs root\n"}
{"Action":"output","Package":"p","Test":"TestA","Output":"--- SKIP: TestA (0.00s)\n"}
{"Action":"skip","Package":"p","Test":"TestA"}
{"Action":"pass","Package":"p","Test":"TestB"}`, true,
			[]string{"skipped:\n  p TestA: needs root\n", "1 passed, 0 failed, 1 skipped\n"}},
		{"does not build", `{"ImportPath":"p","Action":"build-output","Output":"x.go:1: syntax error\n"}
{"ImportPath":"p","Action":"build-fail"}
{"Action":"pass","Package":"q","Test":"TestB"}`, false, []string{"x.go:1: syntax error\n"}},
		{"nothing run", `{"Action":"pass","Package":"p"}`, false, []string{"0 passed"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var out strings.Builder
			r := &report{out: &out, output: map[string]*strings.Builder{}}
			if err := r.read(strings.NewReader(test.in)); err != nil {
				t.Fatal(err)
			}
			if good := r.finish(); good != test.good {
				t.Errorf("good is %v, want %v", good, test.good)
			}
			for _, want := range test.want {
				if !strings.Contains(out.String(), want) {
					t.Errorf("%q is not in the report:\n%s", want, out.String())
				}
			}
		})
	}
}
