package lifecycle

import "maps"

// Stamp completes a record as the next one of this container: sequence, From and To, and for a mark or an
// outcome the operation, exec and request of its intent where they were left out. It refuses nothing; that
// is Apply's part.
func (c *Container) Stamp(r Record) Record {
	r.Seq = c.Last + 1
	if open, ok := c.Open[r.Intent]; ok && r.Intent != 0 {
		if r.Op == "" {
			r.Op = open.Op
		}
		if r.Exec == "" {
			r.Exec = open.Exec
		}
		if r.Request == 0 {
			r.Request = open.Request
		}
	}
	r.From = c.Process(r.Exec).State
	r.To = r.From
	if to, err := c.target(r); err == nil {
		r.To = to
	}
	return r
}

// target returns the state of the record's process after it. Only outcomes that are done and observations
// move a process.
func (c *Container) target(r Record) (State, error) {
	from := c.Process(r.Exec).State
	if r.Phase != Done && r.Phase != Observed {
		return from, nil
	}
	to, err := Next(KindOf(r.Exec), from, r.Op)
	if err != nil && r.Phase == Done && r.Intent != 0 && from == Stopped {
		return Stopped, nil // an exit has overtaken the outcome
	}
	return to, err
}

// Apply returns the container after one more record, or a *[RecordError] (wrapping nothing) or, for an
// intent that must not begin, what Check says. The receiver is left as it was.
func (c *Container) Apply(r Record) (*Container, error) {
	if r.Seq <= c.Last {
		return nil, &RecordError{r, "its sequence number is not after the last one"}
	}
	if r.Phase == Launched || r.outcome() && r.Intent != 0 {
		if _, err := c.intent(r); err != nil {
			return nil, err
		}
	}
	if c.Init.State == Deleted && (r.Phase == Done || r.Phase == Observed) {
		return nil, &RecordError{r, "the container is deleted"}
	}
	to, err := c.target(r)
	if err != nil {
		return nil, err
	}
	// A record that moves nothing is not held to the state it was written in: compaction may have removed
	// the pause and resume around it.
	from := c.Process(r.Exec).State
	if (from != to || r.From != r.To) && (r.From != from || r.To != to) {
		return nil, &RecordError{r, "it says " + arrow(r.From, r.To) + " where the process goes " + arrow(from, to)}
	}
	n := *c
	n.Last = r.Seq
	switch {
	case r.Phase == Intent:
		err = n.open(r)
	case r.Phase == Launched:
		err = n.launch(r)
	case r.outcome():
		err = n.close(r)
	case r.Phase == Observed:
		err = n.observe(r)
	default:
		err = &RecordError{r, "it has no known phase"}
	}
	if err != nil {
		return nil, err
	}
	return &n, nil
}

func arrow(from, to State) string { return "from " + name(from) + " to " + name(to) }

func name(s State) string {
	if s == None {
		return "nothing"
	}
	return string(s)
}

// Fold replays a whole journal.
func Fold(records []Record) (*Container, error) { return Resume(Base{}, records) }

// Base is what compaction remembers of the records it has removed.
type Base struct {
	DeletedExecs uint64 `json:"deleted_execs,omitempty"` // execs whose records are gone
	Forgotten    uint64 `json:"forgotten,omitempty"`     // Container.Forgotten
	Last         uint64 `json:"-"`                       // Container.Last; the store keeps it elsewhere
}

// Resume replays a compacted journal.
func Resume(base Base, records []Record) (*Container, error) {
	c := &Container{DeletedExecs: base.DeletedExecs, Forgotten: base.Forgotten}
	var err error
	for _, r := range records {
		if c, err = c.Apply(r); err != nil {
			return nil, err
		}
	}
	c.Last = max(c.Last, base.Last)
	return c, nil
}

// Forget returns the container without the answers to requests below oldest.
func (c *Container) Forget(oldest uint64) *Container {
	if oldest <= c.Forgotten {
		return c
	}
	n := *c
	n.Forgotten = oldest
	n.Answers = maps.Clone(c.Answers)
	maps.DeleteFunc(n.Answers, func(request uint64, _ Record) bool { return request < oldest })
	return &n
}

func (c *Container) open(r Record) error {
	switch {
	case r.Op.Observation() || sameProcess[r.Op] == nil:
		return &RecordError{r, "only commands have intents"}
	case r.Intent != 0:
		return &RecordError{r, "an intent does not belong to another"}
	}
	if err := c.follows(r.Op, r.Exec); err != nil {
		return err
	}
	c.Open = with(c.Open, r.Seq, r)
	return nil
}

func (c *Container) launch(r Record) error {
	open := c.Open[r.Intent]
	if open.Phase == Launched {
		return &RecordError{r, "its intent is launched already"}
	}
	open.Phase = Launched
	c.Open = with(c.Open, r.Intent, open)
	return nil
}

// intent finds the open intent a mark or an outcome belongs to.
func (c *Container) intent(r Record) (Record, error) {
	open, ok := c.Open[r.Intent]
	switch {
	case !ok:
		return open, &RecordError{r, "its intent is not open"}
	case open.Op != r.Op || open.Exec != r.Exec || open.Request != r.Request:
		return open, &RecordError{r, "its intent is of another operation, process or request"}
	}
	return open, nil
}

// close takes an outcome. Some outcomes need no intent, because there is no effect that could be half done:
// adding an exec, closing a stdin (the record is the order to close it, carried out by whoever has the stream),
// and a refusal that is kept as an answer.
func (c *Container) close(r Record) error {
	open := c.Open[r.Intent]
	if r.Intent != 0 {
		c.Open = without(c.Open, r.Intent)
	} else if err := c.immediate(r); err != nil {
		return err
	}
	if r.Phase == Done {
		if err := c.effect(r, open); err != nil {
			return err
		}
	}
	if r.answers() && r.Request >= c.Forgotten {
		c.Answers = with(c.Answers, r.Request, r)
	}
	return nil
}

// follows is Check for a record, which may be an old one: what init's exit waited for when an exec was added may
// have been compacted away.
func (c *Container) follows(op Op, exec string) error {
	if op == OpExec && c.Init.State == Stopped {
		return c.allows(op, exec)
	}
	return c.Check(op, exec)
}

// immediate judges an outcome without intent.
func (c *Container) immediate(r Record) error {
	switch {
	case r.Op.Observation():
		return &RecordError{r, "an observation has no outcome"}
	case r.Phase == Failed:
		return nil
	case r.Phase == Done && (r.Op == OpExec || r.Op == OpCloseIO):
		return c.follows(r.Op, r.Exec)
	}
	return &RecordError{r, "an outcome needs an intent"}
}

// effect puts what was done into the state.
func (c *Container) effect(r, open Record) error {
	p := c.Process(r.Exec)
	p.State = r.To
	switch r.Op {
	case OpCreate, OpExec:
		if p.Params = r.Params; p.Params == nil {
			p.Params = open.Params
		}
		if r.Process != nil && r.Process.Pid <= 0 { // one that is restored from a checkpoint has none before its start
			return &RecordError{r, "a created container has an init process"}
		}
	case OpStart:
		if (r.Process == nil || r.Process.Pid <= 0) && (r.Exec != "" || p.Process.Pid == 0) {
			return &RecordError{r, "a started process has a pid"}
		}
	case OpCloseIO:
		p.StdinClosed = true
	case OpDelete:
		return c.remove(r, p)
	}
	if r.Process != nil && (r.Op == OpCreate || r.Op == OpStart) {
		p.Process, p.Cgroup = *r.Process, r.Cgroup
	}
	if r.Op == OpCreate || r.Op == OpStart && r.To == Running {
		p.Started = r.At
	}
	c.put(p)
	return nil
}

// remove takes a process out: an exec vanishes, init stays as deleted. The exit of init is recorded first,
// as unknown if need be: nothing is published for a task after its TaskDelete.
func (c *Container) remove(r Record, p ProcessState) error {
	if r.Exec != "" {
		c.Execs = without(c.Execs, r.Exec)
		c.DeletedExecs++
		return nil
	}
	if p.Exit == nil || c.Live() > 0 {
		return &RecordError{r, "the exits of init and of every exec come before the delete"}
	}
	c.put(p)
	return nil
}

// observe takes an exit or an oom.
func (c *Container) observe(r Record) error {
	if !r.Op.Observation() || r.Intent != 0 || r.Request != 0 {
		return &RecordError{r, "only exit and oom are observed, and nobody asks for them"}
	}
	p := c.Process(r.Exec)
	if r.Op == OpOOM {
		return c.oom(r, p)
	}
	if err := c.exit(r, p); err != nil {
		return err
	}
	p.State, p.Exit = Stopped, r.Exit
	c.put(p)
	return nil
}

// oom takes an oom of the container, which is recorded with init. That it comes before the exit of init is told is
// left to Check: compaction may have removed the exec that it was told of.
func (c *Container) oom(r Record, p ProcessState) error {
	if r.OOM == nil || r.OOM.Told <= p.OOM.Told || r.OOM.Kills < p.OOM.Kills {
		return &RecordError{r, "an oom has the sums of what is told"}
	}
	p.OOM = *r.OOM
	c.put(p)
	return nil
}

// exit judges an exit. An exec that was never seen to start has no process; only recovery ends it, as unknown.
func (c *Container) exit(r Record, p ProcessState) error {
	var who Process
	if r.Process != nil {
		who = *r.Process
	}
	_, starting := c.Opened(OpStart, r.Exec)
	switch {
	case r.Exit == nil:
		return &RecordError{r, "an exit has a status"}
	case who != p.Process:
		return &RecordError{r, "it is the exit of another process"}
	case who == Process{} && (r.Exit.Source != Unknown || starting):
		return &RecordError{r, "a process that was not started can only be lost, after its start has failed"}
	case r.Exit.At.Before(p.Started):
		return &RecordError{r, "it is earlier than the start of the process"}
	}
	return nil
}

func (c *Container) put(p ProcessState) {
	if p.ID == "" {
		c.Init = p
		return
	}
	c.Execs = with(c.Execs, p.ID, p)
}

// with and without are copy on write.
func with[K comparable, V any](m map[K]V, k K, v V) map[K]V {
	n := make(map[K]V, len(m)+1)
	maps.Copy(n, m)
	n[k] = v
	return n
}

func without[K comparable, V any](m map[K]V, k K) map[K]V {
	if _, ok := m[k]; !ok {
		return m
	}
	n := maps.Clone(m)
	delete(n, k)
	return n
}
