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
		by:    "task TestTheExitOfInitIsToldAfterItsExecs",
	},
	{
		name: "stopped-before-it-is-told", file: "task/reads.go", in: "func (v *view) status(",
		old: `if exec == "" && !v.InitExitTold() {`, new: `if exec != "" && !v.InitExitTold() {`,
		hurts: "State says stopped while an exec still runs",
		by:    "task TestTheExitOfInitIsToldAfterItsExecs",
	},
}
