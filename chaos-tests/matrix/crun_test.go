//go:build chaos

package matrix

import (
	"testing"
	"time"

	"github.com/containerd/containerd/v2/pkg/oci"

	"perdure/chaos-tests/harness"
)

// TestCrun has the worker end once at each point, with crun.
func TestCrun(t *testing.T) {
	options := harness.Crun(t)
	c := newCompany(t)
	c.options, c.spec = options, []oci.SpecOpts{harness.CrunSpec}
	if jobs := only(t); jobs != nil {
		c.all(jobs, nil)
		return
	}
	began := time.Now()
	p := newPlan()
	c.all(lives(), p.learn)
	singles := p.singles()
	c.all(singles, nil)
	t.Logf("measured: crun: %d points in %v", len(singles), time.Since(began).Round(time.Second))
}
