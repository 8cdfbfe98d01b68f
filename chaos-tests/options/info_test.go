package options

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	runcoptions "github.com/containerd/containerd/api/types/runc/options"
	"github.com/containerd/containerd/api/types/runtimeoptions/v1"

	"perdure/chaos-tests/daemon"
	"perdure/chaos-tests/harness"
)

// script is a runtime binary of a few lines.
func script(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "script")
	harness.Check(t, os.WriteFile(path, []byte("#!/bin/sh\n"+text+"\n"), 0o755))
	return path
}

// TestInfo: containerd learns of the runtime's features through -info, and the
// stock shim says the same.
func TestInfo(t *testing.T) {
	harness.NeedsPerdure(t)
	calls := newRecorder(t)
	h := harness.New(t)
	none := script(t, "echo unknown command features >&2; exit 1")
	for name, test := range map[string]struct {
		options  any
		alone    bool // the stock shim knows no such options
		features bool
		failure  string
	}{
		"no options":            {nil, false, true, ""},
		"the default binary":    {&runcoptions.Options{}, false, true, ""},
		"another binary":        {&runcoptions.Options{BinaryName: calls.path}, false, true, ""},
		"another, in a file":    {document(t, "binary_name = \""+calls.path+"\""), true, true, ""},
		"an empty document":     {&runtimeoptions.Options{}, true, true, ""},
		"no features command":   {&runcoptions.Options{BinaryName: none}, false, false, ""},
		"no JSON":               {&runcoptions.Options{BinaryName: script(t, "echo no JSON")}, false, false, ""},
		"a binary that hangs":   {&runcoptions.Options{BinaryName: script(t, "exec sleep 1000")}, true, false, ""},
		"a binary that is gone": {&runcoptions.Options{BinaryName: "no-such-runtime"}, false, false, "no-such-runtime"},
		"a mistake in a file":   {document(t, "\nbinary_nam = 'x'"), true, false, "line 2"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := h.Within(t, limit)
			began := time.Now()
			got, err := h.Client().RuntimeInfo(ctx, daemon.Runtime(), test.options)
			if test.failure != "" {
				if err == nil || !strings.Contains(err.Error(), test.failure) {
					t.Errorf("the error is %v, want %q in it", err, test.failure)
				}
			} else if err != nil || got.Name != "io.containerd.perdure.v2" || got.Version.Version == "" || (got.Features != nil) != test.features {
				t.Errorf("got %+v, %v", got, err)
			}
			if took := time.Since(began); took > 10*time.Second {
				t.Errorf("it took %v", took)
			}
			if test.alone {
				return
			}
			stock, stockErr := h.Client().RuntimeInfo(ctx, harness.Stock, test.options)
			if (stockErr == nil) != (err == nil) {
				t.Errorf("the error is %v, the stock shim's %v", err, stockErr)
			}
			if err == nil && stockErr == nil && (!reflect.DeepEqual(got.Features, stock.Features) || !reflect.DeepEqual(got.Options, stock.Options)) {
				t.Errorf("got %+v, the stock shim says %+v", got, stock)
			}
		})
	}
	calls.call(t, "features")
}
