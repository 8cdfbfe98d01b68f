package task

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"

	api "github.com/containerd/containerd/api/runtime/task/v2"
	"github.com/containerd/containerd/api/types"
	"github.com/containerd/errdefs"
	"github.com/containerd/log"

	"perdure/internal/crash"
	"perdure/runtime"
	"perdure/store"
	"perdure/store/lifecycle"
	"perdure/task/options"
)

// createParams are journaled with the intent of a create: all that a later
// worker needs to go on with the container.
type createParams struct {
	Stdio   runtime.Stdio   `json:"stdio"`
	Rootfs  []runtime.Mount `json:"rootfs,omitempty"`
	Options runtimeOptions  `json:"options"`
	// Image is what the container is restored from, nil for a new one.
	Image *runtime.Image `json:"image,omitempty"`
	// PrivatePIDNamespace is read from config.json once: a later worker may
	// find the bundle gone.
	PrivatePIDNamespace bool `json:"privatePIDNamespace,omitempty"`
	// Dumpable is set where CRIU was there to dump the container: it cannot dump
	// an init whose output is a named fifo of the host's.
	Dumpable bool `json:"dumpable,omitempty"`
}

type pidAnswer struct {
	Pid uint32 `json:"pid"`
}

// identifier is containerd's rule for ids (containerd, pkg/identifiers): it
// keeps ids out of path arithmetic.
var identifier = regexp.MustCompile(`^[A-Za-z0-9]+(?:[._-][A-Za-z0-9]+)*$`)

const identifierMax = 76

func checkID(what, id string) error {
	if len(id) > identifierMax || !identifier.MatchString(id) {
		return errorf(errdefs.ErrInvalidArgument, "%s %q: must be at most %d letters, digits and single . _ - between them", what, id, identifierMax)
	}
	return nil
}

// Create makes a container up to the point where its process waits for Start.
func (s *Service) Create(ctx context.Context, r *api.CreateTaskRequest) (*api.CreateTaskResponse, error) {
	if err := checkID("container id", r.ID); err != nil {
		return nil, err
	}
	c, err := s.open(ctx, r)
	if err != nil {
		return nil, err
	}
	var answer pidAnswer
	err = c.run(ctx, command{op: lifecycle.OpCreate, params: c.params, effect: c.create, dated: true}, &answer)
	if err != nil {
		// One whose outcome could not be written is the next worker's.
		if _, open := c.state().Opened(lifecycle.OpCreate, ""); !open && c.state().Init.State == lifecycle.None {
			c.vanish(false)
		}
		return nil, err
	}
	return &api.CreateTaskResponse{Pid: answer.Pid}, nil
}

func paramsOf(r *api.CreateTaskRequest) (createParams, error) {
	options, err := optionsOf(r.Options)
	if err != nil {
		return createParams{}, fmt.Errorf("container %s: %w", r.ID, err)
	}
	params := createParams{
		Stdio:   runtime.Stdio{Stdin: r.Stdin, Stdout: r.Stdout, Stderr: r.Stderr, Terminal: r.Terminal},
		Rootfs:  mountsOf(r.Rootfs),
		Options: options,
	}
	if r.Checkpoint != "" {
		if err := checkPath("checkpoint image", r.Checkpoint); err != nil {
			return params, fmt.Errorf("container %s: %w", r.ID, err)
		}
		if _, err := os.Stat(r.Checkpoint); err != nil {
			return params, errorf(errdefs.ErrInvalidArgument, "container %s: checkpoint image: %v", r.ID, err)
		}
		params.Image = &runtime.Image{Path: r.Checkpoint, ParentPath: r.ParentCheckpoint, WorkPath: options.CriuWorkPath}
	}
	return params, nil
}

func mountsOf(in []*types.Mount) []runtime.Mount {
	var out []runtime.Mount
	for _, m := range in {
		out = append(out, runtime.Mount{Type: m.Type, Source: m.Source, Target: m.Target, Options: m.Options})
	}
	return out
}

// open finds the container that a replayed create has made already, or makes
// its journal. The keeper has the bundle before the journal exists, so that
// the next worker finds whatever was begun.
func (s *Service) open(ctx context.Context, r *api.CreateTaskRequest) (*container, error) {
	req, id := requestOf(ctx), r.ID
	// One that recovery is still taking back is out of the way then.
	switch c, err := s.settled(ctx, id); {
	case err == nil && req.replay && c.instance == strconv.FormatUint(req.number, 10):
		return c, nil
	case err != nil && !errors.Is(err, errdefs.ErrNotFound):
		return nil, err
	}
	if c, err := s.lookup(id); err == nil && c.state().Init.State == lifecycle.Deleted {
		_ = c.depart(0) // its Delete is committed and nobody waits for the answer any more
	}
	if c, err := s.lookup(id); err == nil && c.failedCreate() {
		c.vanish(false) // likewise
	}
	if err := s.reserve(id); err != nil {
		return nil, err
	}
	defer s.unreserve(id)
	// Only now: what a replayed create was made from may have changed since.
	params, err := paramsOf(r)
	if err != nil {
		return nil, err
	}
	if err := s.checkLog(id, params.Options); err != nil {
		return nil, err
	}
	instance := strconv.FormatUint(req.number, 10)
	c, err := s.begin(id, instance, r.Bundle, params)
	if err != nil {
		return nil, errors.Join(err, s.letGo(keeperKey(id, instance), 0))
	}
	close(c.adopted)
	s.enter(c)
	return c, nil
}

// begin makes the journal of a new container and stores it with the keeper.
func (s *Service) begin(id, instance, bundle string, params createParams) (*container, error) {
	spec, dir, err := openBundle(id, bundle)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	params.PrivatePIDNamespace, params.Dumpable = spec.PrivatePIDNamespace, s.Machine.HasCRIU()
	key := keeperKey(id, instance)
	if err = crash.Fail(string(lifecycle.OpCreate), "", crash.BeforeBundle); err == nil {
		err = s.Keeper.Store(key+"/bundle", dir)
	}
	if err != nil {
		return nil, fmt.Errorf("container %s: store the bundle with the keeper: %w", id, err)
	}
	crash.Here(string(lifecycle.OpCreate), "", crash.AfterBundle)
	meta := s.meta(id, instance, bundle)
	meta.Runtime, meta.Root, meta.SystemdCgroup = params.Options.Binary, params.Options.Root, params.Options.SystemdCgroup
	journal, err := createJournal(bundle, meta)
	if err != nil {
		if errors.Is(err, store.ErrExists) {
			return nil, errorf(errdefs.ErrAlreadyExists, "container %s: bundle %s has a journal of a task; delete that task first", id, bundle)
		}
		return nil, fmt.Errorf("container %s: create journal: %w", id, err)
	}
	crash.Here(string(lifecycle.OpCreate), "", crash.AfterJournal)
	if err = params.Options.Save(bundle); err == nil {
		err = crash.Fail(string(lifecycle.OpCreate), "", crash.AfterOptions)
	}
	if err == nil {
		err = s.storeJournal(key, journal)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("container %s: %w", id, err), journal.Close(), removeRecords(bundle))
	}
	return newContainer(s, journal, params), nil
}

// removeRecords removes what begin has written into a bundle. None is no error.
func removeRecords(bundle string) error {
	options.Remove(bundle)
	return removeDatabase(bundle)
}

func removeDatabase(bundle string) error {
	err := os.Remove(filepath.Join(bundle, store.Name))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// createJournal makes a journal in a bundle. A file that is none stands aside
// under another name, said loudly: no task of this shim can be in it.
func createJournal(bundle string, meta store.Meta) (*store.Journal, error) {
	journal, err := store.Create(bundle, meta)
	if !errors.Is(err, store.ErrDamaged) {
		return journal, err
	}
	aside, failed := store.SetAside(filepath.Join(bundle, store.Name))
	if failed != nil {
		return nil, errors.Join(err, failed)
	}
	log.L.WithError(err).WithField("container", meta.ID).Errorf("the journal in the bundle is kept as %s", aside)
	return store.Create(bundle, meta)
}

// storeJournal gives the keeper a description of the journal's file of its own:
// the lock belongs to the worker's, and must end with the worker.
func (s *Service) storeJournal(key string, journal *store.Journal) error {
	f, err := journal.File()
	if err != nil {
		return err
	}
	defer f.Close()
	if err := s.Keeper.Store(key+"/journal", f); err != nil {
		return fmt.Errorf("store the journal with the keeper: %w", err)
	}
	return nil
}

func openBundle(id, bundle string) (*runtime.Spec, *os.File, error) {
	if !filepath.IsAbs(bundle) {
		return nil, nil, errorf(errdefs.ErrInvalidArgument, "container %s: bundle path %q is not absolute", id, bundle)
	}
	spec, err := runtime.ReadSpec(bundle)
	if errors.Is(err, os.ErrNotExist) {
		return spec, nil, errorf(errdefs.ErrInvalidArgument, "container %s: bundle %s has no config.json", id, bundle)
	}
	if err != nil {
		return spec, nil, errorf(errdefs.ErrInvalidArgument, "container %s: %v", id, err)
	}
	dir, err := os.Open(bundle)
	if err != nil {
		return spec, nil, fmt.Errorf("container %s: open bundle: %w", id, err)
	}
	return spec, dir, nil
}

func (s *Service) runtime(meta store.Meta, params createParams) Runtime {
	o := params.Options
	return s.Machine.Runtime(runtime.Config{
		Namespace: meta.Namespace, ID: meta.ID, Bundle: meta.Bundle, Instance: meta.Instance,
		Binary: o.Binary, Root: o.Root, SystemdCgroup: o.SystemdCgroup,
		NoPivotRoot: o.NoPivotRoot, NoNewKeyring: o.NoNewKeyring, IoUID: o.IoUID, IoGID: o.IoGID,
		KeeperPID: s.KeeperPID, Timeout: runcTimeout, Restores: params.Image != nil,
	})
}

// create is the effect of Create: rootfs, stdio, runc create. End cuts it short.
func (c *container) create(ctx context.Context, intent lifecycle.Record) (int, error) {
	ctx, cancel := c.untilGivenUp(ctx)
	defer cancel()
	bundle := c.journal.Meta().Bundle
	if err := c.svc.Machine.MountRootfs(bundle, c.params.Rootfs); err != nil {
		return 0, fmt.Errorf("container %s: mount rootfs: %w", c.id, err)
	}
	crash.Here(string(lifecycle.OpCreate), "", crash.AfterMount)
	if c.restores() {
		return 0, nil // its start does the rest, with the client's fifos: nothing runs before
	}
	io, err := c.openIO(ctx, "", c.params.Stdio, intent)
	if err != nil {
		return 0, err
	}
	pid, err := c.runc.Create(ctx, intent.IntentName(), io, func() error { return c.launched(intent) })
	if err != nil {
		return 0, err
	}
	crash.Here(string(lifecycle.OpCreate), "", crash.AfterRuntime)
	return pid, io.Started()
}

// openIO makes the stdio of a process that is about to be launched, and carries
// out a CloseIO that has come before it.
func (c *container) openIO(ctx context.Context, exec string, stdio runtime.Stdio, intent lifecycle.Record) (IO, error) {
	c.streams.closed(ctx, exec)
	o := c.ioOptions(exec, intent)
	o.GiveUp = ctx.Done()
	io, err := c.svc.Machine.OpenIO(c.svc.Keeper, c.ioPrefix(exec), stdio, o)
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("%w: %w", err, ctx.Err())
	}
	if err != nil {
		return nil, fmt.Errorf("container %s: %s: stdio: %w", c.id, processName(exec), err)
	}
	c.streams.put(exec, io)
	crash.Here(string(intent.Op), exec, crash.AfterStdio)
	return io, c.closeStdin(exec)
}

// untilGivenUp bounds a create by End, which wants it over.
func (c *container) untilGivenUp(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		select {
		case <-c.giveUp:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// undoCreate removes what a create that failed, or was cut off, left in the
// world. It can be repeated.
func (c *container) undoCreate(ctx context.Context) error {
	const intent = "undo-create"
	var errs []error
	// One that an earlier worker began would remove what the next create has made by then.
	if err := c.runc.WaitOrphans(ctx, intent); err != nil {
		errs = append(errs, fmt.Errorf("wait for an earlier removal: %w", err))
	}
	if err := c.runc.Delete(ctx, intent, true); err != nil {
		errs = append(errs, fmt.Errorf("remove from the runtime: %w", err))
	}
	crash.Here("undo", "", crash.AfterRuntime)
	_, err := c.streams.close("")
	errs = append(errs, err)
	crash.Here("undo", "", crash.AfterStreams)
	if err := c.svc.Machine.UnmountRootfs(c.journal.Meta().Bundle); err != nil {
		errs = append(errs, fmt.Errorf("unmount rootfs: %w", err))
	}
	return errors.Join(errs...)
}

// vanish takes back a container whose create did not succeed: nothing of it is
// left, and its id can be used again. It does so once: a second caller waits, as
// the id may be another's afterwards.
func (c *container) vanish(owed bool) { c.vanishing.Do(func() { c.takeBack(owed) }) }

func (c *container) takeBack(owed bool) {
	if c.svc.closed() {
		return // it did not fail: it is the next worker's
	}
	ctx, cancel := context.WithTimeout(context.Background(), effectTimeout)
	defer cancel()
	undone := c.undoCreate(ctx)
	if undone != nil {
		c.svc.warn(c.id, "undo a failed create", undone)
	}
	c.forget(owed, undone == nil)
}

// forget removes the records of a container that does not exist. Where its
// create is owed an answer it is made again, and the keeper goes on holding the
// client's fifos, or their readers would see an end. A create that has failed is
// not: the keeper has its journal until it is answered. What `delete` has to know
// stays where the create is not undone.
func (c *container) forget(owed, undone bool) {
	if c.svc.closed() {
		return
	}
	c.close()
	crash.Here("forget", "", crash.AfterClose)
	if undone {
		options.Remove(c.journal.Meta().Bundle)
	}
	_ = removeDatabase(c.journal.Meta().Bundle)
	c.runc.CleanAll()
	crash.Here("forget", "", crash.AfterRecords)
	var dropped error
	create, _ := strconv.ParseUint(c.instance, 10, 64)
	if owed {
		for _, name := range []string{c.key() + "/bundle", c.key() + "/journal", c.oomPrefix()} {
			dropped = errors.Join(dropped, c.svc.Keeper.Drop(name))
		}
	} else {
		dropped = c.svc.letGo(c.key(), create)
	}
	if dropped != nil {
		c.svc.warn(c.id, "drop descriptors", dropped)
	}
	crash.Here("forget", "", crash.AfterRelease)
	c.svc.remove(c)
	// Not at once: a connection that ends with the answer in it is told as closed, and not what the answer says (ttrpc's
	// client); and whoever has asked for it deletes and shuts down after a create that has failed.
	c.svc.leaveLater()
}

// letGo drops all that the keeper has of a container that does not exist, once the
// answer to its create is out; 0 is at once. An attempt whose replay does not come may
// have left a logger: that is ended first, because the end of its input alone does not
// end every one. (A create that is made again ends the logger of the last attempt
// itself.)
func (s *Service) letGo(key string, create uint64) error {
	return errors.Join(s.Machine.CloseIO(s.Keeper, initPrefix(key)), s.Keeper.DropAfter(key, create))
}

// initPrefix is where the keeper has the stdio of a container's init.
func initPrefix(key string) string { return key + "/init" }

func (c *container) ioPrefix(exec string) string {
	if exec == "" {
		return initPrefix(c.key())
	}
	return c.key() + "/exec/" + exec
}

func (c *container) ioOptions(exec string, intent lifecycle.Record) runtime.IOOptions {
	p, _ := c.state().process(exec)
	id := exec // what a logger is told, as with the stock shim
	if exec == "" {
		id = c.id
	}
	return runtime.IOOptions{
		Direct:      exec == "" && c.params.PrivatePIDNamespace && !c.params.Dumpable,
		Bundle:      c.journal.Meta().Bundle,
		Intent:      intent.IntentName(),
		StdinClosed: p.StdinClosed,
		UID:         c.params.Options.IoUID,
		GID:         c.params.Options.IoGID,
		Namespace:   c.journal.Meta().Namespace,
		ID:          id,
	}
}

// stdioOf is what the client asked for as a process's stdio.
func (c *container) stdioOf(p lifecycle.ProcessState) (runtime.Stdio, error) {
	if p.ID == "" {
		return c.params.Stdio, nil
	}
	params, err := decodeParams[execParams](p.Params)
	if err != nil {
		return runtime.Stdio{}, fmt.Errorf("container %s: %s: %w", c.id, processName(p.ID), err)
	}
	return params.Stdio, nil
}

func decodeParams[T any](raw json.RawMessage) (T, error) {
	var params T
	if len(raw) == 0 {
		return params, nil
	}
	err := json.Unmarshal(raw, &params)
	return params, err
}
