package scene

import (
	"context"
	"errors"
	"slices"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/errdefs"

	"perdure/chaos-tests/checker"
	"perdure/chaos-tests/harness"
)

// reload connects to the container and its execs again where containerd was restarted. What is not there may never have
// come to be.
func (p *player) reload() error {
	if !p.Restarts || p.c == nil {
		return nil
	}
	err := p.c.Load(p.H.Context())
	for _, e := range p.execs {
		if failed := e.Load(p.H.Context()); !errdefs.IsNotFound(failed) {
			err = errors.Join(err, failed)
		}
	}
	if errdefs.IsNotFound(err) {
		return nil
	}
	return err
}

// createAgain makes the task anew. One that came to be without the client having been told has lost the client's fifos,
// which its library takes away: it must be there whole, or not at all, and must be able to be deleted.
func (p *player) createAgain(ctx context.Context, cfg harness.Config) error {
	if p.Restarts {
		_ = p.rec.Ask(p.target(""), checker.OpDelete, func(*checker.Call) error { return context.DeadlineExceeded }) // containerd may have
	}
	if p.c.Task != nil {
		if _, err := p.c.Task.Delete(ctx, client.WithProcessKill); err != nil && !errdefs.IsNotFound(err) {
			return err
		}
		p.c.Task = nil
	}
	return p.c.CreateTask(ctx, cfg)
}

// addAnew is likewise for an exec.
func (p *player) addAnew(ctx context.Context, cfg harness.ExecConfig) (*harness.Exec, error) {
	loaded, err := p.c.Task.LoadProcess(ctx, cfg.ID, nil)
	if err == nil {
		_, err = loaded.Delete(ctx)
	}
	if err != nil {
		return nil, err
	}
	return p.c.AddExec(ctx, cfg)
}

// lastLife tells the life that was lived from those that were created without the client having been told.
func lastLife(h *checker.History) {
	life, made := 1, slices.IndexFunc(h.Calls, func(c checker.Call) bool { return c.Op == checker.OpCreate && c.Code == checker.OK })
	for _, e := range h.Events {
		life = max(life, e.Life)
	}
	if made < 0 {
		return
	}
	for i := range h.Calls[made:] {
		h.Calls[made+i].Life = life
	}
	for i := range h.Runs {
		h.Runs[i].Life = life
	}
	if life == 1 { // nothing was forgotten
		h.Calls = append(slices.DeleteFunc(h.Calls[:made:made], func(c checker.Call) bool { return c.Op == checker.OpDelete }), h.Calls[made:]...)
	}
}
