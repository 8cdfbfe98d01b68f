package main

var taskMutants = []mutant{
	{
		name: "exit-acknowledged-before-the-commit", file: "task/inbox.go", in: "func (c *container) takeExits(",
		old: "done, err := c.exited(a)", new: "c.svc.exits.settled(a.id, a.Seq)\n\t\tdone, err := c.exited(a)",
		hurts: "a worker killed over an exit takes it along: the container is up for ever",
		by:    "task TestAnExitIsJournaledBeforeItIsAcknowledged",
	},
	{
		name: "exit-has-the-time-of-its-record", file: "task/inbox.go", in: "func (c *container) exited(",
		old: "At: p.Clamp(a.At)", new: "At: p.Clamp(c.svc.Now())",
		hurts: "an exit that happened while no worker was there has the time of the restart",
		by:    "task TestAnExitIsJournaledBeforeItIsAcknowledged",
	},
	{
		name: "status-of-a-signal-not-shifted", file: "task/inbox.go", in: "func waitStatus(",
		old: "return 128 + uint32(e.Status.Signal())", new: "return uint32(e.Status.Signal())",
		hurts: "a killed container is reported to have ended with 9",
		by:    "task TestAnExitIsJournaledBeforeItIsAcknowledged",
	},
	{
		name: "raw-wait-status", file: "task/inbox.go", in: "func waitStatus(",
		old: "return uint32(e.Status.ExitStatus())", new: "return uint32(e.Status)",
		hurts: "exit code 1 is reported as 256",
		by:    "task TestAnExitIsJournaledBeforeItIsAcknowledged",
	},
	{
		name: "event-removed-before-it-has-arrived", file: "task/outbox.go", in: "func (o *outbox) send(",
		old: "if err := o.forward(ctx, row); err != nil {", new: "if err := errors.Join(o.journal.Acknowledge(row.Seq), o.forward(ctx, row)); err != nil {",
		hurts: "an event is lost when containerd is away, or the worker killed over it",
		by:    "task TestAnEventStaysUntilItHasArrived",
	},
	{
		name: "undelivered-event-passed-over", file: "task/outbox.go", in: "func (o *outbox) send(",
		old: "if err := o.forward(ctx, row); err != nil {", new: "if err := o.forward(ctx, row); err != nil && ctx.Err() != nil {",
		hurts: "what happens while containerd is away is never told",
		by:    "task TestAnEventStaysUntilItHasArrived",
	},
	{
		name: "pid-alone-credits-an-exit", file: "task/exits.go", in: "func (x *exits) claimed(",
		old: "if known || e.Start != 0 {", new: "if known {",
		hurts: "the exit of a stranger ends a container that runs",
		by:    "task TestAStrangersExitIsNobodys",
	},
	{
		name: "early-exit-is-nobodys", file: "task/exits.go", in: "func (x *exits) awaited(",
		old: "if began < e.came {", new: "if began > e.came {",
		hurts: "a process that ends before runc has told its pid never ends",
		by:    "task TestAnEarlyExitIsHeld",
	},
	{
		name: "keeper-not-told-to-hold", file: "task/exits.go", in: "func (x *exits) opened(",
		old: "x.keeper.Hold(true)", new: "x.keeper.Hold(false)",
		hurts: "with thousands of children at once the exit of a new process is lost",
		by:    "task TestAnEarlyExitIsHeld",
	},
	{
		name: "exit-not-watched", file: "task/exits.go", in: "func (x *exits) claim(",
		old: "x.keeper.Watch(p.Pid, p.Start)", new: "_ = x.keeper",
		hurts: "with thousands of children at once the exit of an init is lost",
		by:    "task TestAProcessIsWatched",
	},
	{
		name: "held-exit-never-told", file: "task/container.go", in: "func (c *container) commit(",
		old: "if next.InitExitTold() && !before.InitExitTold() {", new: "if next.InitExitTold() && before.Init.Exit == nil {",
		hurts: "the exit of an init that ended before its execs is never told",
		by:    "task TestTheExitOfInitIsToldAfterItsExecs",
	},
	{
		name: "event-without-a-kick", file: "task/container.go", in: "func (c *container) commit(",
		old: "if len(events) > 0 {", new: "if len(events) > 1 {",
		hurts: "an event is told when the next one is, or never",
		by:    "chaos-tests/simulation TestEachOperation/pause",
	},
	{
		name: "stopped-before-it-is-told", file: "task/reads.go", in: "func (v *view) status(",
		old: `if exec == "" && !v.InitExitTold() {`, new: `if exec != "" && !v.InitExitTold() {`,
		hurts: "State says stopped while an exec still runs",
		by:    "task TestTheExitOfInitIsToldAfterItsExecs",
	},
	{
		name: "exit-told-before-its-oom", file: "task/inbox.go", in: "func (c *container) commitExit(",
		old: "events = append(events, exitEvent(c.id, exec, p))", new: "events = slices.Insert(events, 0, exitEvent(c.id, exec, p))",
		hurts: "the OOM that explains an exit comes after it",
		by:    "chaos-tests/simulation TestEachOperation/oom",
	},
	{
		name: "spool-link-skipped", file: "task/spool.go", in: "func linkInto(",
		old: "err := os.Link(journal, path)", new: "err := error(nil)",
		hurts: "the bundle takes the last events of a deleted container along",
		by:    "chaos-tests/simulation TestEachOperation/delete",
	},
	{
		name: "delete-answered-before-its-events", file: "task/delete.go", in: "func (c *container) depart(",
		old: "if err := c.outbox.drained(ctx); err != nil {", new: "if err := ctx.Err(); err != nil {",
		hurts: "the exit and delete events of a container that is deleted are lost",
		by:    "chaos-tests/simulation TestEachOperation/delete",
	},
	{
		name: "descriptors-dropped-before-the-answer", file: "task/delete.go", in: "func (c *container) release(",
		old: "DropAfter(c.key(), request)", new: "DropAfter(c.key(), request*0)",
		hurts: "a worker killed over the answer to a Delete is followed by one that says not found",
		by:    "chaos-tests/simulation TestEachOperation/delete",
	},
	{
		name: "replay-executed-again", file: "task/command.go", in: "func (c *container) begin(",
		old: "ok && req.replay && earlier.Op == cmd.op", new: "ok && !req.replay && earlier.Op == cmd.op",
		hurts: "a request whose answer is in the journal is refused or done twice",
		by:    "chaos-tests/simulation TestEachOperation/exec-add",
	},
	{
		name: "outcome-before-the-effect", file: "task/command.go", in: "func (c *container) decide(",
		old: "pid, err = cmd.effect(effects, begun)",
		new: "if cmd.op == lifecycle.OpKill {\n\t\tdefer func() { _, _ = cmd.effect(effects, begun) }()\n" +
			"\t\treturn c.conclude(concluding, lifecycle.Record{Op: cmd.op, Exec: cmd.exec, Phase: lifecycle.Done, Intent: begun.Seq, Request: req.number})\n" +
			"\t}\n\tpid, err = cmd.effect(effects, begun)",
		hurts: "a kill is answered and never sent",
		by:    "chaos-tests/simulation TestEachOperation/kill",
	},
	{
		name: "answer-before-the-commit", file: "task/command.go", in: "func (c *container) begin(",
		old: "r, err = c.open(req, cmd)",
		new: "if cmd.effect == nil {\n\t\t\t\t\tr = lifecycle.Record{Op: cmd.op, Phase: lifecycle.Done}\n" +
			"\t\t\t\t\tgo c.do(func() { _, _ = c.open(req, cmd) })\n\t\t\t\t\treturn\n\t\t\t\t}\n\t\t\t\tr, err = c.open(req, cmd)",
		hurts: "an exec that was acknowledged is not there",
		by:    "chaos-tests/simulation TestEachOperation/exec-add",
	},
	{
		name: "exec-forked-without-the-mark", file: "task/process.go", in: "func (c *container) startExec(",
		old: "func() error { return c.launched(intent) }", new: "func() error { return nil }",
		hurts: "an exec whose worker is killed is run twice",
		by:    "chaos-tests/simulation TestEachOperation/exec-start",
	},
	{
		name: "init-started-without-the-mark", file: "task/process.go", in: "func (c *container) startInit(",
		old: "if err := c.launched(intent); err != nil {", new: "if err := ctx.Err(); err != nil {",
		hurts: "the start of a container whose worker is killed fails although it runs",
		by:    "chaos-tests/simulation TestEachOperation/start",
	},
	{
		name: "running-processes-not-claimed", file: "task/adopt.go", in: "func (c *container) claimLive(",
		old: "p.Process.Pid != 0 && p.Exit == nil", new: "p.Process.Pid != 0 && p.Exit != nil",
		hurts: "a container that was adopted never ends",
		by:    "chaos-tests/simulation TestEachOperation/exits",
	},
	{
		name: "kill-not-repeated", file: "task/adopt.go", in: "func (c *container) settle(",
		old: "case r.Op == lifecycle.OpKill && r.Phase == lifecycle.Done:", new: "case r.Op == lifecycle.OpKill && r.Phase == lifecycle.Failed:",
		hurts: "a kill whose worker is killed is answered and never sent",
		by:    "task TestWhatAJudgementAsksForIsDone",
	},
	{
		name: "failed-exec-keeps-its-streams", file: "task/adopt.go", in: "func (c *container) settle(",
		old: "case brings && r.Op == lifecycle.OpStart && r.Phase == lifecycle.Failed:", new: "case brings && r.Op == lifecycle.OpStart && r.Phase == lifecycle.Undone:",
		hurts: "the reader of an exec that could not be started waits for ever",
		by:    "task TestWhatAJudgementAsksForIsDone",
	},
	{
		name: "replayed-create-starts-over", file: "task/create.go", in: "func (s *Service) open(",
		old: "req.replay && c.instance == strconv.FormatUint(req.number, 10)", new: "req.replay && c.instance != strconv.FormatUint(req.number, 10)",
		hurts: "a create whose worker is killed fails with already exists",
		by:    "chaos-tests/simulation TestEachOperation/create",
	},
	{
		name: "undone-create-left-behind", file: "task/adopt.go", in: "func (c *container) recover(",
		old: "case c.state().Init.State != lifecycle.None:", new: "case c.state().Init.State == lifecycle.None:",
		hurts: "half a container stays, and its id cannot be created again",
		by:    "chaos-tests/simulation TestEachOperation/create",
	},
}
