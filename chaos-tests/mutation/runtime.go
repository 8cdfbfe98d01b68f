package main

var runtimeMutants = []mutant{
	{
		name: "stranger-signalled", file: "runtime/identity.go", in: "func OpenProcess(",
		old: "if err == nil && now == start {", new: "if err == nil && now > 0 {",
		hurts: "a kill hits whoever has the pid of an ended process",
		by:    "runtime TestProcessIdentity",
	},
	{
		name: "stranger-adopted", file: "runtime/identity.go", in: "func ChildStartTime(",
		old: "of != parent", new: "of == 0",
		hurts: "a process of the host that got the pid is taken for the container's init",
		by:    "runtime TestOnlyAChildIsIdentified",
	},
	{
		name: "zombie-taken-for-alive", file: "runtime/identity.go", in: "func stat(",
		old: "state == 'Z' || state == 'X'", new: "state == 'X'",
		hurts: "an ended process is reported as running",
		by:    "runtime TestProcessIdentity",
	},
	{
		name: "orphan-overlooked", file: "runtime/orphans.go", in: "func (r *Runc) orphans(",
		old: "case leads(pid) && carries(pid, marker):", new: "case !leads(pid) && carries(pid, marker):",
		hurts: "runc is still at work while its effect is judged: two inits for one id",
		by:    "runtime TestOrphanedCreateIsAwaited",
	},
	{
		name: "hooks-daemon-killed", file: "runtime/orphans.go", in: "func leads(",
		old: "&& group == pid && session != pid", new: "&& group != 0 && session != 0",
		hurts: "what a hook has left running on purpose is killed",
		by:    "runtime TestDaemonOfAHookIsNoOrphan",
	},
	{
		name: "fork-of-the-worker-overlooked", file: "runtime/orphans.go", in: "func (r *Runc) orphans(",
		old: "case r.KeeperPID != 0 && parent == r.KeeperPID && executes(pid, program):", new: "case r.KeeperPID != 0 && parent == r.KeeperPID && executes(pid, program) && leads(pid):",
		hurts: "a runc that is about to begin is overlooked: user code runs twice",
		by:    "runtime TestForkOfTheWorkerIsAnOrphan",
	},
	{
		name: "runtimes-first-error-told", file: "runtime/intent.go", in: "func lastError(",
		old: `bytes.LastIndexByte(bytes.TrimRight(log, "\n"), '\n') + 1`, new: `bytes.IndexByte(bytes.TrimRight(log, "\n"), '\n') + 1`,
		hurts: "the cause of a failure is not named",
		by:    "runtime TestIntentErrorIsTheLastErrorOfTheLog",
	},
}
