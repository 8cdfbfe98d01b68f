//go:build crashpoints

package simulation

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing/synctest"
	"time"

	api "github.com/containerd/containerd/api/runtime/task/v2"
	"golang.org/x/sys/unix"

	"perdure/recovery"
	"perdure/store"
	"perdure/store/lifecycle"
	"perdure/task"
)

// worker is one life of the worker process: a service, and whether it was killed.
type worker struct {
	world   *world
	number  int
	svc     *task.Service
	serving bool // it has adopted what was there
	dead    atomic.Bool
	killed  chan struct{}
	ctx     context.Context
	end     context.CancelFunc
}

const keeperPID = 1

func (k *worker) isDead() bool { return k.dead.Load() }

// start begins a worker as the keeper does: it adopts, is told the exits, and is given the requests.
func (w *world) start() {
	w.workers++
	k := &worker{world: w, number: w.workers, killed: make(chan struct{})}
	k.ctx, k.end = context.WithCancel(context.Background())
	k.svc = task.New(task.Config{
		Keeper: channel{k}, Publisher: publisher{k}, Machine: hands{k}, Settle: settle,
		Now: time.Now, KeeperPID: keeperPID, Namespace: "sim", Group: "g", Address: "unix:///sim", Version: "sim", BootID: "boot",
		ShutdownWanted: w.keeper.shutdownWanted,
	})
	w.worker = k
	names, oldest := slices.Sorted(maps.Keys(w.keeper.names)), w.keeper.oldest()
	w.note("worker %d starts", k.number)
	go func() {
		if err := k.svc.AdoptAll(names, oldest); err != nil {
			if !k.isDead() {
				w.violation("worker %d cannot adopt: %v", k.number, err)
			}
			return
		}
		w.take(k, "adopted")
		k.serving = true
		w.keeper.tell()
		w.keeper.hand()
	}()
}

func settle(ctx context.Context, intent lifecycle.Record, world task.Inspector) (lifecycle.Record, error) {
	return recovery.Settle(ctx, intent, world)
}

// serve runs a request and has its answer written.
func (k *worker) serve(r *request) {
	ctx, cancel := context.WithCancel(k.world.keeper.marks(k.ctx, r))
	defer cancel()
	resp, err := r.method(ctx, k.svc)
	k.world.take(k, fmt.Sprintf("answer %03d %s", r.number, r.name))
	k.world.keeper.finish(r, resp, err)
}

// rescue starts a worker where there is none and somebody needs one, and ends one that has given up.
func (w *world) rescue() {
	if w.alive() {
		select {
		case err := <-w.worker.svc.Failed():
			w.note("the worker gives up: %v", err)
			if !w.faults.any() {
				w.violation("the worker gives up: %v", err)
			}
			w.crash(nil)
		default:
		}
	}
	if !w.alive() && !w.keeper.gone {
		w.start()
	}
}

// crash kills the worker: nothing of it happens any more, and what it does not know yet it never will. t is the turn that
// it did not live to have.
func (w *world) crash(t *turn) {
	k := w.worker
	w.note("KILLED at %s", labelOf(t))
	k.dead.Store(true)
	w.keepJournals()
	w.mu.Lock()
	var theirs []*turn
	w.waiting = slices.DeleteFunc(w.waiting, func(o *turn) bool {
		if o.worker == k {
			theirs = append(theirs, o)
		}
		return o.worker == k
	})
	if t != nil && t.worker != k {
		w.waiting = append(w.waiting, t) // the world goes on
	} else if t != nil {
		theirs = append(theirs, t)
	}
	w.mu.Unlock()
	close(k.killed)
	k.end()
	for _, o := range theirs {
		if o.granted != nil {
			o.granted <- false
		}
	}
	synctest.Wait()
	k.svc.Close() // ends its goroutines; none of them has hands any more
	synctest.Wait()
	w.environment(whileDead)
	w.recognise()
}

// recognise ends a case whose worlds, journals included, have been like this after a crash before, with the same still
// to come: whatever follows has been seen.
func (w *world) recognise() {
	if w.ends == nil || !w.counted {
		return
	}
	left := slices.DeleteFunc(slices.Clone(w.plan.Crashes), func(n int) bool { return n < w.turns })
	if len(left) > 0 {
		return
	}
	h := fnv.New64a()
	w.keeper.describe(h)
	w.machine.describe(h)
	fmt.Fprintln(h, w.plan.Scenario, w.plan.Private, w.plan.Reverse, w.plan.Fault, w.faults, w.broken, w.journals, w.lives, w.gone)
	for _, e := range w.plan.Events {
		if e.When == after {
			fmt.Fprintln(h, e.What)
		}
	}
	for _, t := range w.waiting {
		fmt.Fprintln(h, t.label)
	}
	for _, c := range w.history.Calls {
		fmt.Fprintln(h, c.Target, c.Op, c.Code, c.Message, c.Pid, c.State, c.Status, c.ExitedAt)
	}
	for _, e := range w.history.Events {
		fmt.Fprintln(h, e.Target, e.Name, e.Time, e.Raw)
	}
	w.known = w.ends[h.Sum64()]
	w.ends[h.Sum64()] = true
}

// mark is a turn: what a worker would leave that is killed instead of it, and its name.
type mark struct {
	left  uint64
	label string
}

// mark notes what a worker would leave that is killed now. Where nothing of it has changed since the turn before, it
// makes no difference which of the two it dies at.
func (w *world) mark(t *turn) {
	if !w.marking {
		return
	}
	h := fnv.New64a()
	w.keeper.describe(h)
	w.machine.describe(h)
	fmt.Fprintln(h, len(w.history.Calls), len(w.history.Events), w.faults)
	for _, name := range slices.Sorted(maps.Keys(w.keeper.names)) {
		if s := w.keeper.names[name]; s.file != nil && filepath.Base(name) == "journal" {
			_, _ = h.Write(lastTransactions(fmt.Sprintf("/proc/self/fd/%d", s.file.Fd())))
		}
	}
	for _, id := range w.ids() {
		_, _ = h.Write(lastTransactions(filepath.Join(w.bundle(id), store.Name)))
		entries, _ := os.ReadDir(w.bundle(id))
		for _, e := range entries {
			fmt.Fprintln(h, e.Name())
		}
	}
	w.marks = append(w.marks, mark{h.Sum64(), t.label})
}

// lastTransactions reads the two meta pages of a journal, one of which every transaction writes.
func lastTransactions(path string) []byte {
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	page := os.Getpagesize()
	meta := make([]byte, 2*page)
	_, _ = f.ReadAt(meta, 0)
	return slices.Concat(meta[:100], meta[page:page+100])
}

func labelOf(t *turn) string {
	if t == nil {
		return "its own fault"
	}
	return t.label
}

// keepJournals takes every journal out of a dead worker's hands: what is in the file now is copied, and the copy takes its
// place, so that the dead one goes on with a file that nobody finds.
func (w *world) keepJournals() {
	w.journals = nil
	byInode := map[uint64][]string{} // paths
	files := map[uint64]string{}     // a path to read it by
	_ = filepath.WalkDir(w.dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() && (d.Name() == store.Name || filepath.Base(filepath.Dir(path)) == task.SpoolDir) {
			if inode, err := inodeOf(path); err == nil {
				byInode[inode] = append(byInode[inode], path)
				files[inode] = path
			}
		}
		return nil
	})
	kept := map[uint64][]string{} // names in the keeper
	for name, s := range w.keeper.names {
		if s.file == nil || filepath.Base(name) != "journal" {
			continue
		}
		path := fmt.Sprintf("/proc/self/fd/%d", s.file.Fd())
		if inode, err := inodeOf(path); err == nil {
			kept[inode] = append(kept[inode], name)
			if files[inode] == "" {
				files[inode] = path
			}
		}
	}
	for _, inode := range slices.SortedFunc(maps.Keys(files), func(a, b uint64) int { return strings.Compare(files[a], files[b]) }) {
		path := files[inode]
		if err := w.replaceJournal(path, byInode[inode], kept[inode]); err != nil {
			w.violation("the simulation cannot copy a journal: %v", err)
		}
	}
}

func (w *world) replaceJournal(from string, paths, names []string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	sum := fnv.New64a()
	_, _ = sum.Write(data)
	w.journals = append(w.journals, fmt.Sprint(len(paths), names, sum.Sum64()))
	w.copies++
	temporary := filepath.Join(filepath.Dir(w.dir), fmt.Sprintf("copy-%d", w.copies))
	if err := os.WriteFile(temporary, data, 0o600); err != nil {
		return err
	}
	for _, path := range paths {
		if err := errors.Join(os.Link(temporary, path+".copy"), os.Rename(path+".copy", path)); err != nil {
			return err
		}
	}
	for _, name := range names {
		fd, err := unix.Open(temporary, unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		w.keeper.keep(name, os.NewFile(uintptr(fd), name))
	}
	return os.Remove(temporary)
}

func inodeOf(path string) (uint64, error) {
	var stat unix.Stat_t
	err := unix.Stat(path, &stat)
	return stat.Ino, err
}

// describe tells what clients would see of every process.
func (k *worker) describe(h io.Writer) {
	for _, t := range k.world.targets {
		s, err := k.svc.State(context.Background(), &api.StateRequest{ID: t.Container, ExecID: t.Exec})
		if err == nil {
			fmt.Fprintln(h, t, s.Status, s.ExitStatus)
		}
	}
}
